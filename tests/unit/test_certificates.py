"""Files of certificates that cannot be used are named with their keys before a server begins."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from sluice.protocol.errors import ConfigError
from sluice.server.certificates import require_authorities, require_certificate
from tests.certificates import make

KEYS = ("canal.tls.cert", "canal.tls.key")


def test_a_certificate_and_its_key_can_be_used_and_so_can_authorities(tmp_path: Path) -> None:
    cert, key = make(tmp_path)
    require_certificate(cert, key, KEYS)
    require_authorities(cert, "canal.tls.ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(cert)
    assert context.cert_store_stats()["x509"] == 1


@pytest.mark.parametrize("missing", [0, 1])
def test_a_file_that_is_missing_is_named_with_its_key(missing: int, tmp_path: Path) -> None:
    files = make(tmp_path)
    files[missing].unlink()
    with pytest.raises(ConfigError, match=f"^{KEYS[missing]}: cannot read {files[missing]}: No such file"):
        require_certificate(*files, KEYS)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cert, (_, key) = make(tmp_path)[0], make(tmp_path / "other")
    with pytest.raises(ConfigError, match="are not a certificate and its key in PEM"):
        require_certificate(cert, key, KEYS)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    cert, key = make(tmp_path)
    plain = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(ConfigError, match=rf"^canal\.tls\.key: {key} is encrypted, and nobody is asked"):
        require_certificate(cert, key, KEYS)


def test_authorities_that_are_missing_or_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    with pytest.raises(ConfigError, match=f"^canal.tls.ca: cannot read {file}: No such file"):
        require_authorities(file, "canal.tls.ca")
    file.write_text("no certificate")
    with pytest.raises(ConfigError, match=f"^canal.tls.ca {file} has no certificate in PEM"):
        require_authorities(file, "canal.tls.ca")
