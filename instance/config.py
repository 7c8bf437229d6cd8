"""What can be configured of one destination. Keys that start with ``canal.`` mean what they mean in Canal."""

import hashlib
import hmac
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, PrivateAttr, SecretStr, model_validator

from ..protocol.errors import ConfigError, FilterError
from ..store.allowance import LARGEST, Limits
from ..store.cursor import Cursor, member_of
from ..store.patience import LOGGED
from .conditions.masks import Masks
from .meta import MetaKind
from .meta.base import InUse
from .properties import Lookup
from .settings import FolderPath, Settings, setting
from .sink.filters import FieldFilter, Patterns, TableFilter
from .zones import local_time_zone, offsets_of

if TYPE_CHECKING:
    from .conditions.where import Conditions

CODEC = 1
"""Raised when the same change is written as other entries than before."""
LONGEST_SHOWN = 300
"""Characters of a value that a log on disk keeps and shows."""
SHORTEST_SECRET = 16
"""Characters that the secret of masks has at least."""
DESTINATION_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"


@dataclass(frozen=True, slots=True)
class Probing:
    """How the health check of a source works."""

    interval: float
    """Seconds between two questions, and for each answer."""
    most: int
    """Failures in a row after which it is not yet taken for dead."""
    switches: bool
    """Whether another server is then read by itself."""


class BatchMode(StrEnum):
    """What a batch size counts: units of memory, or entries."""

    MEMSIZE = "MEMSIZE"
    ITEMSIZE = "ITEMSIZE"


def is_host(name: str) -> bool:
    """Tell whether this can be the name or the address of a host. Only the network knows if it exists."""
    try:
        return bool(name.encode("idna")) and name.isprintable() and " " not in name
    except UnicodeError:  # a label that is empty, too long, or has characters that a name cannot have
        return False


def upper(value: Any) -> Any:
    """Return a text in upper case, and any other value unchanged."""
    return value.upper() if isinstance(value, str) else value


def lower(value: Any) -> Any:
    """Return a text in lower case, and any other value unchanged."""
    return value.lower() if isinstance(value, str) else value


def _zone(value: str | None) -> str | None:
    if value is not None:
        try:
            offsets_of(value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return value


def _table_filter(value: str) -> str:
    return _compiled(Patterns, value)


def _field_filter(value: str) -> str:
    return _compiled(FieldFilter, value)


def _where(value: str) -> str:
    return _compiled(_conditions, value)


def _client_where(value: str) -> str:
    return _compiled(_client_conditions, value)


def _mask(value: str) -> str:
    return _compiled(Masks, value)


def _conditions(text: str) -> "Conditions | None":
    """Read conditions on rows, if there are any. Raises FilterError."""
    if not text.strip():
        return None
    from .conditions.where import Conditions  # noqa: PLC0415  its parser takes time and memory, and few need it

    return Conditions(text)


def _client_conditions(text: str) -> "Conditions | None":
    """Read the conditions of a client, if there are any. Raises FilterError."""
    if not text.strip():
        return None
    from .conditions.where import client_conditions  # noqa: PLC0415  as above

    return client_conditions(text)


def _compiled(compile_filter: Callable[[str], object], value: str) -> str:
    """Return the text of a filter unchanged, if it is valid."""
    try:
        compile_filter(value)
    except FilterError as error:
        raise ValueError(str(error)) from None
    return value


def _digest(text: str) -> str:
    """Return a text, of a long one its beginning and what tells it from others."""
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]}… (SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]})"


TableFilterText = Annotated[str, AfterValidator(_table_filter)]
MaskText = Annotated[str, AfterValidator(_mask)]
WhereText = Annotated[str, AfterValidator(_where)]
ClientWhereText = Annotated[str, AfterValidator(_client_where)]
FieldFilterText = Annotated[str, AfterValidator(_field_filter)]


