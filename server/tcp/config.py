"""What can be configured of the port for Canal's clients."""

import re
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from ...instance.config import lower
from ...instance.settings import setting
from ..front import FrontConfig, Host

KNOWN_PASSWORDS = {
    "e3619321c1a937c46a0d8bd1dac39f93b27d4458": "canal",
    "4acfe3202a5ff5cf467898fc58aab1d615029441": "admin",
    "6bb4837eb74329105ee4568dda7dc67ed2ca2ad9": "123456",
}
"""Passwords that are in Canal's own files, by the SHA-1 of their SHA-1."""


def _password_hash(value: SecretStr) -> SecretStr:
    if value.get_secret_value() and not re.fullmatch("[0-9A-Fa-f]{40}", value.get_secret_value()):
        raise ValueError(
            "has to be the SHA-1 of the password's SHA-1, 40 hexadecimal digits, as SELECT SHA1(UNHEX(SHA1('...')))"
            " makes it"
        )
    return value


class TcpConfig(FrontConfig):
    """The configuration of the port for Canal's clients."""

    title: ClassVar[str] = "Canal's port"

    # Canal's clients.

    host: Host = setting("canal.ip", "127.0.0.1")
    """Address to listen on for Canal's clients. Unlike in Canal, an empty value means the loopback address. To serve
    other hosts, set `0.0.0.0`, which needs `canal.user` and `canal.passwd`. The protocol has no encryption."""
    port: int = setting("canal.port", 11111, ge=0, lt=1 << 16)
    """Port to listen on for Canal's clients. 0 takes any free port."""
    without_netty: bool = setting("canal.withoutNetty", default=False)
    """Do not serve Canal's clients. Sluice then does not listen on `canal.port`."""
    user: str = setting("canal.user", "")
    """User name that Canal's clients have to send. Empty accepts any name."""
    passwd: Annotated[SecretStr, AfterValidator(_password_hash)] = setting("canal.passwd", SecretStr(""))
    """Hash of the password of Canal's clients, in Canal's format: the SHA-1 of its SHA-1, 40 hexadecimal digits.
    `SELECT SHA1(UNHEX(SHA1('…')))` computes it. Empty accepts any password."""
    max_frame: int = setting("sluice.tcp.maxFrame", 1 << 20, ge=1 << 10, lt=1 << 31, unit="bytes")
    """Maximum size of a request from a Canal client that has logged in."""
    max_first_frame: int = setting("sluice.tcp.maxFirstFrame", 16 * 1024, ge=1 << 10, le=1 << 20, unit="bytes")
    """Maximum size of a request from a Canal client that has not logged in yet."""
    login_timeout: float = setting("sluice.tcp.loginTimeout", 10.0, gt=0, le=3600, unit="s")
    """Timeout for the login of a Canal client."""
    linger: float = setting("sluice.get.linger", 5.0, ge=0, le=3_600_000, unit="ms")
    """How long a get with a timeout waits for a full batch once there is an entry. Under `strictCanal` it waits for a
    full batch until the timeout, as in Canal."""

    # `ServerConfig` describes and checks it.
    server_mode: Annotated[str, BeforeValidator(lower)] = setting("canal.serverMode", "tcp")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.user and not self.passwd.get_secret_value():
            raise ValueError("canal.user needs canal.passwd, or else the name alone lets a client in")
        return self

    @property
    def is_served(self) -> bool:
        """Whether Canal's clients are served."""
        return not self.without_netty and self.server_mode != "kafka"

    def announcement(self, address: str) -> str:
        """Say that Canal's clients are served, at an address."""
        return f"Canal's clients are served at {address}"

    def warnings(self) -> list[str]:
        """Name a password that everybody knows."""
        password = KNOWN_PASSWORDS.get(self.passwd.get_secret_value().lower())
        if password is None:
            return []
        return [f"canal.passwd is that of the password {password}, which is in Canal's own files: set another"]
