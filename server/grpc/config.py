"""What can be configured of a pump."""

import re
import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from ...instance.config import lower
from ...instance.settings import FolderPath, names, setting, urls
from ..front import EVERYWHERE, FrontConfig, Host

LONGEST_SOCKET = 107
"""Bytes of the path of a Unix socket (sun_path of Linux)."""
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})")


def _address(value: str) -> str:
    found = ADDRESS.fullmatch(value)
    if value and not (found and 0 < int(found[2]) < 1 << 16):
        raise ValueError(f"{value[:200]!r} is not host:port")
    return value


def _node_id(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:-]{0,200}", value):
        raise ValueError(f"{value[:200]!r} has other characters than letters, digits, '.', '_', ':' and '-'")
    return value


def _labels(value: tuple[str, ...]) -> tuple[str, ...]:
    for label in value:
        name, equals, _ = label.partition("=")
        if not name or not equals:
            raise ValueError(f"{label[:200]!r} is not name=value")
    return value


class Unresolved(StrEnum):
    """What happens to a transaction whose end does not come, and nobody can be asked for."""

    STOP = "stop"
    DROP = "drop"


class PumpConfig(FrontConfig):
    """The configuration of a pump. There is none without an address or a socket."""

    title: ClassVar[str] = "pump for TiDB"

    # The pump.

    host: Host = setting("sluice.pump.listen", "")
    """Address to listen on for TiDB and Drainer. Empty: no port. To serve other hosts, set `0.0.0.0`, which needs a
    certificate, `sluice.pump.tlsCa` and `sluice.pump.names`: TiDB sends no token."""
    port: int = setting("sluice.pump.port", 8250, ge=0, lt=1 << 16)
    """Port to listen on for TiDB and Drainer. 0 takes any free port."""
    socket: FolderPath | None = setting("sluice.pump.socket", None)
    """Unix socket to listen on, which TiDB calls `binlog-socket`. Empty: none. Who may write to the file may write to
    the pump, and read all of it."""
    cluster_id: int = setting("sluice.pump.clusterId", 0, ge=0, lt=1 << 64)
    """Id of the TiDB cluster, which PD gives it. Calls that are meant for another cluster are refused."""
    folder: FolderPath = setting("sluice.pump.dir", Path("pump"))
    """Folder of what TiDB has written. It belongs to this server, and to the cluster: never move it to another one."""
    pd: Annotated[tuple[str, ...], BeforeValidator(names), AfterValidator(urls)] = setting("sluice.pump.pd", ())
    """URLs of the cluster's PD servers, separated by commas: `http://pd-1:2379`. The pump registers itself in their
    etcd, where TiDB and Drainer find it. Empty: it is not registered, and TiDB reaches it by the socket only. With
    `https` it shows the certificate of `sluice.pump.tlsCert`, and trusts `sluice.pump.tlsCa`."""
    node_id: Annotated[str, AfterValidator(_node_id)] = setting("sluice.pump.nodeId", "")
    """Name of the pump in its cluster, which no other pump may have. Empty: name of the host, and the port."""
    advertise: Annotated[str, AfterValidator(_address)] = setting("sluice.pump.advertise", "")
    """Address by which TiDB and Drainer reach the pump, `host:port`. Empty: where it listens."""
    labels: Annotated[tuple[str, ...], BeforeValidator(names), AfterValidator(_labels)] = setting(
        "sluice.pump.labels", ()
    )
    """Labels of the pump, `name=value` separated by commas."""
    stop_write_at: int = setting("sluice.pump.stopWriteAt", 10 << 30, ge=0, le=1 << 60, unit="bytes")
    """Free space of the disk below which the pump refuses transactions. TiDB ends when it finds no other pump for 15
    s."""
    max_message: int = setting("sluice.pump.maxMessage", 1 << 30, ge=1 << 20, le=2000 << 20, unit="bytes")
    """Maximum size of a message from TiDB, which has all changes of a transaction. TiDB ends when the pump has refused
    one for 15 s."""
    tidb_sql: Annotated[tuple[str, ...], BeforeValidator(names)] = setting("sluice.pump.tidbSql", ())
    """TiDB servers to ask for the time of the cluster, separated by commas: `mysql://user@tidb-1:4000/?sslMode=…`, with
    the settings that the URL of an output to MySQL has. While TiDB writes nothing, the pump tells drainers the time, so
    that they do not wait for it. Set this where a cluster has several pumps."""
    tidb_password: SecretStr = setting("sluice.pump.tidbPassword", SecretStr(""))
    """Password of the account on these servers. The account needs no privilege."""
    fake_interval: float = setting("sluice.pump.fakeInterval", 3.0, ge=0.1, le=3600, unit="s")
    """Interval in which the pump tells drainers the time while TiDB writes nothing."""
    tidb_status: Annotated[tuple[str, ...], BeforeValidator(names), AfterValidator(urls)] = setting(
        "sluice.pump.tidbStatus", ()
    )
    """Status ports of TiDB servers, separated by commas: `http://tidb-1:10080`. The pump asks them for the end of
    transactions that TiDB has not ended within 10 minutes, as when a TiDB was killed. With `https` it shows the
    certificate of `sluice.pump.tlsCert`, and trusts `sluice.pump.tlsCa`."""
    unresolved: Annotated[Unresolved, BeforeValidator(lower)] = setting("sluice.pump.unresolved", Unresolved.STOP)
    """What happens to a transaction that TiDB has not ended within 10 minutes where `sluice.pump.tidbStatus` is empty.
    `stop`: drainers wait for it, and `sluice status` says so. `drop`: it counts as rolled back, and is logged."""
    gc: float = setting("sluice.pump.gc", 7.0, ge=0, le=10_000, unit="days")
    """Age from which the pump removes transactions, as far as all drainers have read them. 0: never."""
    gc_force: bool = setting("sluice.pump.gcForce", default=False)
    """Remove old transactions even if drainers have not read them."""
    tls_cert: FolderPath | None = setting("sluice.pump.tlsCert", None)
    """PEM file with the pump's certificate and the intermediate certificates. Empty: no TLS. New connections use what
    the file has then."""
    tls_key: FolderPath | None = setting("sluice.pump.tlsKey", None)
    """PEM file with the private key of the certificate, not encrypted."""
    tls_ca: FolderPath | None = setting("sluice.pump.tlsCa", None)
    """PEM file with the authorities that have to have signed the certificates of TiDB and Drainer. Empty: they need
    none."""
    allowed: Annotated[tuple[str, ...], BeforeValidator(names)] = setting("sluice.pump.names", ())
    """Names of which a caller's certificate has to have one, as its common name or as an alternative name, separated
    by commas. Empty: any certificate of the authorities will do."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("sluice.pump.tlsCert and sluice.pump.tlsKey belong together; give both or neither")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("sluice.pump.tlsCa needs sluice.pump.tlsCert and sluice.pump.tlsKey")
        if self.allowed and self.tls_ca is None:
            raise ValueError("sluice.pump.names needs sluice.pump.tlsCa, or else any caller could claim a name")
        if self.socket is not None and len(bytes(self.socket)) > LONGEST_SOCKET:
            raise ValueError(f"sluice.pump.socket: the path of a socket has at most {LONGEST_SOCKET} bytes")
        if self.is_served and not self.cluster_id:
            raise ValueError("sluice.pump.clusterId has to be given: PD names it, and TiDB sends it with each call")
        if self.is_served and self.pd:
            self._check_registered()
        return self

    def _check_registered(self) -> None:
        if not self.host:
            raise ValueError("sluice.pump.pd needs sluice.pump.listen: TiDB and Drainer connect to the pump's address")
        if self.host in EVERYWHERE and not self.advertise:
            raise ValueError(
                f"sluice.pump.listen = {self.host} needs sluice.pump.advertise, the address by which TiDB and Drainer"
                " reach the pump"
            )
        if not self.port and not self.node_id:
            raise ValueError("sluice.pump.port = 0 needs sluice.pump.nodeId, since the port is another one each time")

    def of_process(self, number: int) -> Self:
        """Return what the first process of a server has: its log has one writer."""
        return self if not number else self.model_copy(update={"host": "", "socket": None})

    @property
    def name(self) -> str:
        """The name of the pump in its cluster."""
        return self.node_id or f"{socket.gethostname()}:{self.port}"

    @property
    def is_served(self) -> bool:
        """Whether there is a pump."""
        return bool(self.host) or self.socket is not None
