"""What can be configured of the server, and the folder of files in which it and its destinations are configured."""

import contextlib
import ipaddress
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from ..instance.config import DESTINATION_NAME, InstanceConfig, is_host
from ..instance.properties import (
    Lookup,
    Property,
    is_service_link,
    nearest,
    read_properties,
    unknown,
    variables_of,
)
from ..instance.settings import FolderPath, Settings, setting
from ..instance.sources.kinds import CONFIGS
from ..instance.zones import has_daylight_saving
from ..protocol.errors import ConfigError, FencedError, FilterError, UnknownDestinationError
from .canal_keys import may_be_a_mistake, why_without_effect
from .logging import LogFormat, LogLevel, redactor
from .outputs.configured import RENAMED, possible, read_outputs, takes
from .outputs.registry import complaints
from .outputs.settings import Output, OutputNames
from .outputs.target import Complaints
from .processes import ALL, MOST, Share

Stamp = tuple[int, int, int]
"""When and what a file was: modification time in ns, size, inode."""
MAIN_FILE = "canal.properties"
INSTANCE_FILE = "instance.properties"
META_KEY = "sluice.instance.meta"
SOURCE_KEY = "sluice.instance.source"
ROUTE_KEY = "sluice.instance.route"
PLACEHOLDER = re.compile(r"\$\{([^:{}]+)")
KNOWN_PASSWORDS = {
    "e3619321c1a937c46a0d8bd1dac39f93b27d4458": "canal",
    "4acfe3202a5ff5cf467898fc58aab1d615029441": "admin",
    "6bb4837eb74329105ee4568dda7dc67ed2ca2ad9": "123456",
}
"""Passwords that are in Canal's own files, by the SHA-1 of their SHA-1."""
BEAN_KEY = re.compile(r"canal\.instance\.(?!tsdb\.)[^.]+\.spring\.xml")
ALIKE = 0.9
"""How much a key of a group without effect has to be like a key with one, to be taken for a mistake."""
MOST_DESTINATIONS = 10_000
NAMES_HAVE = "has up to 200 letters, digits, '.', '_' and '-', and begins with a letter or digit"
OTHER_VARIABLES = frozenset({"SLUICE_CONF", "SLUICE_MYSQL", "SLUICE_TOKEN", "SLUICE_TOKEN_FILE", "SLUICE_URL"})
"""Variables with our prefix that are not settings of the server."""


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


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
    instance_mode: Annotated[Literal["spring"], BeforeValidator(_lower)] = setting(
        "canal.instance.global.mode", "spring"
    )
    """Where the settings of destinations come from. `spring` means files. Sluice does not support Canal's admin
    server."""
    server_mode: Annotated[Literal["tcp", "kafka", "rocketmq", "rabbitmq", "pulsarmq"], BeforeValidator(_lower)] = (
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

    log_level: Annotated[LogLevel, BeforeValidator(_upper)] = setting("sluice.log.level", LogLevel.INFO)
    """Lowest level of events that Sluice logs."""
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = setting("sluice.log.format", LogFormat.TEXT)
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


INSTANCE_KEYS = dict.fromkeys(key for config in CONFIGS.values() for key in config.fields_by_key())
KEYS = (*ServerConfig.fields_by_key(), *INSTANCE_KEYS, *OutputNames.fields_by_key())
"""All keys that have an effect, but those of outputs, which have names of their own."""


class UnsupportedError(ConfigError):
    """A destination needs a part of Canal that Sluice does not have."""


class Configuration:
    """The files of a conf folder. Destinations' files are read when they are asked for, so that changes are seen."""

    def __init__(self, conf: Path, environ: Mapping[str, str], share: Share = ALL, **given: Any) -> None:
        """Read ``canal.properties`` of the folder ``conf``, or that file itself. Raises ConfigError.

        ``given`` are settings of the server by field name, which win. ``share`` says which of its processes this is.
        """
        self.main_file = conf / MAIN_FILE if conf.is_dir() else conf
        self.folder = self.main_file.parent
        if not self.main_file.is_file():
            raise ConfigError(f"{self.main_file} does not exist; name the folder that holds {MAIN_FILE} with --conf")
        self._environ = environ
        self._of_views: dict[str, tuple[Stamp | None, InstanceConfig, Mapping[str, Property]]] = {}
        """Destinations that have views, as their files were."""
        self._secrets: dict[str, set[Path]] = {}
        """The files with secrets that were read for each destination."""
        self._main = read_properties(self.main_file)
        given_keys = Lookup(self._main, environ=environ)(ServerConfig.fields_by_key())
        self._whole = ServerConfig.fill(given_keys, self.folder, **given)
        self.share = share
        self._mains: dict[str, str] = {}
        """The destinations that those of the folder are views of, or they themselves, as far as that was read."""
        self.server = self._whole.of_process(share.number)
        _hide_secrets(self.server)

    def instance_file(self, destination: str) -> Path:
        """Return where the settings of ``destination`` are, or would be."""
        return self.server.conf_dir / destination / INSTANCE_FILE

    def stamp(self, destination: str) -> tuple[Stamp | None, ...] | None:
        """Return when and what the file of a destination was, and those of its secrets; None if it has no file."""
        own = stamp_of(self.instance_file(destination))
        if own is None:
            return None
        return own, *map(stamp_of, sorted(self._secrets.get(destination, ())))

    def found(self) -> list[str]:
        """Return the destinations that have a file, sorted by name."""
        return sorted(file.parent.name for file in self.server.conf_dir.glob(f"*/{INSTANCE_FILE}"))

    def destinations(self) -> list[str]:
        """Return the destinations to start: those named and, when the folder is watched, those found in it.

        Of several processes it is those that this one has.
        """
        names = dict.fromkeys([*self.server.names, *(self.found() if self.server.auto_scan else ())])
        return [name for name in names if self.has(name)]

    def has(self, destination: str) -> bool:
        """Whether this process has a destination, if there is one of the name. Views are with their mains."""
        self._read_main(destination)
        return self._holder(destination) == self.share.number

    def _read_main(self, destination: str) -> None:
        """Read where a destination belongs, if there are several processes: it may be a view by now."""
        if self.share != ALL:
            with contextlib.suppress(ConfigError):  # it is not started then, and stays where it was
                route = _route(self._lookup(destination))
                self._mains[destination] = route.value if route is not None else destination

    def _holder(self, destination: str) -> int:
        return self.share.holder(self._mains.get(destination, destination))

    def require(self, destination: str) -> None:
        """Raise FencedError, with the URL of the process that has the destination, unless it is this one.

        It reads no file: of which destination it is a view is what was last read.
        """
        number = self._holder(destination)
        if number != self.share.number:
            raise FencedError(
                f"destination:{destination[:200]} belongs to process {number} of this server",
                self._whole.of_process(number).url,
            )

    def check(self) -> None:
        """Read all destinations to start. Raises one ConfigError with all mistakes.

        A destination that Canal could serve and Sluice cannot keeps no other from it.
        """
        mistakes = []
        for destination in self.destinations():
            try:
                self.instance(destination)
                self.outputs(destination)
            except UnsupportedError:
                continue  # the others can start; that this one cannot is said then
            except ConfigError as error:
                mistakes += [f"{destination}: {line}" for line in str(error).splitlines()]
        if mistakes:
            raise ConfigError("\n".join(mistakes))

    def instance(self, destination: str) -> InstanceConfig:
        """Read the settings of a destination: its own file over ``canal.properties``.

        Raises ConfigError; UnknownDestinationError when it is neither named in ``canal.properties`` nor has a file;
        FencedError when another process has it.
        """
        _check_name(destination)
        file = self.instance_file(destination)
        if destination not in self.server.names and not file.is_file():
            raise UnknownDestinationError(
                f"there is no destination {destination!r}: {file} does not exist, and canal.destinations does not name"
                " it"
            )
        self._read_main(destination)
        self.require(destination)
        lookup = self._lookup(destination)
        kind = _kind(lookup)
        route = _route(lookup)
        try:
            if route is not None:
                config = self._view(destination, route, lookup)
            else:
                config = kind.fill(lookup(kind.fields_by_key()), self.folder, destination=destination)
        except ConfigError as error:
            if file.is_file():
                raise
            raise ConfigError(f"{error}\n{file} does not exist: write it, or change canal.destinations") from None
        self._check_meta(config)
        _hide_secrets(config)
        return config

    def views_first(self, names: Iterable[str]) -> list[str]:
        """Return destinations in the order to start them: a main destination begins where the clients of its views are.

        What cannot be read is at the end.
        """

        def is_view(name: str) -> bool:
            with contextlib.suppress(ConfigError):
                return _route(self._lookup(name)) is not None
            return False

        return sorted(names, key=is_view, reverse=True)

    def _view(self, destination: str, route: Property, lookup: Lookup) -> InstanceConfig:
        """Read the settings of a view: its own, and those of its main destination. Raises ConfigError."""
        main, where = route.value, f"{route.origin}: {ROUTE_KEY}"
        if main == destination:
            raise ConfigError(f"{where}: a destination cannot be a view of itself: name another one, or remove the key")
        try:
            config, shared = self._main_of_views(main)
        except ConfigError as error:
            raise type(error)(f"{where}: {error}") from None
        except UnknownDestinationError as error:
            raise ConfigError(f"{where}: {error}") from None
        kind, file = type(config), self.instance_file(destination)
        own = kind.fields_with("of_view")
        given = read_properties(file) if file.is_file() else {}
        mistakes = [
            f"{item.origin}: {key} belongs to destination {main}, of which {destination} is a view: set it in"
            f" {self.instance_file(main)}, or leave it out"
            for key, item in given.items()
            if item.value and key in INSTANCE_KEYS and key not in own
        ]
        if config.shared_filter:
            mistakes.append(
                f"{where}: {main} has sluice.instance.sharedFilter = true, so that what is read for its views would"
                " depend on its clients: set that to false"
            )
        if mistakes:
            raise ConfigError("\n".join(mistakes))
        found = kind.fill({**shared, **lookup(own)}, self.folder, destination=destination).as_view(config)
        try:
            config.table_filter().narrow(found.filter_regex)
        except FilterError as error:
            raise ConfigError(f"{where}: canal.instance.filter.regex of {destination}: {error}") from None
        return found

    def _main_of_views(self, destination: str) -> tuple[InstanceConfig, Mapping[str, Property]]:
        """Return the settings of a destination, and the properties that its views share; read again when its file is.

        Raises as `instance`.
        """
        _check_name(destination)
        seen = stamp_of(self.instance_file(destination))
        known = self._of_views.get(destination)
        if known is not None and known[0] == seen:
            return known[1:]
        lookup = self._lookup(destination)
        if (route := _route(lookup)) is not None:  # it may lead back to here
            raise ConfigError(f"{destination} is itself a view, of {route.value}: name that one")
        config = self.instance(destination)
        keys = config.fields_by_key().keys() - config.fields_with("of_view").keys()
        self._of_views[destination] = seen, config, lookup(keys)
        return self._of_views[destination][1:]

    def outputs(self, destination: str) -> list[Output]:
        """Read the outputs of a destination. Raises ConfigError for a mistake in any of them."""
        outputs = self.outputs_as_found(destination)
        if mistakes := [it.mistake for it in outputs if it.mistake]:
            raise ConfigError("\n".join(mistakes))
        return outputs

    def outputs_as_found(self, destination: str) -> list[Output]:
        """Read the outputs of a destination, also those with a mistake, which they say.

        Raises ConfigError when it cannot be known which there are.
        """
        outputs = read_outputs(
            self._lookup(destination),
            self.instance(destination),
            self.folder,
            queue=self._queue,
            shared=bool(self.server.zk_servers),
        )
        return [it if it.mistake else _checked(it) for it in outputs]

    @property
    def _queue(self) -> bool:
        return self.server.server_mode == "kafka"

    def _check_meta(self, config: InstanceConfig) -> None:
        """Refuse to share destinations whose cursors only this server can see: that loses changes without a word."""
        if self.server.zk_servers and not config.meta.is_shared:
            raise ConfigError(
                f"canal.zkServers is set, but cursors are kept in {config.meta}, where other servers cannot see them:"
                " set sluice.instance.meta to zookeeper, or leave canal.zkServers empty"
            )
        if not self.server.zk_servers and config.meta.is_shared:
            raise ConfigError(f"cursors are to be kept in ZooKeeper ({config.meta}): set canal.zkServers")

    def understood(self) -> dict[str, list[str]]:
        """Return the keys of each file that have an effect and a value."""
        own = [file for file in map(self.instance_file, self.destinations()) if file.is_file()]
        outputs = self._output_names()
        found: dict[str, list[str]] = defaultdict(list)
        for properties in (self._main, *map(read_properties, own)):
            for key, item in properties.items():
                if item.value and (key in KEYS or BEAN_KEY.fullmatch(key) or self._is_of_outputs(key, outputs)):
                    found[item.origin.rpartition(":")[0]].append(key)
        return dict(found)

    def warnings(self) -> list[str]:
        """Name what is in files and environment and has no effect, each with its place and what to do about it."""
        files: dict[str | None, dict[str, Property]] = {None: self._main}
        for destination in sorted({*self.server.names, *self.found()}):
            if self.instance_file(destination).is_file():  # it need not exist
                files[destination] = read_properties(self.instance_file(destination))
        values = [item.value for properties in files.values() for item in properties.values()]
        referred = {key for value in values for key in PLACEHOLDER.findall(value)}
        outputs = self._output_names()
        without_effect: list[tuple[str, Property]] = []
        warnings = []
        known = {*KEYS, *(RENAMED if self._queue else ())}
        for name, properties in files.items():
            others = {
                key: item
                for key, item in properties.items()
                if key not in referred and not self._is_of_outputs(key, outputs)
            }
            doubtful = {key for key in others.keys() - known if may_be_a_mistake(key)}
            mistakes = {key: nearest(key, known, ALIKE) for key in sorted(doubtful)}
            without_effect += ((key, item) for key, item in others.items() if not mistakes.get(key))
            warnings += [f"{others[key].origin}: {unknown(key, [it])}" for key, it in mistakes.items() if it]
            warnings += self._unknown(others, name)
        return [
            *self.missing(),
            *_without_effect(without_effect),
            *warnings,
            *itertools.chain(*self.of_outputs()),
            *_variables(self._environ, possible(outputs)),
            *self._known_password(),
            *self._unreachable(),
            *self._ambiguous_zones(),
            *self._doubts(),
        ]

    def _unknown(self, properties: Mapping[str, Property], destination: str | None) -> list[str]:
        """Name the keys without effect in the file of a destination; None stands for the main file."""
        in_effect: Collection[str] = INSTANCE_KEYS
        if destination is not None:
            with contextlib.suppress(ConfigError):  # it is not started then
                in_effect = _kind(self._lookup(destination)).fields_by_key()
        warnings = []
        for key, item in properties.items():
            if key in in_effect or BEAN_KEY.fullmatch(key) or why_without_effect(key):
                continue
            if key in INSTANCE_KEYS:
                kinds = " or ".join(name for name, config in CONFIGS.items() if key in config.fields_by_key())
                warnings.append(f"{item.origin}: {key} has an effect with {SOURCE_KEY} = {kinds} only")
            elif key not in ServerConfig.fields_by_key():
                warnings.append(f"{item.origin}: {unknown(key, KEYS)}")
            elif destination is not None:
                warnings.append(f"{item.origin}: {key} has an effect in {MAIN_FILE} only")
        return warnings

    def missing(self) -> list[str]:
        """Name what Canal would do with these files and Sluice does not."""
        texts = []
        if self.server.server_mode not in ("tcp", "kafka"):
            texts.append(
                f"canal.serverMode = {self.server.server_mode}: of message queues there is Kafka only, and nothing is"
                " lost: the changes wait at the cursor of Canal's own client, 1001, until a consumer fetches them, or"
                " Kafka (kafka) takes them"
            )
        for destination in self.destinations():
            with contextlib.suppress(ConfigError):  # it is not started then
                found = self._lookup(destination)(("canal.instance.master2.address",))
                texts += [f"{destination}: {text}" for text in _missing(found)]
        return texts

    def of_outputs(self) -> Complaints:
        """Name what of the outputs' configuration nothing reads, and what is not followed."""
        unknown: list[str] = []
        unlike: list[str] = []
        for destination in self.destinations():
            with contextlib.suppress(ConfigError):  # it is not started then
                for it in self.outputs(destination):
                    found = complaints(it)
                    unknown += found.unknown
                    unlike += found.unlike
        return Complaints(list(dict.fromkeys(unknown)), list(dict.fromkeys(unlike)))

    def _is_of_outputs(self, key: str, names: Collection[str]) -> bool:
        """Whether an output reads a key; there are those with `names`. Kafka's own keys mean nothing without any."""
        return takes(key, queue=self._queue) and (self._queue or key.startswith("sluice.") or bool(names))

    def _output_names(self) -> set[str]:
        """Return the names of all outputs; what each destination has is read and checked for it."""
        names: set[str] = set()
        for destination in self.destinations():
            with contextlib.suppress(ConfigError):  # it is not started then
                names.update(it.name for it in self.outputs(destination))
        return names

    def _unreachable(self) -> list[str]:
        host, port = self.server.address
        if not self.server.zk_servers or host not in ("127.0.0.1", "::1", "localhost"):
            return []
        text = (
            f"canal.zkServers is set, and others know this server as {host}:{port}, which only this host reaches: set"
            " canal.register.ip, unless all servers and clients are on it"
        )
        return [text]

    def _known_password(self) -> list[str]:
        password = KNOWN_PASSWORDS.get(self.server.tcp_passwd.get_secret_value().lower())
        if password is None:
            return []
        return [f"canal.passwd is that of the password {password}, which is in Canal's own files: set another"]

    def _ambiguous_zones(self) -> list[str]:
        names = defaultdict(list)
        for destination in self.destinations():
            with contextlib.suppress(ConfigError):  # it is not a warning then
                names[self.instance(destination).time_zone].append(destination)
        return [
            f"{', '.join(destinations)}: TIMESTAMP values are written in {zone or 'the time zone of this process'},"
            " which has daylight saving, so that an hour of each year has two meanings; set sluice.instance.timeZone"
            " to UTC"
            for zone, destinations in names.items()
            if has_daylight_saving(zone)
        ]

    def _doubts(self) -> list[str]:
        warnings = []
        for destination in self.destinations():
            with contextlib.suppress(ConfigError):  # it is not a warning then
                config = self.instance(destination)
                warnings += [f"{destination}: {text}" for text in config.warnings() if not config.route]
        return warnings

    def _lookup(self, destination: str) -> Lookup:
        """Own file over main file; the file may be missing when main file and environment say enough, as in Canal."""
        file = self.instance_file(destination)
        own = read_properties(file) if file.is_file() else {}
        name = {"canal.instance.destination": Property(destination, "name of the folder")}
        beans = Lookup(self._main, own, name, environ=self._environ)(_bean_keys(destination))
        secrets = self._secrets.setdefault(destination, set())
        default = {META_KEY: Property("zookeeper", "default with canal.zkServers")} if self.server.zk_servers else {}
        return Lookup(default, _meta_of(beans), self._main, own, name, environ=self._environ, secrets=secrets)


def _checked(output: Output) -> Output:
    """Return an output with what is wrong between its settings, if anything is."""
    try:
        complaints(output)
    except ConfigError as error:
        return replace(output, mistake=str(error))
    return output


def stamp_of(file: Path) -> Stamp | None:
    """Return when and what a file was; None if there is none."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _check_name(destination: str) -> None:
    """Raise UnknownDestinationError for what is no name of a destination, nor of a folder here."""
    if not re.fullmatch(DESTINATION_NAME, destination):
        raise UnknownDestinationError(f"there is no destination {destination[:200]!r}: a name {NAMES_HAVE}")


def _route(lookup: Lookup) -> Property | None:
    """Return the name of the destination that one is a view of, and where that stands."""
    found = lookup((ROUTE_KEY,)).get(ROUTE_KEY)
    return found if found is not None and found.value else None


def _kind(lookup: Lookup) -> type[InstanceConfig]:
    """Return what can be configured with the kind of source that a destination has."""
    default = Property(InstanceConfig.model_fields["source"].default, "default")
    given = lookup((SOURCE_KEY,)).get(SOURCE_KEY, default)
    name = given.value.lower() or default.value
    if name not in CONFIGS:
        raise ConfigError(f"{given.origin}: {SOURCE_KEY}: has to be {' or '.join(map(repr, CONFIGS))}")
    return CONFIGS[name]


def _hide_secrets(settings: Settings) -> None:
    for secret in settings.secrets():
        redactor.hide(secret)


def _missing(properties: Mapping[str, Property]) -> list[str]:
    values = {key: item.value for key, item in properties.items() if item.value}
    texts = []
    if "canal.instance.master2.address" in values:
        texts.append(
            f"canal.instance.master2.address = {values['canal.instance.master2.address']}: several sources are not"
            " merged here: make a destination for each"
        )
    return texts


def _bean_keys(destination: str) -> tuple[str, str]:
    return "canal.instance.global.spring.xml", f"canal.instance.{destination}.spring.xml"


def _meta_of(beans: Mapping[str, Property]) -> dict[str, Property]:
    """Translate the file of Spring beans, by which Canal is told where cursors are kept."""
    for item in reversed(list(beans.values())):
        match item.value.rpartition("/")[2]:
            case "file-instance.xml":
                return {META_KEY: item._replace(value="file")}
            case "memory-instance.xml":
                return {META_KEY: item._replace(value="memory")}
            case "default-instance.xml":
                return {META_KEY: item._replace(value="period")}
            case other if other:
                raise UnsupportedError(
                    f"{item.origin}: {other} is not supported; use file-instance.xml, which keeps cursors in a file,"
                    " default-instance.xml, which keeps them in ZooKeeper, or memory-instance.xml; for several sources"
                    " make a destination for each"
                )
    return {}


def _without_effect(properties: Iterable[tuple[str, Property]]) -> list[str]:
    """One warning for each reason, since Canal's shipped file has a hundred of such keys; none of what is off."""
    places: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key, item in properties:
        reason = why_without_effect(key)
        if reason and item.value.lower() not in ("", "false") and key not in KEYS:
            file, _, line = item.origin.rpartition(":")
            places[reason][file].append(f"{key} (line {line})")
    return [
        f"without effect here: {reason}. In "
        + "; ".join(f"{file}: {', '.join(names)}" for file, names in files.items())
        for reason, files in places.items()
    ]


def _variables(environ: Mapping[str, str], outputs: Collection[str]) -> list[str]:
    """Name the variables without effect; ``outputs`` are the keys of outputs."""
    known = OTHER_VARIABLES | {name for key in (*KEYS, *outputs) for name, _ in variables_of(key)}
    links = sorted(name for name, value in environ.items() if is_service_link(name, value.strip()))
    services = tuple(f"{name.removesuffix('_PORT')}_{kind}_" for name in links for kind in ("PORT", "SERVICE"))
    return [
        *(
            f"environment variable {name} is ignored: {environ[name]} is not a port, but what Kubernetes sets for a"
            f" service called {name.removesuffix('_PORT').lower().replace('_', '-')}; rename the service, or set"
            " enableServiceLinks: false in the pod's spec"
            for name in links
        ),
        *(
            f"environment variable {unknown(name, known)}"
            for name in sorted(environ)
            if name.startswith("SLUICE_") and name not in known and name not in links and not name.startswith(services)
        ),
    ]
