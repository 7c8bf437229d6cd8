"""The settings of a destination that processes the rows of another one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from ...config import DESTINATION_NAME, lower
from ...settings import FolderPath, setting
from ..plugin.config import EntriesConfig

FUNCTION: Final = r"^[A-Za-z_][A-Za-z0-9_.]{0,199}:[A-Za-z_][A-Za-z0-9_]{0,99}$"

_TYPE: Final = re.compile(
    r"(tiny|small|medium|big)?int( unsigned)?|float|double|decimal\(\d{1,2}(, ?\d{1,2})?\)|date|json|year"
    r"|(datetime|timestamp|time)(\([0-6]\))?|(var)?(char|binary)\(\d{1,5}\)|(tiny|medium|long)?(text|blob)"
)

Added = Mapping[tuple[str, str], Mapping[str, str]]
"""By schema and table: the columns that a function adds, and their types."""


def read_columns(text: str) -> Added:
    """Read ``schema.table.column: type; …``. Raises ValueError."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for item in filter(None, map(str.strip, text.split(";"))):
        name, _, type_ = (it.strip() for it in item.partition(":"))
        parts = name.split(".")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{item[:200]!r}: write schema.table.column: type, separated by semicolons")
        if not _TYPE.fullmatch(type_):
            raise ValueError(
                f"{name[:200]}: {type_[:200]!r} is not a type such as bigint, decimal(10,2), varchar(20), datetime(6)"
            )
        found.setdefault((parts[0], parts[1]), {})[parts[2]] = type_
    return found


def _columns(value: str) -> str:
    read_columns(value)
    return value


class ProcessConfig(EntriesConfig):
    """The configuration of a destination whose source is another destination, with a function that processes rows."""

    source_title: ClassVar[str] = "another destination whose rows are processed"
    keeps_log: ClassVar[bool] = True

    source: Annotated[Literal["process"], BeforeValidator(lower)] = setting("sluice.instance.source", "process")

    # The source.

    feeder: str = setting("sluice.instance.process.destination", pattern=f"^{DESTINATION_NAME}$")
    """Name of the destination whose changes are [processed](howto/processing.md). Positions are those of that
    destination."""
    client_id: int = setting("sluice.instance.process.clientId", ge=1, le=32000)
    """Client of that destination, which reads it. This number and the next ones have to be free there: the destination
    also uses one for each of its catch-up readers, and one more."""
    url: str = setting("sluice.instance.process.url", "http://127.0.0.1:11180", pattern=r"^https?://\S+$")
    """The server that serves that destination; several, separated by commas, if it may move between them."""
    token: SecretStr = setting("sluice.instance.process.token", SecretStr(""))
    """Token for that server, which may use the clients named above. Empty: without one."""
    ca: FolderPath = setting("sluice.instance.process.ca", Path())
    """PEM file of the CA certificates that signed the server's certificate. Empty: the system's."""

    # The function.

    processor: str = setting("sluice.processor", pattern=FUNCTION, shapes=True)
    """The function, as `package.module:function`. Python has to find the module: install its package, or set
    `PYTHONPATH`."""
    added: Annotated[str, AfterValidator(_columns)] = setting("sluice.processor.columns", "", shapes=True)
    """Columns that the function adds, with their types: `shop.orders.region: varchar(20); shop.orders.total:
    decimal(12,2)`."""
    workers: int = setting("sluice.processor.workers", 1, ge=1, le=64)
    """Processes that call the function at the same time, each with a batch of its own. Changes keep their order."""
    timeout: int = setting("sluice.processor.timeout", 30, ge=1, le=3600, unit="s")
    """How long a call of the function may take. After that, Sluice ends its process, and the call counts as failed."""
    memory: int = setting("sluice.processor.memory", 1024, ge=64, le=1 << 20, unit="MiB")
    """Memory that each process may allocate."""
    deterministic: bool = setting("sluice.processor.deterministic", default=False)
    """Whether the function always makes the same of the same rows. With several servers it has to: after a failover
    another server calls it again."""

    @property
    def place(self) -> str:
        """See `InstanceConfig.place`."""
        return f"destination {self.feeder} at {self.url}"

    @model_validator(mode="after")
    def _check_processing(self) -> Self:
        if self.feeder == self.destination:
            raise ValueError("sluice.instance.process.destination is this destination itself: name another one")
        if self.store_standby:
            raise ValueError("sluice.instance.store.standby: a standby server would read as the same client")
        if self.meta.is_shared and not self.deterministic:
            raise ValueError(
                "canal.zkServers is set, so after a failover another server calls the function again. Set"
                " sluice.processor.deterministic = true if it always makes the same of the same rows. If not, let one"
                " server alone serve this destination"
            )
        return self
