"""What can be configured of one destination. Keys that start with ``canal.`` mean what they mean in Canal."""

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from ..protocol.errors import ConfigError, FilterError
from ..protocol.mysql.ssl_mode import SslMode
from .meta import MetaKind
from .settings import FolderPath, Settings, setting
from .sink.filters import FieldFilter, Patterns, TableFilter
from .zones import offsets_of

DEFAULT_PORT = 3306
LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""
DESTINATION_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"

# Names of charsets that MySQL spells otherwise.
JAVA_CHARSETS = {
    "utf-8": "utf8mb4",
    "utf8": "utf8mb4",
    "iso-8859-1": "latin1",
    "us-ascii": "ascii",
    "big5-hkscs": "big5",
}


class Address(NamedTuple):
    """Where a source listens."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BatchMode(StrEnum):
    """What a batch size counts: units of memory, or entries."""

    MEMSIZE = "MEMSIZE"
    ITEMSIZE = "ITEMSIZE"


def is_host(name: str) -> bool:
    """Tell whether this can be the name or the address of a host; if there is one is for the network to say."""
    try:
        return bool(name.encode("idna")) and name.isprintable() and " " not in name
    except UnicodeError:  # a label that is empty, too long, or of characters that no name has
        return False


def parse_address(value: Any) -> Any:
    """``host``, ``host:port``, ``[v6]`` or ``[v6]:port`` as an Address."""
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        host, bracket, rest = value[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{value!r} is not an address; write host:port or [IPv6 address]:port")
        port = rest[1:]
    else:
        host, _, port = value.partition(":")
    if not is_host(host) or not re.fullmatch("[0-9]{0,5}", port) or not 0 < int(port or DEFAULT_PORT) < 1 << 16:
        raise ValueError(f"{value!r} is not an address; write host:port or [IPv6 address]:port")
    return Address(host, int(port or DEFAULT_PORT))


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _items(value: Any) -> Any:
    return [item.strip().upper() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _charset(value: str) -> str:
    return JAVA_CHARSETS.get(value.lower(), value.lower())


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


def _compiled(compile_filter: Callable[[str], object], value: str) -> str:
    """Return the text of a filter as it is, when it is one."""
    try:
        compile_filter(value)
    except FilterError as error:
        raise ValueError(str(error)) from None
    return value


def _zero_is_none(value: int | None) -> int | None:
    return value or None


AddressText = Annotated[Address, BeforeValidator(parse_address)]
TableFilterText = Annotated[str, AfterValidator(_table_filter)]
FieldFilterText = Annotated[str, AfterValidator(_field_filter)]
Above0 = Annotated[int | None, AfterValidator(_zero_is_none)]


class InstanceConfig(Settings):
    """The configuration of one destination."""

    destination: str = setting("canal.instance.destination", pattern=f"^{DESTINATION_NAME}$")
    """Name of the destination: that of the folder that holds `instance.properties`. It is there for placeholders."""

    # The source.

    master_address: AddressText = setting("canal.instance.master.address")
    """Address of the MySQL or MariaDB server whose changes are read: `host:port` or `[IPv6 address]:port`."""
    db_username: str = setting("canal.instance.dbUsername", min_length=1)
    """Account on the source. It needs the privileges REPLICATION SLAVE, REPLICATION CLIENT and SELECT."""
    db_password: SecretStr = setting("canal.instance.dbPassword", SecretStr(""))
    """Password of the account."""
    default_database_name: str = setting("canal.instance.defaultDatabaseName", "")
    """Database that the connection selects; empty selects none."""
    connection_charset: Annotated[str, AfterValidator(_charset)] = setting("canal.instance.connectionCharset", "UTF-8")
    """Charset that texts are read in under `strictCanal`; else each column's own counts. Java's names or MySQL's."""
    ssl_mode: Annotated[SslMode, BeforeValidator(_upper)] = setting("canal.instance.master.sslMode", SslMode.DISABLED)
    """Encryption of the connection to the source. VERIFY_CA checks who signed its certificate, VERIFY_IDENTITY also the
    host name in it. PREFERRED and REQUIRED check nothing, so that they protect neither the password nor the changes
    against another server that answers in the source's place."""
    ssl_ca: FolderPath | None = setting("sluice.instance.sslCa", None)
    """File of the authorities (PEM) that may have signed the source's certificate; empty takes the system's."""
    ssl_cert: FolderPath | None = setting("sluice.instance.sslCert", None)
    """File of the client certificate (PEM) to present to the source."""
    ssl_key: FolderPath | None = setting("sluice.instance.sslKey", None)
    """File of the private key (PEM) of the client certificate."""
    server_public_key: FolderPath | None = setting("sluice.instance.serverPublicKey", None)
    """File of the source's RSA public key (PEM), which the password of a `caching_sha2_password` or `sha256_password`
    account is encrypted with on a connection without TLS: `public_key.pem` in its data folder, or what `SHOW STATUS
    LIKE 'Caching_sha2_password_rsa_public_key'` shows."""
    slave_id: int = setting("canal.instance.mysql.slaveId", 0, ge=0, lt=1 << 32)
    """Server id that Sluice has as a replica. No other replica of the source may have it; 0 generates one."""
    so_timeout: int = setting("canal.instance.network.soTimeout", 30, unit="s", ge=1, le=86400)
    """Silence of the source, heartbeats included, after which a new connection takes the place of this one."""
    login_timeout: float = setting("sluice.instance.login.timeout", 10.0, unit="s", ge=0.1, le=3600)
    """How long a login at the source may take, from the connection to the first statement."""
    login_bytes: int = setting("sluice.instance.login.maxBytes", 1 << 20, unit="bytes", ge=1 << 12, le=1 << 30)
    """How much the source may send meanwhile."""
    answer_timeout: float = setting("sluice.instance.answer.timeout", 300.0, unit="s", ge=0.1, le=86400)
    """How long the whole answer to one question about tables, binlog files and the like may take."""
    answer_bytes: int = setting("sluice.instance.answer.maxBytes", 16 << 20, unit="bytes", ge=1 << 16, le=1 << 30)
    """How much such an answer may have. A list of all tables has about 60 bytes for each."""
    event_bytes: int = setting("sluice.instance.event.maxBytes", 1 << 30, unit="bytes", ge=1 << 16, le=1 << 30)
    """How long an event of the binlog may be, inflated if it was compressed; a longer one stops the destination.
    Servers send up to 1 GiB. `max_allowed_packet` limits a value, not an event: an UPDATE holds all columns twice."""
    binlog_format: Annotated[tuple[Literal["ROW", "STATEMENT", "MIXED"], ...], BeforeValidator(_items)] = setting(
        "canal.instance.binlog.format", ("ROW",), min_length=1
    )
    """Values of the source's `binlog_format` that are accepted. Only ROW writes every change as rows."""
    binlog_image: Annotated[tuple[Literal["FULL", "MINIMAL", "NOBLOB"], ...], BeforeValidator(_items)] = setting(
        "canal.instance.binlog.image", ("FULL", "MINIMAL", "NOBLOB"), min_length=1
    )
    """Values of the source's `binlog_row_image` that are accepted."""

    # Where to begin, when no client has a cursor yet.

    gtid_on: bool = setting("canal.instance.gtidon", default=False)
    """Ask the source for changes by GTID set instead of by file and offset."""
    master_journal_name: str | None = setting("canal.instance.master.journal.name", None)
    """Binlog file to begin in. Empty, with no timestamp and no GTID set: begin at the source's current end."""
    master_position: Above0 = setting("canal.instance.master.position", None, ge=0, lt=1 << 63, unit="bytes")
    """Offset in the file at which to begin; empty is the beginning of the file."""
    master_timestamp: Above0 = setting("canal.instance.master.timestamp", None, ge=0, le=LATEST, unit="ms")
    """Begin with the first transaction at or after this Unix time."""
    master_gtid: str | None = setting("canal.instance.master.gtid", None)
    """Begin after this GTID set; needs `canal.instance.gtidon`."""
    auto_reset_latest_pos_mode: bool = setting("canal.auto.reset.latest.pos.mode", default=False)
    """When the source has purged the binlog at the cursors of all clients, go on at its current end and lose what lies
    between, instead of stopping with an error. Of several clients, one whose place alone is purged gets an error, and
    so does any whose place is of another source or history."""

    # Filters.

    filter_regex: TableFilterText = setting("canal.instance.filter.regex", r".*\..*")
    """Tables to read: regular expressions, separated by commas, that match the whole of `schema.table`, in any case of
    letters. A backslash is doubled in a properties file. [Filters](http.md#filters) says what they may hold."""
    filter_black_regex: TableFilterText = setting("canal.instance.filter.black.regex", "")
    """Tables not to read, although `filter.regex` matches them."""
    filter_field: FieldFilterText = setting("canal.instance.filter.field", "")
    """Columns to deliver, of tables where not all are wanted: `shop.orders:id/total,shop.items:id`."""
    filter_black_field: FieldFilterText = setting("canal.instance.filter.black.field", "")
    """Columns not to deliver, in the same form."""
    filter_rows: bool = setting("canal.instance.filter.rows", default=False)
    """Drop all changes of rows."""
    filter_query_dcl: bool = setting("canal.instance.filter.query.dcl", default=False)
    """Drop GRANT, REVOKE, CREATE USER and their like."""
    filter_query_dml: bool = setting("canal.instance.filter.query.dml", default=False)
    """Drop INSERT, UPDATE and DELETE that were logged as text."""
    filter_query_ddl: bool = setting("canal.instance.filter.query.ddl", default=False)
    """Drop CREATE, ALTER, DROP and their like."""
    filter_dml_insert: bool = setting("canal.instance.filter.dml.insert", default=False)
    """Drop inserted rows."""
    filter_dml_update: bool = setting("canal.instance.filter.dml.update", default=False)
    """Drop updated rows."""
    filter_dml_delete: bool = setting("canal.instance.filter.dml.delete", default=False)
    """Drop deleted rows."""
    filter_transaction_entry: bool = setting("canal.instance.filter.transaction.entry", default=False)
    """Drop the entries that begin and end transactions, but for one in 8192 and one in 5 s, so that cursors move on."""
    filter_table_error: bool = setting("canal.instance.filter.table.error", default=False)
    """Drop changes of tables that no longer exist or whose columns do not fit, instead of reporting them."""

    # How changes are written.

    strict_canal: bool = setting("canal.instance.parser.strictCanal", default=False)
    """Write every value exactly as Canal does, its mistakes included (see "Deviations from Canal"); and over Canal's
    protocol let a get wait for a full batch."""
    time_zone: Annotated[str | None, AfterValidator(_zone)] = setting("sluice.instance.timeZone", None)
    """Time zone that TIMESTAMP values are written in, such as `Asia/Shanghai` or `+08:00`. Empty is that of the
    process, as in Canal."""
    quarantine: bool = setting("sluice.instance.quarantine", default=True)
    """What happens to a row event that cannot be decoded: `true` puts a marker in its place and goes on, `false` stops
    the destination."""

    # The ring.

    memory_buffer_size: int = setting("canal.instance.memory.buffer.size", 16384, ge=2, le=1 << 24, unit="entries")
    """Entries that the ring holds; a power of two."""
    memory_buffer_memunit: int = setting("canal.instance.memory.buffer.memunit", 1024, ge=1, le=1 << 30, unit="bytes")
    """Size of the unit in which MEMSIZE counts. The ring holds at most `buffer.size` units."""
    memory_batch_mode: Annotated[BatchMode, BeforeValidator(_upper)] = setting(
        "canal.instance.memory.batch.mode", BatchMode.MEMSIZE
    )
    """What `batchSize` counts: MEMSIZE units of memory, ITEMSIZE entries."""
    get_ddl_isolation: bool = setting("canal.instance.get.ddl.isolation", default=False)
    """Deliver every DDL in a batch of its own."""

    # Subscriptions and cursors.

    shared_filter: bool = setting("sluice.instance.sharedFilter", default=False)
    """Canal's rule for filters: that of the last client to subscribe with one takes the place of `filter.regex`, for
    all clients, from then on. Else each client has its own, which narrows `filter.regex`."""
    detach_after: int = setting("sluice.instance.detachAfter", 300, ge=0, le=31_536_000, unit="s")
    """How long one of several clients may hold a full ring back. When another has confirmed all that it holds, or waits
    for what comes after, each of the others has to confirm as much before the source has waited for that long; else
    it leaves the ring and reads by a catch-up reader. A little now and then is not enough. 0 lets it hold the others
    back for ever."""
    client_expiry: int = setting("sluice.instance.clientExpiry", 0, ge=0, le=315_360_000, unit="s")
    """How long a client may make no call before it is removed, with its cursor. 0 keeps it for ever. A client that says
    `expireAfter` when it subscribes has its own time, as `sluice tail` does."""
    catch_up_readers: int = setting("sluice.instance.catchUp.readers", 2, ge=0, le=64)
    """How many parsers may at most read the source again for what is no longer in the ring, each with a server id and a
    ring of its own. Clients that are behind the ring, and ranges, take turns; one that makes no call gets none. 0
    forbids it: a client that is behind the ring is `gone`."""
    meta: Annotated[MetaKind, BeforeValidator(_lower)] = setting("sluice.instance.meta", MetaKind.FILE)
    """Where subscriptions and cursors are kept: `file` survives a restart, `memory` does not. With `canal.zkServers`
    the default is `zookeeper`: an ack is answered when it is durable there, those that come meanwhile share the next
    write. `mixed` writes them as they come, and `period` each `canal.zookeeper.flush.period`; neither lets an ack wait,
    so that what was acked last can come again from another server. When not given, Canal's
    `canal.instance.global.spring.xml` says it: `file-instance.xml`, `memory-instance.xml`, or
    `default-instance.xml` for `period`."""
    log_position: Annotated[Literal["failback", "parse"], BeforeValidator(_lower)] = setting(
        "sluice.instance.logPosition", "failback"
    )
    """Where the source is read from. `failback`: from the smallest cursor of a client, and without any from where the
    configuration says, as with Canal's shipped files. `parse`: a place is kept too, which counts when no client has a
    cursor: Canal's node `parse` in ZooKeeper, or `parse.dat` beside `meta.dat`."""
    file_data_dir: FolderPath = setting("canal.file.data.dir", Path())
    """Folder of `<destination>/meta.dat`. Empty, and `../conf` as in Canal's own files, are the folder of
    `canal.properties`."""
    file_flush_period: int = setting("canal.file.flush.period", 1000, ge=1, le=86_400_000, unit="ms")
    """How often changed cursors are written to the file."""
    zookeeper_flush_period: int = setting("canal.zookeeper.flush.period", 1000, ge=1, le=86_400_000, unit="ms")
    """How often changed cursors are written to ZooKeeper, where no ack waits for that."""

    @property
    def flush_period(self) -> float:
        """Seconds between two writes of cursors that nobody waits for."""
        milliseconds = self.zookeeper_flush_period if self.meta.is_shared else self.file_flush_period
        return milliseconds / 1000

    def table_filter(self) -> TableFilter:
        """Compile the filter of tables."""
        return TableFilter(self.filter_regex, self.filter_black_regex)

    def field_filter(self) -> FieldFilter:
        """Compile the filter of columns."""
        return FieldFilter(self.filter_field, self.filter_black_field)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.memory_buffer_size & (self.memory_buffer_size - 1):
            below = 1 << (self.memory_buffer_size.bit_length() - 1)
            raise ValueError(
                f"canal.instance.memory.buffer.size has to be a power of two, such as {below} or {2 * below},"
                f" not {self.memory_buffer_size}"
            )
        if self.master_position and not self.master_journal_name:
            raise ValueError(
                "canal.instance.master.position needs canal.instance.master.journal.name, the file it is in"
            )
        if self.master_gtid and not self.gtid_on:
            raise ValueError("canal.instance.master.gtid needs canal.instance.gtidon = true")
        if (self.ssl_cert is None) != (self.ssl_key is None):
            raise ValueError("sluice.instance.sslCert and sluice.instance.sslKey belong together; give both or neither")
        if self.ssl_mode is SslMode.DISABLED and (self.ssl_ca or self.ssl_cert):
            raise ValueError(
                "certificates are configured, but canal.instance.master.sslMode is DISABLED; set it to VERIFY_CA or"
                " VERIFY_IDENTITY"
            )
        if self.server_public_key and self.ssl_mode is not SslMode.DISABLED:
            raise ValueError(
                "sluice.instance.serverPublicKey is for a connection without TLS, the only one on which servers take a"
                " password that is encrypted with it: leave it out, or set canal.instance.master.sslMode to DISABLED"
            )
        return self
