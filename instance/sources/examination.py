"""What the commands are told of every source that has changes only, without a database server that could be asked."""

from collections.abc import Sequence
from typing import Any

from ...protocol.errors import ConfigError
from ..config import InstanceConfig
from ..quarantine import Item
from ..source import Definition, Reread, TableReader


class ServerlessExamination:
    """The answers that such sources share: see `sluice.instance.source.Examination`."""

    _config: InstanceConfig
    unchecked_tls = ""

    def advice(self) -> list[str]:
        """See `sluice.instance.source.Examination.advice`."""
        return []

    def shortage(self, configs: Sequence[Any]) -> str:
        """Any number of destinations may read it."""
        del configs
        return ""

    def table_reader(self) -> TableReader:
        """Refuse: there are no tables."""
        raise self._refusal("give rows of tables")

    def definition(self, schema: str, table: str) -> Definition:
        """Refuse: there are no tables."""
        raise self._refusal(f"define {schema}.{table}")

    def reread(self, item: Item) -> Reread:
        """Refuse: the tables are what they were, and nobody can be asked."""
        raise self._refusal(f"decode {item.position} again")

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(f"{self._config.destination}: {self._config.source_title} as a source cannot {what}")
