"""What is configured of an output, whatever its kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from ...instance.config import ClientWhereText, InstanceConfig
from ...instance.properties import Property
from ...instance.settings import Settings, names, setting
from ...store.snapshot import Selection

PREFIX = "sluice.output."
PLACE = "<name>"
"""Stands for the output's name in the keys that the models declare."""


class OutputNames(Settings):
    """Which outputs a destination has."""

    outputs: Annotated[tuple[str, ...], BeforeValidator(names)] = setting("sluice.outputs", (), max_length=64)
    """Names of the destination's outputs, separated by commas. Each output sends the changes to another system, in
    addition to the clients that fetch them. `canal.serverMode = kafka` creates an output named `mq` for each
    destination."""


class OnMarker(StrEnum):
    """What is done with a marker, which says that changes are missing."""

    STOP = "stop"
    SKIP = "skip"
    SEND = "send"


class OnRefused(StrEnum):
    """What is done with a change that cannot be sent."""

    STOP = "stop"
    SKIP = "skip"


class OutputSettings(Settings):
    """The configuration of an output."""

    type: str = setting("sluice.output.<name>.type", "kafka")
    """Target of the output. `kafka`: topics of [Kafka](kafka.md). `file`: [files in a folder](howto/file-outputs.md).
    `mysql`: [a server of MySQL or MariaDB](howto/mysql-output.md). Any other name is a kind that an [installed
    package](howto/plugins.md) brings."""
    client_id: int | None = setting("sluice.output.<name>.clientId", None, ge=-(1 << 15), lt=1 << 15)
    """Client id of the output. Its cursor shows what the output has delivered. The client belongs to the output, and
    Sluice rejects client calls of anybody else. Empty: Sluice picks a free id from 32001 on, and keeps it. With
    `canal.serverMode = kafka`, `mq` gets Canal's 1001."""
    filter: str = setting("sluice.output.<name>.filter", "")
    """Tables to send, out of those of the destination, as in `canal.instance.filter.regex`. Empty: all."""
    where: ClientWhereText = setting("sluice.output.<name>.where", "")
    """Rows to send, for tables that you want only in part: `shop.orders: total > 10`. See [conditions of a
    client](howto/client-conditions.md)."""
    start: str = setting("sluice.output.<name>.start", "earliest")
    """Start position if the output has no cursor yet. `earliest`: the oldest change in the ring or the log. `oldest`:
    the oldest change that Sluice or the source still has. `latest`: the current end. You can also set a position. Type
    `mysql` also knows `snapshot`, its default: the rows that the tables have now, then all changes."""
    max_bytes: int = setting("sluice.output.<name>.maxBytes", 1 << 20, unit="bytes", ge=1 << 10, le=64 << 20)
    """Size of a batch, which the output fetches and acknowledges as a whole. A larger change forms a batch of its
    own."""
    window: int = setting("sluice.output.<name>.window", 16, ge=1, le=64)
    """Number of batches that the output sends before the target has confirmed the first of them. After a crash, it can
    send as many again."""
    late: bool = setting("sluice.output.<name>.late", default=False)
    """Whether to send rows that are out of order: rows from the quarantine, after `sluice quarantine retry`. If not,
    the output skips and logs them."""
    on_marker: OnMarker = setting("sluice.output.<name>.onMarker", OnMarker.STOP)
    """What to do with a marker. A marker stands for changes that Sluice could not decode or that are gone from the
    source. `stop` waits for an operator, `skip` skips it, `send` sends it as a message."""
    on_refused: OnRefused = setting("sluice.output.<name>.onRefused", OnRefused.STOP)
    """What to do with a change that cannot be sent: it is too large for a record, or with type `mysql` a DDL or a row
    that is refused. `stop` waits for an operator. `skip` skips it, with all rows of its event, and of type `mysql` with
    its transaction. `sluice quarantine skipped`
    lists what the output skipped, and why."""

    @property
    def needed(self) -> tuple[tuple[str, str], ...]:
        """Tables, by schema and name, that its filter and that of the destination have to let through."""
        return ()

    @property
    def begin(self) -> str | Selection:
        """Where a new client begins, as `EmbeddedServer.subscribe` takes it."""
        return self.start


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a destination, as configured."""

    destination: str
    name: str
    settings: OutputSettings
    shared: bool
    """Whether other servers can have the destination, too."""
    strict: bool = False
    """Whether what it sends is exactly as Canal's (`canal.instance.parser.strictCanal`)."""
    instance: InstanceConfig | None = field(default=None, compare=False, repr=False)
    """What it is an output of, if that is configured."""
    library: Mapping[str, Property] = field(default_factory=dict, compare=False)
    """Settings of the library that sends, by the names that they have there."""
    folder: Path = Path()
    """Where relative paths start."""
    source: tuple[str, int] = ("", 0)
    """Host and port of what the changes are read from, empty for a source without."""
    shape: str = ""
    """A digest of what the destination is configured with that shapes changes, or chooses them."""
    has_transactions: bool = True
    """Whether begins and ends of transactions are delivered; not with `canal.instance.filter.transaction.entry`."""
    is_merged: bool = False
    """Whether the source is a group."""
    has_shared_filter: bool = False
    """Whether clients change which tables are delivered: `sluice.instance.sharedFilter`."""
    time_zone: str = ""
    """Zone of the texts of TIMESTAMP values, empty if it has no name."""
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """Complaints about keys of it that nothing reads."""
    mistake: str = ""
    """Why it cannot be used as configured; ``settings`` has then what can be used of what it is due."""
    lacks_plugin: bool = False
    """Whether that is the fault of a package that is to bring a part of it: other destinations can be served."""

    @property
    def client_id(self) -> int:
        """The client that it is, when that is known; see `of_client`."""
        assert self.settings.client_id is not None
        return self.settings.client_id

    def of_client(self, client_id: int | None) -> "Output":
        """Return it as another client; None: as one that is still to be found."""
        return replace(self, settings=self.settings.model_copy(update={"client_id": client_id}))

    def is_same(self, other: "Output") -> bool:
        """Whether it is configured as another one, wherever in the files that stands."""
        ours, others = ({name: it.value for name, it in of.library.items()} for of in (self, other))
        return self == other and ours == others

    def __str__(self) -> str:
        return f"output {self.name} of {self.destination}"
