"""The files of a server's certificate: whether they can be used, and their use."""

import ssl
from pathlib import Path

from ..protocol.errors import ConfigError


def require_certificate(cert: Path, key: Path, keys: tuple[str, str]) -> None:
    """Raise ConfigError unless the files, which two keys name, are a certificate and its key."""
    for name, file in zip(keys, (cert, key), strict=True):
        read(file, name)
    try:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{keys[0]} {cert} and {keys[1]} {key} are not a certificate and its key in PEM: {error.reason or error}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{keys[1]}: {error}") from None


def require_authorities(file: Path, key: str) -> None:
    """Raise ConfigError unless the file, which ``key`` names, has certificates of authorities."""
    read(file, key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
    except ssl.SSLError as error:
        raise ConfigError(f"{key} {file} has no certificate in PEM: {error.reason or error}") from None


def read(file: Path, key: str) -> bytes:
    """Return what the file has that ``key`` names. Raises ConfigError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {file}: {error.strerror}") from None


def load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Let a context use a certificate and its key. Raises OSError, also for an encrypted key.

    OpenSSL would ask the terminal for its password, and all would wait for that.
    """

    def refuse() -> bytes:
        raise OSError(f"{key} is encrypted, and nobody is asked for its password: store the key without one")

    context.load_cert_chain(cert, key, refuse)
