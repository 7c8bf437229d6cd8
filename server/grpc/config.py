"""What can be configured of a pump's port and socket."""

from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, model_validator

from ...instance.settings import FolderPath, names, setting
from ..front import FrontConfig, Host

LONGEST_SOCKET = 107
"""Bytes of the path of a Unix socket (sun_path of Linux)."""


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
    max_message: int = setting("sluice.pump.maxMessage", 1 << 30, ge=1 << 20, le=2000 << 20, unit="bytes")
    """Maximum size of a message from TiDB, which has all changes of a transaction. TiDB ends when the pump has refused
    one for 15 s."""
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
        return self

    @property
    def is_served(self) -> bool:
        """Whether there is a pump."""
        return bool(self.host) or self.socket is not None