class InstanceConfig(Settings):
    """The configuration of one destination, whatever its source. A kind of source adds its own settings."""

    source_title: ClassVar[str] = ""
    """What a source of this kind is called."""

    destination: str = setting("canal.instance.destination", pattern=f"^{DESTINATION_NAME}$")
    """Name of the destination, which is the name of the folder with its `instance.properties`. Placeholders can use
    it."""
    source: Annotated[str, BeforeValidator(lower)] = setting("sluice.instance.source", "mysql")
    """Kind of the source. `mysql` is MySQL or MariaDB, `files` is a folder with their [binlog files](howto/files.md),
    `kafka` is a topic with TiDB's secondary binlog and `ticdc` is a topic of TiCDC ([TiDB](tidb.md)). `pump` is what a
    [pump for TiDB](howto/pump.md#a-destination-that-reads-the-pump) on this machine has stored. `group` is
    [several sources](howto/groups.md) that become one stream. `process` is another destination and a
    [function](howto/processing.md) that processes its rows. Each kind has its own settings, listed below under its own
    heading. An [installed package](howto/plugins.md) can bring other kinds."""

    route: str = setting("sluice.instance.route", "", pattern=f"^(?:{DESTINATION_NAME})?$", of_view=True)
    """Name of another destination. This destination is then a [view](howto/views.md) of it, and Sluice reads the source
    once for both. A view has its own clients, outputs and cursors. It also has its own `filter.regex` and
    `filter.black.regex`, which select from the tables of the other destination. The descriptions below state which
    other settings a view can have of its own. A view shares all other settings with that destination, and Sluice
    rejects them in the view's file."""

    was: str = setting("sluice.group.was", "")
    """For a destination that becomes a group of several sources, or a single source again: the name of the member that
    the single source was, or is. Clients continue at their positions in this member. Without it, such a destination
    does not start."""

    # Filters.

    filter_regex: TableFilterText = setting("canal.instance.filter.regex", r".*\..*", shapes=True, of_view=True)
    """Tables to read: regular expressions, separated by commas. Each matches the whole of `schema.table` and ignores
    case. Double each backslash in a properties file. [Filters](http.md#filters) describes the syntax."""
    filter_black_regex: TableFilterText = setting("canal.instance.filter.black.regex", "", shapes=True, of_view=True)
    """Tables not to read, even if `filter.regex` matches them."""
    filter_field: FieldFilterText = setting("canal.instance.filter.field", "", shapes=True)
    """Columns to deliver, for tables that you want only in part: `shop.orders:id/total,shop.items:id`."""
    filter_black_field: FieldFilterText = setting("canal.instance.filter.black.field", "", shapes=True)
    """Columns not to deliver, in the same format."""
    filter_where: WhereText = setting("sluice.instance.filter.where", "", shapes=True)
    """Rows to deliver, for tables that you want only in part: `shop.orders: status = 'paid' AND total > 10; shop.items:
    price IS NOT NULL`. An UPDATE passes if the row matched before it or matches after it. [Conditions on
    rows](howto/conditions.md) describes the syntax. Not with TiDB as the source."""
    filter_crossing: Annotated[Literal["update", "split"], BeforeValidator(lower)] = setting(
        "sluice.instance.filter.where.crossing", "update", shapes=True
    )
    """How to deliver an UPDATE if the row matches its condition only after it or only before it. `update`: unchanged.
    `split`: as an INSERT of the row after it, or as a DELETE of the row before it; not with
    `sluice.instance.sharedFilter`."""
    filter_mask: MaskText = setting("sluice.instance.filter.mask", "", shapes=True)
    """Columns whose original values no client may receive, each with its mask: `shop.users.email: sha256;
    shop.users.phone: first 3`. The masks are `null`, `sha256`, `hmac`, and `first` with a number of characters
    ([masks](howto/masks.md)). Not for columns of the primary key, and not with TiDB as the source."""
    mask_secret: SecretStr = setting("sluice.instance.filter.mask.secret", SecretStr(""), max_length=1000)
    """Secret of the mask `hmac`, at least 16 characters."""
    filter_rows: bool = setting("canal.instance.filter.rows", default=False, shapes=True)
    """Drop all row changes."""
    filter_query_dcl: bool = setting("canal.instance.filter.query.dcl", default=False, shapes=True)
    """Drop GRANT, REVOKE, CREATE USER and similar statements."""
    filter_query_dml: bool = setting("canal.instance.filter.query.dml", default=False, shapes=True)
    """Drop INSERT, UPDATE and DELETE statements that the source logged as text, and the statement texts before rows.
    Sluice delivers these texts only [if nothing is filtered](howto/filters.md#texts-of-statements)."""
    filter_query_ddl: bool = setting("canal.instance.filter.query.ddl", default=False, shapes=True)
    """Drop CREATE, ALTER, DROP and similar statements."""
    filter_dml_insert: bool = setting("canal.instance.filter.dml.insert", default=False, shapes=True)
    """Drop inserted rows."""
    filter_dml_update: bool = setting("canal.instance.filter.dml.update", default=False, shapes=True)
    """Drop updated rows."""
    filter_dml_delete: bool = setting("canal.instance.filter.dml.delete", default=False, shapes=True)
    """Drop deleted rows."""
    filter_transaction_entry: bool = setting("canal.instance.filter.transaction.entry", default=False, shapes=True)
    """Drop the entries that begin and end transactions. Sluice keeps one in 8192 and one in 5 s, so that cursors
    advance."""
    filter_table_error: bool = setting("canal.instance.filter.table.error", default=False, shapes=True)
    """Drop changes of tables that no longer exist or whose columns do not match, instead of reporting an error."""

    # Format of changes.

    strict_canal: bool = setting("canal.instance.parser.strictCanal", default=False, shapes=True)
    """Write every value exactly as Canal does, including its mistakes (see "Deviations from Canal"). A get over Canal's
    protocol then waits for a full batch."""
    time_zone: Annotated[str | None, AfterValidator(_zone)] = setting("sluice.instance.timeZone", None, shapes=True)
    """Time zone for TIMESTAMP values, such as `Asia/Shanghai` or `+08:00`. Empty means the time zone of the process, as
    in Canal."""
    quarantine: bool = setting("sluice.instance.quarantine", default=True, shapes=True)
    """What to do with a row event that Sluice cannot decode. `true` puts a marker in its place and continues. `false`
    stops the destination."""
    quarantine_max_bytes: int = setting("sluice.instance.quarantine.maxBytes", 64 << 20, ge=0, le=1 << 40, unit="bytes")
    """How many bytes of such events Sluice retains. It can then decode them later, after the source has purged them."""

    # The ring.

    memory_buffer_size: int = setting("canal.instance.memory.buffer.size", 16384, ge=2, le=1 << 24, unit="entries")
    """Number of entries that the ring holds, a power of two."""
    memory_buffer_memunit: int = setting("canal.instance.memory.buffer.memunit", 1024, ge=1, le=1 << 30, unit="bytes")
    """Size of a memory unit for MEMSIZE. The ring holds at most `buffer.size` units."""
    memory_batch_mode: Annotated[BatchMode, BeforeValidator(upper)] = setting(
        "canal.instance.memory.batch.mode", BatchMode.MEMSIZE, of_view=True
    )
    """What `batchSize` counts. MEMSIZE: units of memory. ITEMSIZE: entries. A view can have its own."""
    get_ddl_isolation: bool = setting("canal.instance.get.ddl.isolation", default=False, of_view=True)
    """Deliver every DDL in a batch of its own. A view can have its own."""

    # The log on disk.

    store: Annotated[Literal["memory", "file", "mixed"], BeforeValidator(lower)] = setting(
        "sluice.instance.store", "memory"
    )
    """Where Sluice keeps changes. `memory`: only in the ring. Changes that have left the ring are read from the source
    again. `mixed`: in a [log on disk](howto/log-on-disk.md), too. Clients that lag read this log, even if the source
    has purged its binlog, and no client waits for the slowest. Sluice reads the source even without any client. `file`:
    like `mixed`, but no client gets a change before it is synced to the disk."""
    store_standby: bool = setting("sluice.instance.store.standby", default=False)
    """With several servers, let standby servers read the source into logs of their own. After a failover, changes that
    the source has purged are then still available. Each standby is one more replica for the source, with its own server
    id."""
    store_dir: FolderPath | None = setting("sluice.instance.store.dir", None)
    """Folder that contains `<destination>/log`. Empty means the folder of `meta.dat`."""
    store_max_bytes: int = setting("sluice.instance.store.maxBytes", 0, ge=0, le=1 << 50, unit="bytes")
    """Maximum size of the log. Sluice deletes the oldest files first, unless a protected client needs them. A file has
    256 MiB, or an eighth of the limit if that is less. 0 means a tenth of the disk, shared equally by all destinations
    with a log in the same folder."""
    store_max_age: int = setting("sluice.instance.store.maxAge", 0, ge=0, le=876_000, unit="h")
    """How long the log retains a file after it was written. 0 retains it forever."""
    store_min_free: int = setting("sluice.instance.store.minFree", 1 << 30, ge=0, le=1 << 50, unit="bytes")
    """Minimum free space on the disk. Sluice deletes the oldest files of the log first. If it can delete none, it stops
    reading the source until there is room."""
    store_sync_period: int | None = setting("sluice.instance.store.syncPeriod", None, ge=0, le=3_600_000, unit="ms")
    """Interval between two syncs of the log. 0 syncs after every write, which can contain many transactions. After a
    power loss, Sluice reads the missing part from the source again. Empty means 1000 for `mixed`, and 0 for `file`,
    where clients wait for the sync."""
    store_compression: Annotated[Literal["none", "zstd"], BeforeValidator(lower)] = setting(
        "sluice.instance.store.compression", "none"
    )
    """Whether to [compress](howto/log-on-disk.md) full files of the log. `zstd` uses at most one core for all
    destinations, and makes reading the log slower."""

    # Subscriptions and cursors.

    auto_reset_latest_pos_mode: bool = setting("canal.auto.reset.latest.pos.mode", default=False)
    """What to do if the source has purged the binlog at the cursors of all clients. `true` resumes at the current end
    of the binlog and loses the changes before it. `false` stops with an error. If only some clients have lost their
    positions, these get an error. A client whose position belongs to another source or history gets an error, too."""
    shared_filter: bool = setting("sluice.instance.sharedFilter", default=False)
    """Canal's rule for filters. The filter of the last client that subscribes with one replaces `filter.regex` for all
    clients from then on. Otherwise each client has its own filter, which narrows `filter.regex`. Not for a destination
    with a log on disk, because the log holds what one filter has passed. Not with
    `sluice.instance.filter.where.crossing = split`."""
    detach_after: int = setting("sluice.instance.detachAfter", 300, ge=0, le=31_536_000, unit="s")
    """How long a client may block a full ring for other clients. The limit applies once another client has acknowledged
    all that the ring holds, or waits for later changes. Each of the others has to acknowledge as much before the source
    has waited for this long. Otherwise it leaves the ring and gets its changes from a catch-up reader. It does not help
    to acknowledge a little now and then. 0 lets a client block the others forever."""
    client_expiry: int = setting("sluice.instance.clientExpiry", 0, ge=0, le=315_360_000, unit="s", of_view=True)
    """Sluice removes a client, with its cursor, after it has made no call for this long. 0 keeps it forever. A client
    can set its own time with `expireAfter` when it subscribes, as `sluice tail` does. A view can have its own."""
    client_max_rate: int = setting("sluice.client.maxRate", 0, ge=0, le=LARGEST, unit="bytes/s", of_view=True)
    """How many bytes a second a client gets at most, on average and after a burst of one second. A get waits within its
    timeout, as if nothing were there. Not for clients of outputs. `sluice limit` sets another [limit](howto/limits.md)
    for one client. 0 means no limit. A view can have its own."""
    client_quota: int = setting("sluice.client.quota", 0, ge=0, le=LARGEST, unit="bytes", of_view=True)
    """How many bytes a client gets in a day, which begins at midnight in UTC. Then Sluice answers with an error until
    the day has ended. Not for clients of outputs. `sluice limit` sets another quota for one client. 0 means no quota. A
    view can have its own."""
    max_clients: int = setting("sluice.instance.maxClients", 20_000, ge=1, le=65_536, of_view=True)
    """Maximum number of clients. Clients that are already stored stay, even above the limit. A view can have its
    own."""
    max_clients_of_token: int = setting("sluice.instance.maxClientsOfToken", 100, ge=1, le=65_536, of_view=True)
    """Maximum number of clients that the tokens of one name may create in a destination or view. The limit does not
    apply to administrators, callers without a token and clients on Canal's port."""
    max_filter_size: int = setting("sluice.instance.maxFilterSize", 20_000, ge=100, le=1_000_000, of_view=True)
    """Maximum size of a client's filter, in instructions of RE2 programs. An item that names a table takes about ten,
    `.*` and `\\w` take more. Sluice matches each new table with each filter. A client may use a filter of any size if
    another client already has it."""
    max_filter_sizes: int = setting("sluice.instance.maxFilterSizes", 500_000, ge=100, le=1_000_000_000, of_view=True)
    """Maximum size of the filters of all clients together. Identical filters count once. The clients of the tokens of
    one name get at most a quarter of what all others leave of it, so that one more token always finds room."""
    catch_up_readers: int = setting("sluice.instance.catchUp.readers", 2, ge=0, le=64)
    """Maximum number of catch-up readers. These are parsers that read the source again for changes that have left the
    ring. Each has its own server id and ring. Clients behind the ring and ranges take turns; a client that makes no
    calls gets no turn. 0 turns these readers off: a client behind the ring is `gone`."""
    snapshot_readers: int = setting("sluice.instance.snapshot.readers", 2, ge=1, le=64)
    """Maximum number of clients whose snapshots read tables at the same time, each over its own connection. The others
    take turns, chunk by chunk."""
    snapshot_whole_bytes: int = setting(
        "sluice.instance.snapshot.withoutKey.maxBytes", 64 << 20, ge=0, le=1 << 40, unit="bytes"
    )
    """Maximum size of a table without a key. A snapshot cannot read such a table in chunks, and reads it as a whole.
    The client waits for this read, and the server keeps the rows in memory until the client has taken them. Sluice
    refuses a larger table. 0 refuses all of them."""
    meta: Annotated[MetaKind, BeforeValidator(lower)] = setting("sluice.instance.meta", MetaKind.FILE, of_view=True)
    """Where Sluice stores subscriptions and cursors. `file` survives a restart, `memory` does not. With
    `canal.zkServers` the default is `zookeeper`: Sluice answers an ack once it is durable there, and concurrent acks
    share the next write. `mixed` writes cursors as they change, `period` every `canal.zookeeper.flush.period`. With
    these two an ack does not wait, so another server can deliver the last acknowledged changes again. Without this
    setting, Canal's `canal.instance.global.spring.xml` decides: `file-instance.xml`, `memory-instance.xml`, or
    `default-instance.xml` for `period`. A view can have its own."""
    log_position: Annotated[Literal["failback", "parse"], BeforeValidator(lower)] = setting(
        "sluice.instance.logPosition", "failback"
    )
    """Which position Sluice reads the source from. `failback`: the smallest cursor of all clients; without cursors, the
    configured start, as with Canal's shipped files. `parse`: Sluice also stores a position, and uses it if no client
    has a cursor. It stores it in Canal's node `parse` in ZooKeeper, or in `parse.dat` beside `meta.dat`."""
    file_data_dir: FolderPath = setting("canal.file.data.dir", Path(), of_view=True)
    """Folder that contains `<destination>/meta.dat`. With `canal.zkServers` the server saves its backup of the cursors
    in ZooKeeper there. If it is empty, or `../conf` as in Canal's own files, Sluice uses the folder of
    `canal.properties`. A view can have its own."""
    file_flush_period: int = setting("canal.file.flush.period", 1000, ge=1, le=86_400_000, unit="ms", of_view=True)
    """Interval between two writes of changed cursors to the file. A view can have its own."""
    zookeeper_flush_period: int = setting(
        "canal.zookeeper.flush.period", 1000, ge=1, le=86_400_000, unit="ms", of_view=True
    )
    """Interval between two writes of changed cursors to ZooKeeper, if no ack waits for the write. A view can have its
    own."""

    _main: "InstanceConfig | None" = PrivateAttr(default=None)

    @classmethod
    def keys_in(cls, lookup: Lookup) -> Collection[str]:
        """Return the keys that have an effect; which these are may depend on values. Raises ConfigError."""
        del lookup
        return cls.fields_by_key()

    @classmethod
    def read(cls, lookup: Lookup, folder: Path, destination: str) -> Self:
        """Read the settings of a destination. Relative paths start at ``folder``. Raises ConfigError."""
        return cls.fill(lookup(cls.fields_by_key()), folder, destination=destination)

    @property
    def main(self) -> "InstanceConfig":
        """The configuration of the destination that reads the source: this one, or that which it is a view of."""
        return self._main or self

    def as_view(self, main: "InstanceConfig") -> Self:
        """Return that of a view of a destination."""
        copy = self.model_copy()
        copy._main = main  # noqa: SLF001  of its own class
        return copy

    def adopt(self, cursor: Cursor) -> Cursor:
        """Return the stored place of a client as one of this source; of a group that is that of the member ``was``.

        Raises ConfigError if it cannot be one.
        """
        position = cursor.position
        if position is None or not position.is_merged:
            return cursor
        found = member_of(cursor, self.was) if self.was else None
        if found is None:
            raise ConfigError(
                f"a client is at {position}, a place of a group, and {self.destination} is none: say which of its"
                " members this source is, by sluice.group.was, or make a destination of another name"
            )
        return found

    @property
    def is_merged(self) -> bool:
        """Whether it is several sources that are merged: then a place is a cut."""
        return False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the source, which Canal needs in each cursor from which it is to go on."""
        return "", 0

    @property
    def place(self) -> str:
        """Where the source is, and as whom it is read, for people."""
        return self.source_title

    @property
    def in_use(self) -> str:
        """The address of the server that is read; empty when it cannot be exchanged for another."""
        return ""

    @property
    def others(self) -> Sequence[str]:
        """The addresses of servers with the same data that can be read instead."""
        return ()

    @property
    def probing(self) -> Probing | None:
        """How the health check of the source works; None if there is none."""
        return None

    def using(self, found: InUse | None) -> Self:
        """Return the configuration with which that server is read; this one if it is none of them."""
        del found
        return self

    def sources(self) -> Mapping[str, "InstanceConfig"]:
        """Return the configurations of the single sources that are read, by the names of members; of one that is ''."""
        return {"": self}

    def with_sources(self, sources: Mapping[str, "InstanceConfig"]) -> "InstanceConfig":
        """Return it with other configurations of the single sources that are read, by their names."""
        return sources[""]

    def goes_on_with(self, other: "InstanceConfig") -> bool:
        """Whether what reads by this configuration can go on with another one, without a new beginning."""
        del other
        return False

    def warnings(self) -> list[str]:
        """Return what of the source's settings is probably not meant."""
        return []

    def for_reader(self) -> Self:
        """Return the configuration of another parser of the destination, which reads the same source again."""
        return self.model_copy(update={"auto_reset_latest_pos_mode": False})

    def beside(self, folder: Path) -> Self:
        """Return that of a parser in another process than the destination's, which writes into a folder of its own."""
        return self.for_reader().model_copy(update={"file_data_dir": folder})

    @property
    def flush_period(self) -> float:
        """Seconds between two writes of cursors that no call waits for."""
        milliseconds = self.zookeeper_flush_period if self.meta.is_shared else self.file_flush_period
        return milliseconds / 1000

    @property
    def client_limits(self) -> Limits:
        """How much a client without limits of its own may be given."""
        return Limits(self.client_max_rate, self.client_quota)

    @property
    def patience(self) -> float:
        """Seconds for which a client may hold a full ring back; 0 for ever."""
        return min(self.detach_after or LOGGED, LOGGED) if self.has_log else self.detach_after

    @property
    def has_log(self) -> bool:
        """Whether there is a log on disk."""
        return self.store != "memory"

    @property
    def sync_period(self) -> float:
        """Seconds between two syncs of the log; 0: after every write."""
        if self.store_sync_period is not None:
            return self.store_sync_period / 1000
        return 0.0 if self.store == "file" else 1.0

    @property
    def history_folder(self) -> Path:
        """Where the history of the tables is, if the source has one."""
        return self.file_data_dir / self.destination

    @property
    def log_folder(self) -> Path:
        """Where the log on disk is."""
        return (self.store_dir or self.file_data_dir) / self.destination / "log"

    def shape(self) -> dict[str, Any]:
        """Return everything that shapes entries, by key, as JSON can hold it; of long values the beginning."""
        found = self.shaping()
        found["sluice.instance.timeZone"] = self.time_zone or local_time_zone() or "/".join(time.tzname)
        found |= {key: _digest(value) for key, value in found.items() if isinstance(value, str)}
        if self.masks().need_secret:  # what nobody can undo, and differs for another secret
            secret, key = self.mask_secret.get_secret_value().encode(), "sluice.instance.filter.mask.secret"
            found[key] = hmac.digest(secret, key.encode(), "sha256").hex()[:16]
        return {**found, "codec": CODEC}

    def table_filter(self) -> TableFilter:
        """Compile the filter of tables."""
        main = self._main.table_filter() if self._main is not None else None
        return TableFilter(self.filter_regex, self.filter_black_regex, main)

    def field_filter(self) -> FieldFilter:
        """Compile the filter of columns."""
        return FieldFilter(self.filter_field, self.filter_black_field)

    def passes_texts(self, tables: TableFilter) -> bool:
        """Return whether texts of statements are delivered with that filter of tables: only if nothing is left out."""
        left_out = self.filter_field, self.filter_black_field, self.filter_where, self.filter_mask
        return tables.passes_all and not self.filter_query_dml and not any(text.strip() for text in left_out)

    def masks(self) -> Masks:
        """Read the masks of columns."""
        return Masks(self.filter_mask)

    def conditions(self) -> "Conditions | None":
        """Read the conditions on rows; None if there are none."""
        return _conditions(self.filter_where)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.memory_buffer_size & (self.memory_buffer_size - 1):
            below = 1 << (self.memory_buffer_size.bit_length() - 1)
            raise ValueError(
                f"canal.instance.memory.buffer.size has to be a power of two, such as {below} or {2 * below},"
                f" not {self.memory_buffer_size}"
            )
        if self.store_standby and not self.has_log:
            raise ValueError("sluice.instance.store.standby needs sluice.instance.store = mixed or file")
        if self.masks().need_secret and len(self.mask_secret.get_secret_value()) < SHORTEST_SECRET:
            raise ValueError(
                f"the mask hmac needs sluice.instance.filter.mask.secret, of at least {SHORTEST_SECRET} characters"
            )
        if self.filter_crossing == "split" and self.shared_filter:
            raise ValueError(
                "sluice.instance.filter.where.crossing = split needs sluice.instance.sharedFilter = false: positions of"
                " what is split depend on the tables which are read"
            )
        if self.has_log and self.shared_filter:
            raise ValueError(
                f"sluice.instance.store = {self.store} needs sluice.instance.sharedFilter = false: what a log holds has"
                " passed one filter, not that of the client which subscribed last"
            )
        if self.has_log and not self.catch_up_readers:
            raise ValueError(
                f"sluice.instance.store = {self.store} needs sluice.instance.catchUp.readers: without one nobody reads"
                " the log"
            )
        return self
