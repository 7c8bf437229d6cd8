"""Where the fronts of a server listen together, and by what address others know it."""

import itertools
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from ...protocol.errors import ConfigError
from ..front import EVERYWHERE, FrontConfig
from ..fronts import served
from ..http.config import HttpConfig
from ..processes import MOST
from ..tcp.config import TcpConfig
from .settings import ServerConfig

F = TypeVar("F", bound=FrontConfig)


@dataclass(frozen=True, slots=True)
class Addresses:
    """A server and its fronts. Other servers know it by its address in Canal's protocol, and by the URL of its API."""

    server: ServerConfig
    fronts: tuple[FrontConfig, ...]

    def front(self, kind: type[F]) -> F:
        """Return the configuration of a front."""
        return next(front for front in self.fronts if isinstance(front, kind))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port by which other servers, and Canal's clients, know this one."""
        tcp = self.front(TcpConfig)
        return self.server.register_ip or tcp.host, tcp.port

    @property
    def url(self) -> str:
        """The URL by which other servers and clients know its HTTP API."""
        return self.front(HttpConfig).url(self.server.register_ip)

    def of_process(self, number: int) -> Self:
        """Return those of a process of several: it has ports of its own, the given ones and up."""
        return replace(self, fronts=tuple(front.of_process(number) for front in self.fronts))

    def require_known(self) -> None:
        """Raise ConfigError when the server is one of several, and has no address by which others know it."""
        if not self.server.zk_servers:
            return
        if self.address[0] in EVERYWHERE:
            raise ConfigError(
                "canal.zkServers needs canal.register.ip, the address under which clients reach this server"
            )
        if not (self.front(TcpConfig).port and self.front(HttpConfig).port):
            raise ConfigError(
                "canal.zkServers needs fixed ports, by which others know this server: set canal.port and"
                " sluice.http.port"
            )

    def require_processes(self, count: int) -> None:
        """Raise ConfigError unless there can be that many processes, each with ports of its own."""
        if not 1 <= count <= MOST:
            raise ConfigError(f"--processes {count}: there can be 1 to {MOST}")
        if count == 1:
            return
        if self.server.zk_servers:
            raise ConfigError(
                f"--processes {count}: canal.zkServers is set, by which several servers share the destinations: start"
                " one server for each core, with ports of its own, instead"
            )
        if self.server.register_ip == "" and self.front(HttpConfig).host in EVERYWHERE:
            raise ConfigError(
                f"--processes {count} needs canal.register.ip, the address under which clients are sent from process to"
                " process"
            )
        ports = {front.key_of("port"): front.port for front in served(self.fronts)}
        for key, port in ports.items():
            if port == 0 or port + count > 1 << 16:
                raise ConfigError(
                    f"--processes {count}: {key} = {port}: each process takes a port, this one and those after it;"
                    f" set one from 1 to {(1 << 16) - count}"
                )
        for (key, port), (other_key, other) in itertools.combinations(ports.items(), 2):
            if abs(port - other) < count:
                raise ConfigError(
                    f"--processes {count}: each process takes a port, and those from {key} = {port}"
                    f" and from {other_key} = {other} overlap: set them at least {count} apart"
                )
