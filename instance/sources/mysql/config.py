"""The settings of MySQL or MariaDB as a source. Keys that begin with ``canal.`` mean what they mean in Canal."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, PrivateAttr, SecretStr, model_validator

from ....login.ssl_mode import SslMode, tls_options
from ....protocol.errors import FilterError
from ...config import InstanceConfig, Probing, is_host, lower, upper
from ...meta.base import InUse
from ...settings import FolderPath, setting
from .grouping import Grouping

DEFAULT_PORT = 3306
LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""
HISTORY = 5
"""Raised when the same statements make other tables than before."""
MS_A_YEAR = 31_556_952_000
LIKELY_SECONDS = 10**11
"""A time in ms below it is of a year before MySQL, and a time of our century in seconds."""

# Names of charsets that MySQL spells differently.
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


class HistoryUrl(NamedTuple):
    """A database of MySQL or MariaDB for the history of tables."""

    address: Address
    database: str
    tls: dict[str, Any]
    """See `tls_options`."""


def parse_history_url(value: Any) -> Any:
    """``jdbc:mysql://host:port/database?…`` as a HistoryUrl; None for an embedded database of Canal, and no text."""
    if not isinstance(value, str):
        return value
    if not value or value.startswith("jdbc:h2:"):
        return None
    url = re.fullmatch(r"jdbc:(?:mysql|mariadb)://([^/?]*)/([^/?]+)(?:\?(.*))?", value)
    if url is None:  # without the text, in which a password may be
        raise ValueError("write jdbc:mysql://host:port/database?sslMode=VERIFY_IDENTITY, or leave it empty for a file")
    options = (url[3] or "").split("&")  # most are for a driver of Java
    tls = tls_options("&".join(it for it in options if it.startswith(("ssl", "serverPublicKey"))))
    mode = SslMode.DISABLED if "useSSL=false" in options else SslMode.PREFERRED
    return HistoryUrl(parse_address(url[1]), unquote(url[2]), {"ssl_mode": mode, **tls})


