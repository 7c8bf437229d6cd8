"""What can be configured of the server itself."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from ...instance.config import DESTINATION_NAME, is_host, lower, upper
from ...instance.settings import FolderPath, Settings, setting
from ...protocol.errors import ConfigError
from ..logging import LogFormat, LogLevel
from ..processes import MOST

MOST_DESTINATIONS = 10_000
NAMES_HAVE = "has up to 200 letters, digits, '.', '_' and '-', and begins with a letter or digit"


def _names(value: Any) -> Any:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise ValueError(f"{text!r} is neither an address nor a network such as 10.0.0.0/8") from None
    return value


def _host(value: str) -> str:
    if value and not is_host(value):
        raise ValueError(f"{value[:200]!r} is not the name or address of a host")
    return value


def _hosts(value: str) -> str:
    hosts, _, path = value.partition("/")
    if set(path) & set(",;:"):
        raise ValueError("a path is given once, after the last host: host:port,host:port/path")
    for host in hosts.replace(";", ",").split(",") if value else ():
        try:
            parts = urlsplit(f"//{host.strip()}")
            usable = is_host(parts.hostname or "") and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(f"{host!r} is not host:port")
    return value


def _password_hash(value: SecretStr) -> SecretStr:
    if value.get_secret_value() and not re.fullmatch("[0-9A-Fa-f]{40}", value.get_secret_value()):
        raise ValueError(
            "has to be the SHA-1 of the password's SHA-1, 40 hexadecimal digits, as SELECT SHA1(UNHEX(SHA1('...')))"
            " makes it"
        )
    return value


def expand(expression: str) -> tuple[str, ...]:
    """Return the names that ``prefix{a-b}`` stands for: prefixa to prefixb."""
    match = re.fullmatch(r"(.*)\{\s*([0-9]{1,9})\s*-\s*([0-9]{1,9})\s*\}", expression)
    if match is None or int(match[3]) < int(match[2]):
        raise ValueError(
            f"{expression[:200]!r} is not a range; write prefix{{1-4}} for prefix1, prefix2, prefix3, prefix4"
        )
    if int(match[3]) - int(match[2]) >= MOST_DESTINATIONS:
        raise ValueError(f"{expression[:200]!r} names more than {MOST_DESTINATIONS} destinations")
    return tuple(f"{match[1]}{number}" for number in range(int(match[2]), int(match[3]) + 1))


class ServerConfig(Settings):
    """The configuration of the server."""

    # Destinations.

    destinations: Annotated[tuple[str, ...], BeforeValidator(_names)] = setting(
        "canal.destinations", (), max_length=MOST_DESTINATIONS
    )
    """Names of the destinations to start, separated by commas. Each has a folder with an `instance.properties`."""
    destinations_expr: str = setting("canal.destinations.expr", "")
    """A range of names, instead of `canal.destinations`: `shard{1-16}`."""
    conf_dir: FolderPath = setting("canal.conf.dir", Path())
    """Folder that holds the destinations' folders. If it is empty, or `../conf` as in Canal's own files, Sluice uses
    the folder of `canal.properties`."""
    auto_scan: bool = setting("canal.auto.scan", default=False)
    """Watch the configuration folder. Sluice starts destinations whose file appears and stops destinations whose file
    is gone. It restarts a destination only if the change affects what it reads, and applies changes of its outputs."""
    auto_scan_interval: float = setting("canal.auto.scan.interval", 5.0, unit="s", ge=0.01, le=86400)
    """Interval between two scans of the folder."""
    instance_mode: Annotated[Literal["spring"], BeforeValidator(lower)] = setting(
        "canal.instance.global.mode", "spring"
    )
    """Where the settings of destinations come from. `spring` means files. Sluice does not support Canal's admin
    server."""
    server_mode: Annotated[Literal["tcp", "kafka", "rocketmq", "rabbitmq", "pulsarmq"], BeforeValidator(lower)] = (
        setting("canal.serverMode", "tcp")
    )
    """Who takes the changes. `tcp`: clients fetch them. `kafka`: each destination sends them to Kafka as its client
    1001, and Sluice does not open `canal.port`. Sluice does not implement Canal's other modes: the changes wait until a
    client fetches them."""

    # The HTTP API.

    http_host: Annotated[str, AfterValidator(_host)] = setting("sluice.http.host", "127.0.0.1")
    """Address to listen on. To serve other hosts, set `0.0.0.0`, which needs a certificate and credentials."""
    http_port: int = setting("sluice.http.port", 11180, ge=0, lt=1 << 16)
    """Port to listen on. 0 takes any free port."""
    http_tls_cert: FolderPath | None = setting("sluice.http.tlsCert", None)
    """PEM file with the server's certificate and the intermediate certificates. Empty: no TLS. When the files change,
    new connections use their new content. If Sluice cannot use it, it logs an error."""
    http_tls_key: FolderPath | None = setting("sluice.http.tlsKey", None)
    """PEM file with the private key of the certificate."""
    http_credentials: FolderPath = setting("sluice.http.credentials", Path("credentials.json"))
    """File of the tokens and users, written by `sluice token` and `sluice user`. While it holds none, the API asks for
    none."""
    http_max_header: int = setting("sluice.http.maxHeader", 16 * 1024, ge=1 << 10, le=1 << 20, unit="bytes")
    """Maximum size of a request's header, including its URL."""
    http_max_url: int = setting("sluice.http.maxUrl", 8 * 1024, ge=256, le=1 << 20, unit="bytes")
    """Maximum size of a URL."""
    http_max_body: int = setting("sluice.http.maxBody", 1 << 20, ge=1 << 10, le=1 << 30, unit="bytes")
    """Maximum size of a request's body. For a call that needs no credentials the limit is 8192 bytes at most."""
    http_header_timeout: float = setting("sluice.http.headerTimeout", 10.0, gt=0, le=3600, unit="s")
    """Timeout for the header of a request, and for the TLS handshake before it."""
    http_request_timeout: float = setting("sluice.http.requestTimeout", 30.0, gt=0, le=3600, unit="s")
    """Timeout for a whole request to arrive. It does not limit the response."""
    http_proxies: Annotated[tuple[str, ...], BeforeValidator(_names), AfterValidator(_networks)] = setting(
        "sluice.http.proxies", ()
    )
    """Addresses or networks of reverse proxies in front of this server, separated by commas. Sluice trusts their
    `X-Forwarded-For`, so that it counts failed logins against the caller and not against the proxy."""
    insecure: bool = setting("sluice.http.insecure", default=False)
    """Listen for other hosts even without a certificate or credentials. This includes the port for Canal's clients.
    Everybody who reaches the server can then read every change."""

    # Canal's clients.

    tcp_host: Annotated[str, AfterValidator(_host)] = setting("canal.ip", "127.0.0.1")
    """Address to listen on for Canal's clients. Unlike in Canal, an empty value means the loopback address. To serve
    other hosts, set `0.0.0.0`, which needs `canal.user` and `canal.passwd`. The protocol has no encryption."""
    tcp_port: int = setting("canal.port", 11111, ge=0, lt=1 << 16)
    """Port to listen on for Canal's clients. 0 takes any free port."""
    without_netty: bool = setting("canal.withoutNetty", default=False)
    """Do not serve Canal's clients. Sluice then does not listen on `canal.port`."""
    tcp_user: str = setting("canal.user", "")
    """User name that Canal's clients have to send. Empty accepts any name."""
    tcp_passwd: Annotated[SecretStr, AfterValidator(_password_hash)] = setting("canal.passwd", SecretStr(""))
    """Hash of the password of Canal's clients, in Canal's format: the SHA-1 of its SHA-1, 40 hexadecimal digits.
    `SELECT SHA1(UNHEX(SHA1('…')))` computes it. Empty accepts any password."""
    tcp_max_frame: int = setting("sluice.tcp.maxFrame", 1 << 20, ge=1 << 10, lt=1 << 31, unit="bytes")
    """Maximum size of a request from a Canal client that has logged in."""
    tcp_max_first_frame: int = setting("sluice.tcp.maxFirstFrame", 16 * 1024, ge=1 << 10, le=1 << 20, unit="bytes")
    """Maximum size of a request from a Canal client that has not logged in yet."""
    tcp_login_timeout: float = setting("sluice.tcp.loginTimeout", 10.0, gt=0, le=3600, unit="s")
    """Timeout for the login of a Canal client."""
    get_linger: float = setting("sluice.get.linger", 5.0, ge=0, le=3_600_000, unit="ms")
    """How long a get with a timeout waits for a full batch once there is an entry. Under `strictCanal` it waits for a
    full batch until the timeout, as in Canal."""

    # Several servers.

    zk_servers: Annotated[str, AfterValidator(_hosts)] = setting("canal.zkServers", "")
    """ZooKeeper servers, `host:port` separated by commas. Servers with the same ZooKeeper share their destinations:
    each destination is active on one server, and another server takes it over if that one fails. All servers need the
    same destinations. A path after the last host is the root of all nodes; it has to exist in ZooKeeper. Empty: a
    single server."""
    register_ip: Annotated[str, AfterValidator(_host)] = setting("canal.register.ip", "")
    """Address under which clients reach this server. Sluice writes it to ZooKeeper. Empty takes `canal.ip`."""
    session_timeout: float = setting("sluice.ha.sessionTimeout", 6.0, ge=0.1, le=3600, unit="s")
    """How long ZooKeeper waits for a silent server before other servers may take over its destinations. ZooKeeper
    limits the value, by default to 2 to 20 of its ticks."""

    # Logs.

    log_level: Annotated[LogLevel, BeforeValidator(upper)] = setting("sluice.log.level", LogLevel.INFO)
    """Lowest level of events that Sluice logs."""
    log_format: Annotated[LogFormat, BeforeValidator(lower)] = setting("sluice.log.format", LogFormat.TEXT)
    """Format of log lines. `text` is for people, `json` is one JSON object a line."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.http_tls_cert is None) != (self.http_tls_key is None):
            raise ValueError("sluice.http.tlsCert and sluice.http.tlsKey belong together; give both or neither")
        if self.tcp_user and not self.tcp_passwd.get_secret_value():
            raise ValueError("canal.user needs canal.passwd, or else the name alone lets a client in")
        if self.zk_servers and self.address[0] in ("0.0.0.0", "::"):  # noqa: S104  nothing is bound here
            raise ValueError(
                "canal.zkServers needs canal.register.ip, the address under which clients reach this server"
            )
        if self.zk_servers and not (self.tcp_port and self.http_port):
            raise ValueError(
                "canal.zkServers needs fixed ports, by which others know this server: set canal.port and"
                " sluice.http.port"
            )
        for name in self.names:
            if not re.fullmatch(DESTINATION_NAME, name):
                raise ValueError(
                    f"canal.destinations: {name[:200]!r} is not a name of a destination, which {NAMES_HAVE}"
                )
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port by which other servers, and Canal's clients, know this one."""
        return self.register_ip or self.tcp_host, self.tcp_port

    @property
    def url(self) -> str:
        """The URL by which other servers and clients know its HTTP API."""
        host = self.register_ip or self.http_host
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.http_tls_cert else 'http'}://{name}:{self.http_port}"

    def of_process(self, number: int) -> Self:
        """Return the configuration of a process of several: it has ports of its own, the given ones and up."""
        return self.model_copy(update={"http_port": self.http_port + number, "tcp_port": self.tcp_port + number})

    def require_processes(self, count: int) -> None:
        """Raise ConfigError unless there can be that many processes, each with ports of its own."""
        if not 1 <= count <= MOST:
            raise ConfigError(f"--processes {count}: there can be 1 to {MOST}")
        if count == 1:
            return
        if self.zk_servers:
            raise ConfigError(
                f"--processes {count}: canal.zkServers is set, by which several servers share the destinations: start"
                " one server for each core, with ports of its own, instead"
            )
        if self.register_ip == "" and self.http_host in ("0.0.0.0", "::"):  # noqa: S104  nothing is bound here
            raise ConfigError(
                f"--processes {count} needs canal.register.ip, the address under which clients are sent from process to"
                " process"
            )
        ports = {"sluice.http.port": self.http_port} | ({"canal.port": self.tcp_port} if self.serves_tcp else {})
        for key, port in ports.items():
            if port == 0 or port + count > 1 << 16:
                raise ConfigError(
                    f"--processes {count}: {key} = {port}: each process takes a port, this one and those after it;"
                    f" set one from 1 to {(1 << 16) - count}"
                )
        if len(ports) > 1 and abs(self.http_port - self.tcp_port) < count:
            raise ConfigError(
                f"--processes {count}: each process takes a port, and those from sluice.http.port = {self.http_port}"
                f" and from canal.port = {self.tcp_port} overlap: set them at least {count} apart"
            )

    @property
    def serves_tcp(self) -> bool:
        """Whether Canal's clients are served."""
        return not self.without_netty and self.server_mode != "kafka"

    @property
    def names(self) -> tuple[str, ...]:
        """The destinations to start."""
        return expand(self.destinations_expr) if self.destinations_expr else self.destinations
