"""How far a connection to a MySQL or MariaDB server is protected, by the names of MySQL's own clients."""

from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qsl


class SslMode(StrEnum):
    """Whether a connection is encrypted, and how far the server's certificate is checked."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    """Encrypted if the server offers it, unchecked: no protection from an impostor."""
    REQUIRED = "REQUIRED"
    """Encrypted, unchecked: no protection from an impostor either."""
    VERIFY_CA = "VERIFY_CA"
    """The certificate is checked: a trusted authority has signed it."""
    VERIFY_IDENTITY = "VERIFY_IDENTITY"
    """The certificate is checked: a trusted authority has signed it, and it is for the host's name."""


_FILES: Final = {
    "sslCa": "ssl_ca",
    "sslCert": "ssl_cert",
    "sslKey": "ssl_key",
    "serverPublicKey": "server_public_key",
}


def tls_options(query: str) -> dict[str, Any]:
    """Read what follows the ? of a database: ``sslMode=VERIFY_CA&sslCa=ca.pem``. Raises ValueError."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "sslMode" and value.upper() in SslMode.__members__:
            found["ssl_mode"] = SslMode[value.upper()]
        elif name in _FILES and value:
            found[_FILES[name]] = value
        else:
            raise ValueError(f"{name}={value}: sslMode ({', '.join(SslMode)}), {', '.join(_FILES)} are known")
    return found
