"""TLS to a MySQL or MariaDB server, by the names of MySQL's own clients."""

import ssl
from enum import StrEnum
from pathlib import Path
from typing import Any

from sluice.protocol.errors import SourceError


class SslMode(StrEnum):
    """Whether a connection is encrypted, and how far the server's certificate is checked."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    """Encrypted if the server offers it, unchecked."""
    REQUIRED = "REQUIRED"
    """Encrypted, unchecked."""
    VERIFY_CA = "VERIFY_CA"
    """By an authority that is trusted."""
    VERIFY_IDENTITY = "VERIFY_IDENTITY"
    """By an authority that is trusted, and for the host's name."""


def tls_arguments(
    mode: SslMode,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
) -> dict[str, Any]:
    """Translate a mode, and the files of the authority and of our own certificate, into PyMySQL's arguments.

    PREFERRED is what PyMySQL does unasked. With files of its own it is REQUIRED: they would be of no use on a
    connection without TLS. Raises SourceError when the files cannot be loaded.
    """
    if mode is SslMode.DISABLED:
        return {"ssl_disabled": True}
    if mode is SslMode.PREFERRED and not cert and not ca:
        return {}
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key or None)
    except OSError as error:
        files = ", ".join(str(file) for file in (ca, cert, key) if file)
        raise SourceError(f"cannot load the TLS files {files}: {error}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates that MySQL makes for itself do not pass it
    context.check_hostname = mode is SslMode.VERIFY_IDENTITY
    context.verify_mode = ssl.CERT_REQUIRED if mode in (SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY) else ssl.CERT_NONE
    return {"ssl": context}
