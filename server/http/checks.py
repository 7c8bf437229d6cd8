"""Whether the HTTP API may be served as it is configured; nothing is started for that."""

import ssl
from pathlib import Path

from ...protocol.errors import ConfigError
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
        _require_certificate(config.tls_cert, config.tls_key)


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


def _require_certificate(cert: Path, key: Path) -> None:
    """Raise ConfigError unless the files are a certificate and its key."""
    for name, file in (("sluice.http.tlsCert", cert), ("sluice.http.tlsKey", key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{name}: cannot read {file}: {error.strerror}") from None
    try:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)
    except ssl.SSLError as error:
        raise ConfigError(
            f"sluice.http.tlsCert {cert} and sluice.http.tlsKey {key} are not a certificate and its key in PEM: "
            f"{error.reason or error}"
        ) from None
    except OSError as error:
        raise ConfigError(f"sluice.http.tlsKey: {error}") from None


def load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Let a context use a certificate and its key. Raises OSError, also for an encrypted key.

    OpenSSL would ask the terminal for its password, and all would wait for that.
    """

    def refuse() -> bytes:
        raise OSError(f"{key} is encrypted, and nobody is asked for its password: store the key without one")

    context.load_cert_chain(cert, key, refuse)
