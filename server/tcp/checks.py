"""Whether Canal's clients may be served as is configured; nothing is started for that."""

from ..credentials import Credentials
from ..network import address_text, refuse_open
from .config import TcpConfig


def require_safe(config: TcpConfig) -> None:
    """Refuse to serve Canal's clients beyond loopback without a password. Raises ConfigError."""
    refuse_open(
        config.host,
        [] if config.passwd.get_secret_value() else ["canal.passwd"],
        insecure=config.insecure,
        advice="Set canal.user and canal.passwd",
    )


def doubts(config: TcpConfig) -> list[str]:
    """Say that Canal's port lets everybody do what the HTTP API asks credentials for, when it does."""
    if config.passwd.get_secret_value() or not Credentials(config.credentials).any:
        return []
    text = (
        f"Canal's port {address_text((config.host, config.port))} asks for no password, so the credentials of"
        " the HTTP API do not protect it: any caller reads, acknowledges and unsubscribes every client of every"
        " destination. Set canal.user and canal.passwd, or close the port with canal.withoutNetty = true"
    )
    return [text]
