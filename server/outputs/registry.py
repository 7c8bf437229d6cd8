"""The kinds of outputs. Their libraries are imported only where one of them is used."""

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.errors import ConfigError
from .file.settings import FileSettings
from .kafka.settings import KafkaSettings
from .kafka.translation import names as kafka_names
from .mysql.settings import MysqlSettings
from .settings import Output, OutputSettings
from .target import Asked, Complaints, Report, Target

if TYPE_CHECKING:
    from .routing import Having, Name  # compiled


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of outputs."""

    settings: type[OutputSettings]
    """What is configured of one."""
    folder: str
    """Its folder here, with two modules: ``checks``, see `Checks`, and ``making``, see `Making`."""
    library: Iterable[str] = ()
    """Settings that are passed to a library, whose names go by the name of the kind: ``kafka.linger.ms``."""


class Checks(Protocol):
    """What the module ``checks`` of a kind has, which does not need its library."""

    def complaints(self, output: Output) -> Complaints:
        """Say what of the configuration has no effect. Raises ConfigError for what cannot be used."""

    def doubts(self, output: Output, tables: "Collection[Name]", having: "Having") -> list[str]:
        """Say what of the configuration does nothing with the tables that there are; ``having``: with a column."""


class Making(Protocol):
    """What the module ``making`` of a kind has."""

    def make(self, output: Output, group: Callable[[], str]) -> Target:
        """Make the other side; ``group`` gives a name that the servers which share destinations have in common.

        Raises ConfigError when it cannot be used as configured.
        """

    def examine(self, output: Output, report: Report, asked: Asked | None = None) -> None:
        """Ask the other side whether it would take changes, those of a source if it is given; send nothing."""


KINDS: Mapping[str, Kind] = {
    "kafka": Kind(KafkaSettings, "kafka", kafka_names()),
    "file": Kind(FileSettings, "file"),
    "mysql": Kind(MysqlSettings, "mysql"),
}
"""Sluice's own, by what `sluice.output.<name>.type` is set to."""


def kind_of(name: str) -> Kind:
    """Return a kind of outputs, Sluice's own or that of another package. Raises ConfigError."""
    if name in KINDS:
        return KINDS[name]
    module: Any = importlib.import_module(".plugin.kind", __package__)  # compiled code, which a configuration may need
    return Kind(module.kind_of(name).settings, "plugin")


def complaints(output: Output) -> Complaints:
    """Say what of an output's configuration has no effect. Raises ConfigError for what cannot be used."""
    checks: Checks = _module(output, "checks")
    found = checks.complaints(output)
    return found._replace(unknown=[*output.unknown, *found.unknown])


def doubts(output: Output, tables: "Collection[Name]", having: "Having") -> list[str]:
    """Say what of an output's configuration does nothing with the tables of its destination.

    ``having`` gives those that have a column. Raises as that does.
    """
    checks: Checks = _module(output, "checks")
    return checks.doubts(output, tables, having)


def make(output: Output, group: Callable[[], str]) -> Target:
    """Make the other side of an output. See `Making.make`."""
    making: Making = _module(output, "making")
    return making.make(output, group)


def examine(output: Output, report: Report, asked: Asked | None = None) -> None:
    """Ask the other side of an output whether it would take changes, those of a source if it is given."""
    try:
        making: Making = _module(output, "making")
    except ConfigError as error:
        report.wrong(output, error)
    else:
        making.examine(output, report, asked)


def _module(output: Output, name: str) -> Any:
    kind = output.settings.type
    try:
        return importlib.import_module(f".{kind_of(kind).folder}.{name}", __package__)
    except ImportError as error:
        raise ConfigError(
            f"{output} needs a library that is not installed: pip install 'sluice-cdc[{kind}]' ({error})"
        ) from None
