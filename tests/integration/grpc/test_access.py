"""Where a pump listens, and whom it lets call."""

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sluice.protocol.errors import ConfigError
from sluice.server.grpc.checks import doubts, require_safe
from sluice.server.grpc.config import PumpConfig
from sluice.server.grpc.listen import listening
from sluice.server.grpc.pump import Pump
from sluice.server.waiting import Stopping
from tests import certificates
from tests.integration.grpc.served import CLUSTER, calling, opened, prewrite, refused, serving


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.file = folder / "ca.pem"
        made = self._builder(self.name, self.key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.file.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Write a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        made = self._builder(subject, key).add_extension(here, critical=False).sign(self.key, hashes.SHA256())
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        files[0].write_bytes(made.public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )

    def proof(self, name: str) -> Any:
        """Return what a caller of that name connects with."""
        cert, key = self.issue(name)
        return grpc.ssl_channel_credentials(self.file.read_bytes(), key.read_bytes(), cert.read_bytes())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings(authority: Authority) -> dict[str, Any]:
    cert, key = authority.issue("pump")
    return {"tls_cert": cert, "tls_key": key, "tls_ca": authority.file, "allowed": ("tidb", "drainer")}


async def test_certificates_of_allowed_names_may_call(tmp_path: Path, authority: Authority) -> None:
    async with serving(tmp_path, **settings(authority)) as pump:
        async with calling(pump.address, authority.proof("tidb")) as caller:
            assert not (await caller.write(prewrite(1))).errmsg
        async with calling(pump.address, authority.proof("somebody")) as caller:
            expected = grpc.StatusCode.PERMISSION_DENIED, "the certificate has no name that may call"
            assert await refused(caller.write(prewrite(2))) == expected
            assert await refused(caller.pull()) == expected
        assert pump.log.stored() == [prewrite(1)]


async def test_no_certificate_and_one_of_another_authority_do_not_connect(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    cert, key = other.issue("tidb")
    foreign = grpc.ssl_channel_credentials(authority.file.read_bytes(), key.read_bytes(), cert.read_bytes())
    async with serving(tmp_path, **settings(authority)) as pump:
        for credentials in (None, grpc.ssl_channel_credentials(authority.file.read_bytes()), foreign):
            async with calling(pump.address, credentials) as caller:
                assert (await refused(caller.write(prewrite(1))))[0] == grpc.StatusCode.UNAVAILABLE
        assert pump.log.stored() == []


async def test_new_connections_get_the_certificate_that_the_file_has(tmp_path: Path, authority: Authority) -> None:
    given = settings(authority)
    async with serving(tmp_path, **given, max_message=1 << 20) as pump:
        host, _, port = pump.address.rpartition(":")
        first = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
        assert first.strip() == given["tls_cert"].read_text().strip()
        authority.issue("pump")
        second = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
        assert second.strip() == given["tls_cert"].read_text().strip() != first.strip()
        given["tls_key"].unlink()
        async with calling(pump.address, authority.proof("tidb")) as caller:
            assert not (await caller.write(prewrite(1))).errmsg


async def test_a_socket_serves_who_may_open_it_without_a_certificate(tmp_path: Path, authority: Authority) -> None:
    file = tmp_path / "pump.sock"
    async with serving(tmp_path, **settings(authority), socket=file) as pump:
        assert pump.address.endswith(f" and {file}")
        async with calling(str(file)) as caller:
            assert not (await caller.write(prewrite(1))).errmsg
        assert pump.log.stored() == [prewrite(1)]


async def test_a_socket_of_a_killed_pump_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "pump.sock"
    config = PumpConfig(socket=file, cluster_id=CLUSTER)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(file))
        left.listen()
        with pytest.raises(OSError, match="another process listens on"):
            await asyncio.wait_for(_opened(config, tmp_path), 10)
    assert await _opened(config, tmp_path) == [str(file)]
    file.unlink(missing_ok=True)
    file.write_text("notes")
    with pytest.raises(OSError, match="is not a socket"):
        await _opened(config, tmp_path)
    assert file.read_text() == "notes"
    with pytest.raises(OSError, match="its folder has to exist"):
        await _opened(PumpConfig(socket=tmp_path / "none" / "pump.sock", cluster_id=CLUSTER), tmp_path)


async def test_a_port_that_is_taken_is_named_with_its_keys(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = PumpConfig(host="127.0.0.1", port=taken.getsockname()[1], cluster_id=CLUSTER)
        with pytest.raises(OSError, match=r"sluice\.pump\.listen and sluice\.pump\.port choose another"):
            await _opened(config, tmp_path)


async def _opened(config: PumpConfig, folder: Path) -> list[str]:
    async with opened(folder) as log, listening(config, Pump(log, CLUSTER, frozenset()), Stopping()) as addresses:
        return addresses


def test_a_pump_beyond_loopback_needs_certificates_and_names(authority: Authority) -> None:
    given = settings(authority)
    require_safe(PumpConfig(host="0.0.0.0", cluster_id=1, **given))
    require_safe(PumpConfig(host="127.0.0.1", cluster_id=1))
    for left_out, named in (
        (("tls_cert", "tls_key", "tls_ca", "allowed"), r"sluice\.pump\.tlsCert and sluice\.pump\.tlsCa and sluice"),
        (("tls_ca", "allowed"), r"without sluice\.pump\.tlsCa and sluice\.pump\.names"),
        (("allowed",), r"without sluice\.pump\.names\."),
    ):
        some = {name: value for name, value in given.items() if name not in left_out}
        with pytest.raises(ConfigError, match=named):
            require_safe(PumpConfig(host="0.0.0.0", cluster_id=1, **some))
        accepted = PumpConfig(host="0.0.0.0", cluster_id=1, insecure=True, **some)
        require_safe(accepted)
        assert "any machine that reaches the pump" in doubts(accepted)[0]


def test_files_that_are_no_certificates_are_named_with_their_keys(tmp_path: Path) -> None:
    cert, key = certificates.make(tmp_path)
    (tmp_path / "empty").touch()
    local: dict[str, Any] = {"host": "127.0.0.1", "cluster_id": 1, "tls_cert": cert, "tls_key": key}
    require_safe(PumpConfig(**local))
    for field, file, message in (
        ("tls_cert", "empty", r"sluice\.pump\.tlsCert .*are not a certificate and its key"),
        ("tls_key", "none", r"sluice\.pump\.tlsKey: cannot read"),
        ("tls_ca", "empty", r"sluice\.pump\.tlsCa .*has no certificate"),
    ):
        with pytest.raises(ConfigError, match=message):
            require_safe(PumpConfig(**{**local, field: tmp_path / file}))