def _items(value: Any) -> Any:
    return [item.strip().upper() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _charset(value: str) -> str:
    return JAVA_CHARSETS.get(value.lower(), value.lower())


def _zero_is_none(value: int | None) -> int | None:
    return value or None


def _grouping(value: str) -> str:
    try:
        Grouping(value)
    except FilterError as error:
        raise ValueError(str(error)) from None
    return value


AddressText = Annotated[Address, BeforeValidator(parse_address)]
GroupingText = Annotated[str, AfterValidator(_grouping)]
HistoryUrlText = Annotated[HistoryUrl | None, BeforeValidator(parse_history_url)]
Above0 = Annotated[int | None, AfterValidator(_zero_is_none)]


class BinlogConfig(InstanceConfig):
    """What a server and a folder of files have in common as sources of a binlog."""

    # Reading the binlog.

    connection_charset: Annotated[str, AfterValidator(_charset)] = setting(
        "canal.instance.connectionCharset", "UTF-8", shapes=True
    )
    """Charset for texts under `strictCanal`. Otherwise Sluice uses the charset of each column. The name is one of Java
    or MySQL."""
    event_bytes: int = setting("sluice.instance.event.maxBytes", 1 << 30, unit="bytes", ge=1 << 16, le=1 << 30)
    """Maximum size of a binlog event, after decompression. A larger event stops the destination. Servers send up to 1
    GiB. `max_allowed_packet` limits a value, not an event: an UPDATE holds all columns twice."""
    group_as: GroupingText = setting("sluice.group.as", "", shapes=True)
    """Split tables to deliver as one: `shop.orders: orders_[0-9]+; shop.items: shop_[0-9]+\\\\.items`. Each name stands
    for the tables that the regular expression behind it matches. Without a schema it matches tables in the schema of
    the name. Columns must agree, otherwise Sluice puts the rows of the table that differs into quarantine ([split
    tables](howto/split-tables.md))."""

    # Table history, for sources that do not write column names into the binlog.

    tsdb_enable: bool = setting("canal.instance.tsdb.enable", default=True, shapes=True)
    """Keep the history of all tables, so that Sluice reads old rows with the columns of their time. A source with
    `binlog_row_metadata = FULL` sends the column names itself. Sluice then keeps no history, except which columns of
    MariaDB are UUID, INET4, INET6, BINARY(16) and BINARY(4). For binlog files it always keeps the history."""
    tsdb_dir: FolderPath | None = setting("canal.instance.tsdb.dir", None)
    """Folder that contains `<destination>/schema.db`. If the folder has the name of the destination, `schema.db` is
    directly in it, as in Canal's own files. Empty means the folder of `meta.dat`."""
    tsdb_url: HistoryUrlText = setting("canal.instance.tsdb.url", None)
    """Database for the history, for servers that share destinations:
    `jdbc:mysql://host:port/database?sslMode=VERIFY_IDENTITY`. Sluice creates its tables `schema_…` there. `sslMode` has
    the meaning of MySQL's Java driver; the default is `PREFERRED`. `&sslCa=FILE` names the CA certificates (PEM).
    Empty, or `jdbc:h2:…` as in Canal's own files, means that each server uses its file `schema.db`."""
    tsdb_username: str = setting("canal.instance.tsdb.dbUsername", "")
    """Account on that database. It needs CREATE, SELECT, INSERT, UPDATE and DELETE there."""
    tsdb_password: SecretStr = setting("canal.instance.tsdb.dbPassword", SecretStr(""))
    """Password of the account."""
    tsdb_snapshot_expire: int = setting("canal.instance.tsdb.snapshot.expire", 360, ge=0, le=876_000, unit="h")
    """How long Sluice retains a part of the history after the stream has passed it. 0 retains it forever."""

    # Start position, if no client has a cursor yet.

    gtid_on: bool = setting("canal.instance.gtidon", default=False, shapes=True)
    """Request changes from the server by GTID set instead of by file and offset. Entries then carry the GTID of their
    transaction. This holds for binlog files, too."""
    master_journal_name: str | None = setting("canal.instance.master.journal.name", None)
    """Binlog file to start in. If you set neither this, nor a timestamp, nor a GTID set, Sluice starts at the current
    end of a server, or with the oldest file of a folder."""
    master_position: Above0 = setting("canal.instance.master.position", None, ge=0, lt=1 << 63, unit="bytes")
    """Offset in the file to start at. Empty means the beginning of the file."""
    master_timestamp: Above0 = setting("canal.instance.master.timestamp", None, ge=0, le=LATEST, unit="ms")
    """Start with the first transaction at or after this Unix time."""
    master_gtid: str | None = setting("canal.instance.master.gtid", None)
    """Start after this GTID set. Needs `canal.instance.gtidon`."""

    _is_reader: bool = PrivateAttr(default=False)

    @property
    def is_reader(self) -> bool:
        """Whether it is for a parser that reads again what the destination's own has read."""
        return self._is_reader

    @property
    def accepted(self) -> str:
        """Transactions that the source may lack although they were delivered: see `InUse.accepted`."""
        return ""

    @property
    def history_folder(self) -> Path:
        """Where the history of the tables is."""
        folder = self.tsdb_dir or self.file_data_dir / self.destination
        return folder if folder.name == self.destination else folder / self.destination

    @property
    def history_seconds(self) -> float:
        """How long a part of that is kept; 0 for ever."""
        return self.tsdb_snapshot_expire * 3600.0

    def warnings(self) -> list[str]:
        """See `InstanceConfig.warnings`."""
        time = self.master_timestamp
        if not time or time >= LIKELY_SECONDS:
            return []
        year = 1970 + time // MS_A_YEAR
        return [
            f"canal.instance.master.timestamp = {time} is in {year}, for it counts milliseconds; is {time}000 meant?"
        ]

    def shape(self) -> dict[str, Any]:
        """See `InstanceConfig.shape`."""
        found = {**super().shape(), "schema history": HISTORY}
        if not self.group_as:  # as in the logs of versions that do not know it
            del found["sluice.group.as"]
        return found

    def grouping(self) -> Grouping:
        """Read which tables are delivered as one."""
        return Grouping(self.group_as)

    def for_reader(self) -> Self:
        """See `InstanceConfig.for_reader`."""
        copy = super().for_reader()
        copy._is_reader = True  # noqa: SLF001  of its own class
        return copy

    def beside(self, folder: Path) -> Self:
        """See `InstanceConfig.beside`; the history of the tables is read where it is."""
        return super().beside(folder).model_copy(update={"tsdb_dir": self.history_folder})

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        if self.master_position and not self.master_journal_name:
            raise ValueError(
                "canal.instance.master.position needs canal.instance.master.journal.name, the file it is in"
            )
        if self.master_gtid and not self.gtid_on:
            raise ValueError("canal.instance.master.gtid needs canal.instance.gtidon = true")
        return self

    @model_validator(mode="after")
    def _check_grouping(self) -> Self:
        passes = self.table_filter().accepts
        for name in self.grouping().names:
            if not passes(*name):
                raise ValueError(
                    f"canal.instance.filter.regex has to let {'.'.join(name)} pass, under which sluice.group.as"
                    " delivers other tables: clients choose it by this name"
                )
        return self


class MysqlConfig(BinlogConfig):
    """The configuration of a destination whose source is MySQL or MariaDB."""

    source_title: ClassVar[str] = "MySQL or MariaDB"

    source: Annotated[Literal["mysql"], BeforeValidator(lower)] = setting("sluice.instance.source", "mysql")

    _accepted: str = PrivateAttr(default="")

    # The source.

    master_address: AddressText = setting("canal.instance.master.address")
    """Address of the MySQL or MariaDB server to read: `host:port` or `[IPv6 address]:port`."""
    db_username: str = setting("canal.instance.dbUsername", min_length=1)
    """Account on the source. It needs the privileges REPLICATION SLAVE, REPLICATION CLIENT and SELECT."""
    db_password: SecretStr = setting("canal.instance.dbPassword", SecretStr(""))
    """Password of the account."""
    default_database_name: str = setting("canal.instance.defaultDatabaseName", "")
    """Database that the connection selects. Empty selects none."""
    ssl_mode: Annotated[SslMode, BeforeValidator(upper)] = setting("canal.instance.master.sslMode", SslMode.DISABLED)
    """Encryption of the connection to the source. VERIFY_CA verifies the signature of its certificate. VERIFY_IDENTITY
    also verifies the host name. PREFERRED and REQUIRED verify nothing. They protect neither the password nor the
    changes from another server that answers instead of the source."""
    ssl_ca: FolderPath | None = setting("sluice.instance.sslCa", None)
    """PEM file of the CA certificates that may have signed the source's certificate. Empty means the system's."""
    ssl_cert: FolderPath | None = setting("sluice.instance.sslCert", None)
    """PEM file of the client certificate to present to the source."""
    ssl_key: FolderPath | None = setting("sluice.instance.sslKey", None)
    """PEM file of the private key of the client certificate."""
    server_public_key: FolderPath | None = setting("sluice.instance.serverPublicKey", None)
    """PEM file of the source's RSA public key. It encrypts the password of a `caching_sha2_password` or
    `sha256_password` account on a connection without TLS. Find it as `public_key.pem` in the source's data folder, or
    with `SHOW STATUS LIKE 'Caching_sha2_password_rsa_public_key'`."""
    slave_id: int = setting("canal.instance.mysql.slaveId", 0, ge=0, lt=1 << 32)
    """Sluice's server id as a replica. No other replica of the source may have it. 0 generates one."""
    binlog_format: Annotated[tuple[Literal["ROW", "STATEMENT", "MIXED"], ...], BeforeValidator(_items)] = setting(
        "canal.instance.binlog.format", ("ROW",), min_length=1
    )
    """Accepted values of the source's `binlog_format`. Only ROW writes every change as rows."""
    binlog_image: Annotated[tuple[Literal["FULL", "MINIMAL", "NOBLOB"], ...], BeforeValidator(_items)] = setting(
        "canal.instance.binlog.image", ("FULL", "MINIMAL", "NOBLOB"), min_length=1
    )
    """Accepted values of the source's `binlog_row_image`."""

    # A second server with the same data.

    standby_address: AddressText | None = setting("canal.instance.standby.address", None)
    """Address of a second server that Sluice can read instead of the source ([failover of the
    source](operations.md#failover-of-the-source)). It is a replica of the source, or the other server of a pair that
    replicate each other. Account, password and TLS are the same."""
    standby_journal_name: str | None = setting("canal.instance.standby.journal.name", None)
    """Like `canal.instance.master.journal.name`, for the standby. Sluice uses it if it reads the standby and no client
    has a cursor yet."""
    standby_position: Above0 = setting("canal.instance.standby.position", None, ge=0, lt=1 << 63, unit="bytes")
    """Offset in that file."""
    standby_timestamp: Above0 = setting("canal.instance.standby.timestamp", None, ge=0, le=LATEST, unit="ms")
    """Like `canal.instance.master.timestamp`, for the standby."""
    standby_gtid: str | None = setting("canal.instance.standby.gtid", None)
    """Like `canal.instance.master.gtid`, for the standby."""
    detecting_enable: bool = setting("canal.instance.detecting.enable", default=False)
    """Run a periodic health check of the source, over its own connection."""
    detecting_sql: str = setting("canal.instance.detecting.sql", "select 1", min_length=1)
    """Statement of the health check. The source replicates a statement that writes, so Sluice delivers it, too."""
    detecting_interval: int = setting("canal.instance.detecting.interval.time", 3, ge=1, le=86_400, unit="s")
    """Interval between two health checks. It is also the timeout of each check, so that a server that hangs counts as
    dead."""
    detecting_retry_threshold: int = setting("canal.instance.detecting.retry.threshold", 3, ge=0, le=10_000)
    """Number of consecutive failures that Sluice tolerates. After one more, the source counts as dead."""
    fallback_interval: int = setting("canal.instance.fallbackIntervalInSeconds", 60, ge=0, le=86_400, unit="s")
    """For a failover without GTIDs. Sluice searches the other server's binlog from this long before the last
    transactions that it has read."""
    heartbeat_ha_enable: bool = setting("canal.instance.detecting.heartbeatHaEnable", default=False)
    """Read the other server when the source counts as dead. Sluice switches only if it can prove that the switch
    neither loses nor repeats changes. Needs `detecting.enable` and `standby.address`. Without it, Sluice only reports
    in the log and in `sluice status` that the source does not answer."""

    # Limits of a connection to the source.

    so_timeout: int = setting("canal.instance.network.soTimeout", 30, unit="s", ge=1, le=86400)
    """Sluice opens a new connection after the source has sent nothing for this long, not even heartbeats."""
    login_timeout: float = setting("sluice.instance.login.timeout", 10.0, unit="s", ge=0.1, le=3600)
    """Timeout for a login at the source, from the connection to the first statement."""
    login_bytes: int = setting("sluice.instance.login.maxBytes", 1 << 20, unit="bytes", ge=1 << 12, le=1 << 30)
    """Maximum number of bytes that the source may send during a login."""
    answer_timeout: float = setting("sluice.instance.answer.timeout", 300.0, unit="s", ge=0.1, le=86400)
    """Timeout for the whole answer to one query about tables, binlog files and the like."""
    answer_bytes: int = setting("sluice.instance.answer.maxBytes", 16 << 20, unit="bytes", ge=1 << 16, le=1 << 30)
    """Maximum size of such an answer. A list of all tables has about 60 bytes for each table."""

    @property
    def address(self) -> Address:
        """See `InstanceConfig.address`."""
        return self.master_address

    @property
    def in_use(self) -> str:
        """See `InstanceConfig.in_use`."""
        return "" if self.standby_address is None else str(self.master_address)

    @property
    def others(self) -> Sequence[str]:
        """See `InstanceConfig.others`."""
        return () if self.standby_address is None else (str(self.standby_address),)

    @property
    def probing(self) -> Probing | None:
        """See `InstanceConfig.probing`."""
        if not self.detecting_enable or self.is_reader:
            return None
        switches = self.heartbeat_ha_enable and self.standby_address is not None
        return Probing(self.detecting_interval, self.detecting_retry_threshold, switches)

    @property
    def accepted(self) -> str:
        """Transactions that the source may lack although they were delivered: see `InUse.accepted`."""
        return self._accepted

    def using(self, found: InUse | None) -> Self:
        """See `InstanceConfig.using`: the standby becomes the master, with its own place to begin at."""
        found = None if found is None else found.of(self.was)
        if found is None or found.address not in (self.in_use, *self.others):
            return self
        fields = [name for name in type(self).model_fields if name.startswith("standby_")]
        names = {name: name.replace("standby", "master") for name in fields}
        swapped = {name: getattr(self, other) for name, other in [*names.items(), *((b, a) for a, b in names.items())]}
        copy = self.model_copy(update=swapped if found.address != self.in_use else {})
        copy._accepted = found.accepted  # noqa: SLF001  of its own class
        return copy

    def warnings(self) -> list[str]:
        """See `InstanceConfig.warnings`."""
        found = super().warnings()
        if self.heartbeat_ha_enable and self.detecting_enable and self.standby_address is None:
            found.append(
                "canal.instance.detecting.heartbeatHaEnable has no effect without canal.instance.standby.address"
            )
        if self.heartbeat_ha_enable and not self.detecting_enable and self.standby_address is not None:
            found.append(
                "canal.instance.detecting.heartbeatHaEnable has no effect without canal.instance.detecting.enable ="
                " true: there is no health check"
            )
        return found

    @property
    def place(self) -> str:
        """See `InstanceConfig.place`."""
        return f"{self.master_address} as {self.db_username}"

    def for_reader(self) -> Self:
        """See `InstanceConfig.for_reader`; the parser generates a server id of its own."""
        return super().for_reader().model_copy(update={"slave_id": 0})

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.standby_address == self.master_address:
            raise ValueError("canal.instance.standby.address is that of canal.instance.master.address; leave it out")
        if self.standby_position and not self.standby_journal_name:
            raise ValueError("canal.instance.standby.position needs canal.instance.standby.journal.name")
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
