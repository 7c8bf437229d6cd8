"""What can be configured of the server itself."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, model_validator

from ...instance.config import DESTINATION_NAME, is_host, lower, upper
from ...instance.settings import FolderPath, Settings, names, setting
from ..front import Host
from ..logging import LogFormat, LogLevel

MOST_DESTINATIONS = 10_000
NAMES_HAVE = "has up to 200 letters, digits, '.', '_' and '-', and begins with a letter or digit"


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

    destinations: Annotated[tuple[str, ...], BeforeValidator(names)] = setting(
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

    # Several servers.

    zk_servers: Annotated[str, AfterValidator(_hosts)] = setting("canal.zkServers", "")
    """ZooKeeper servers, `host:port` separated by commas. Servers with the same ZooKeeper share their destinations:
    each destination is active on one server, and another server takes it over if that one fails. All servers need the
    same destinations. A path after the last host is the root of all nodes; it has to exist in ZooKeeper. Empty: a
    single server."""
    register_ip: Host = setting("canal.register.ip", "")
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
        for name in self.names:
            if not re.fullmatch(DESTINATION_NAME, name):
                raise ValueError(
                    f"canal.destinations: {name[:200]!r} is not a name of a destination, which {NAMES_HAVE}"
                )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The destinations to start."""
        return expand(self.destinations_expr) if self.destinations_expr else self.destinations
