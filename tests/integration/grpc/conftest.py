"""An etcd as PD of a TiDB cluster has one, for each test anew."""

from collections.abc import Iterator

import pytest

from sluice.login.etcd import Etcd
from tests.servers.etcd import EtcdServer


@pytest.fixture
def etcd_server() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


@pytest.fixture
def etcd(etcd_server: EtcdServer) -> Iterator[Etcd]:
    etcd = Etcd([etcd_server.url])
    yield etcd
    etcd.close()
