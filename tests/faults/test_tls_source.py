"""A MySQL that demands TLS, with the authority that it made for itself and an account of caching_sha2_password."""

from collections.abc import Iterator

import pytest

from tests.conftest import Database
from tests.faults.harness import Consumer, Load, Sluice, consuming
from tests.servers import Server


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    """MySQL 9.7 with require_secure_transport; the tests' own connections use TLS by default."""
    with Server("mysql97", ["--require-secure-transport=ON"]) as server:
        yield server


@pytest.mark.extended
def test_certificates_are_checked_as_configured(sluice: Sluice, strict: Server, database: Database) -> None:
    schema = database(strict)
    ((plugin,),) = strict.query("SELECT plugin FROM mysql.user WHERE user = 'cdc'")
    assert plugin == "caching_sha2_password"
    own, other = strict.data / "ca.pem", strict.data / "client-cert.pem"
    tables = rf"{schema}\\..*"
    sluice.add("plain", strict, canal__instance__filter__regex=tables)
    for name, mode, ca in (
        ("required", "REQUIRED", None),
        ("shop", "VERIFY_CA", own),
        ("wrong", "VERIFY_CA", other),
        ("identity", "VERIFY_IDENTITY", own),
    ):
        extra = {} if ca is None else {"sluice__instance__sslCa": ca}
        sluice.add(name, strict, canal__instance__filter__regex=tables, canal__instance__master__sslMode=mode, **extra)
    load = Load(strict, schema, count=40)
    with sluice:
        sluice.wait_running("shop", "required")
        sluice.wait_error("secure transport", "plain")
        sluice.wait_error("certificate verify failed", "wrong")
        # The certificate that MySQL makes names no host.
        sluice.wait_error("certificate verify failed|[Hh]ostname", "identity")
        consumer = Consumer(sluice.client())
        with load, consuming(consumer):
            load.finish()
            load.check(consumer.finish())
