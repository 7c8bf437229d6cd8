"""Whether the HTTP API may be served as it is configured; nothing is started for that."""

from ..certificates import require_certificate
from ..credentials import Credentials
from ..network import refuse_open
from .config import HttpConfig


def require_safe(config: HttpConfig) -> None:
    """Refuse to serve the API as configured when that is unsafe, or the certificate cannot be used: ConfigError."""
    require_safe_binding(
        config.host,
        tls=config.tls_cert is not None,
        credentials=Credentials(config.credentials).any,
        insecure=config.insecure,
    )
    if config.tls_cert is not None and config.tls_key is not None:
        require_certificate(config.tls_cert, config.tls_key, (config.key_of("tls_cert"), config.key_of("tls_key")))


def doubts(config: HttpConfig) -> list[str]:
    """There are none."""
    del config
    return []


def require_safe_binding(host: str, *, tls: bool, credentials: bool, insecure: bool) -> None:
    """Refuse to serve the API beyond loopback without credentials and TLS. Raises ConfigError."""
    refuse_open(
        host,
        [name for name, there in (("TLS", tls), ("credentials", credentials)) if not there],
        insecure=insecure,
        advice="Set sluice.http.tlsCert and sluice.http.tlsKey, make a token with 'sluice token create'",
    )
