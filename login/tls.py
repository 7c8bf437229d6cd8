"""TLS to a MySQL or MariaDB server, by the names of MySQL's own clients."""

import ssl
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ..protocol.errors import SourceError
from .session import unverified_tls
from .ssl_mode import SslMode


def tls_arguments(
    mode: SslMode,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    public_key: str | Path | None = None,
) -> dict[str, Any]:
    """Translate a mode, and the files of the authority and of our own certificate, into arguments of a `MysqlSession`.

    PREFERRED is what PyMySQL does by default. With files given it means REQUIRED: they would be useless on a connection
    without TLS. VERIFY_CA proves something only with an authority of one's own: those of the system sign for anyone.
    `public_key` is the file of the server's RSA key. Raises SourceError if the files cannot be loaded.
    """
    if mode is SslMode.DISABLED:
        return {"ssl_disabled": True, "server_public_key": _public_key(public_key) if public_key else None}
    if mode is SslMode.PREFERRED and not cert and not ca:
        return {}
    verifies = mode in (SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY)
    if not (verifies or ca or cert):
        return {"ssl": unverified_tls(), "verified": False}
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key or None)
    except OSError as error:
        files = ", ".join(str(file) for file in (ca, cert, key) if file)
        raise SourceError(f"cannot load the TLS files {files}: {error}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates that MySQL makes for itself do not pass it
    context.check_hostname = mode is SslMode.VERIFY_IDENTITY
    context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
    is_proof = mode is SslMode.VERIFY_IDENTITY or (mode is SslMode.VERIFY_CA and bool(ca))
    return {"ssl": context, "verified": is_proof}


def _public_key(file: str | Path) -> bytes:
    try:
        data = Path(file).read_bytes()
        key = load_pem_public_key(data)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise SourceError(f"cannot load the public key {file}: {error}") from error
    if not isinstance(key, RSAPublicKey):
        raise SourceError(f"{file} does not hold an RSA key")
    return data
