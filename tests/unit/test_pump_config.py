"""What is configured of a pump."""

import re
import socket
from pathlib import Path

import pytest

from sluice.instance.properties import Property
from sluice.protocol.errors import ConfigError
from sluice.server.grpc import checks
from sluice.server.grpc.checks import databases_of, require_safe
from sluice.server.grpc.config import PumpConfig


def read(**values: str) -> PumpConfig:
    properties = {f"sluice.pump.{key}": Property(value, "a file") for key, value in values.items()}
    return PumpConfig.fill(properties, Path("/conf"))


def test_there_is_no_pump_without_an_address_or_a_socket() -> None:
    assert not read().is_served
    assert not read(clusterId="1", port="8250").is_served
    assert read(clusterId="1", listen="127.0.0.1").is_served
    assert read(clusterId="1", socket="pump.sock").socket == Path("/conf/pump.sock")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listen": "127.0.0.1"}, "sluice.pump.clusterId has to be given"),
        ({"clusterId": str(1 << 64)}, "sluice.pump.clusterId: has to be less than"),
        ({"maxMessage": str(1 << 31)}, "sluice.pump.maxMessage: has to be"),
        ({"tlsCert": "a.pem"}, "sluice.pump.tlsCert and sluice.pump.tlsKey belong together"),
        ({"tlsCa": "a.pem"}, "sluice.pump.tlsCa needs sluice.pump.tlsCert"),
        ({"names": "tidb"}, "sluice.pump.names needs sluice.pump.tlsCa"),
        ({"pd": "http://a:2379", "socket": "s", "clusterId": "1"}, "sluice.pump.pd needs sluice.pump.listen"),
        ({"pd": "http://a:2379", "listen": "0.0.0.0", "clusterId": "1"}, "needs sluice.pump.advertise, the address"),
        ({"pd": "http://a:2379", "listen": "::1", "port": "0", "clusterId": "1"}, "needs sluice.pump.nodeId"),
        ({"pd": "pd:2379"}, "sluice.pump.pd: 'pd:2379' is not the URL of a server"),
        ({"advertise": "pump"}, "sluice.pump.advertise: 'pump' is not host:port"),
        ({"advertise": "pump:70000"}, "sluice.pump.advertise: 'pump:70000' is not host:port"),
        ({"nodeId": "a/b"}, "sluice.pump.nodeId: 'a/b' has other characters than"),
        ({"labels": "zone"}, "sluice.pump.labels: 'zone' is not name=value"),
        ({"unresolved": "guess"}, "sluice.pump.unresolved: has to be"),
        ({"socket": "a" * 200, "clusterId": "1"}, "sluice.pump.socket: the path of a socket has at most 107 bytes"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        read(**values)


def test_names_are_separated_by_commas() -> None:
    found = read(tlsCert="a.pem", tlsKey="a.key", tlsCa="ca.pem", names="tidb, drainer")
    assert found.allowed == ("tidb", "drainer")


def test_a_pump_has_the_name_of_its_host_and_its_port_unless_it_is_named() -> None:
    assert read(port="8251").name == f"{socket.gethostname()}:8251"
    assert read(nodeId="pump-1").name == "pump-1"


def test_the_time_is_asked_of_servers_that_are_named_as_such() -> None:
    config = read(tidbSql="mysql://pump@a:4000, mysql://b@c:4001", tidbPassword="secret")
    assert [(str(it), it.user, it.password) for it in databases_of(config)] == [
        ("a:4000", "pump", "secret"),
        ("c:4001", "b", "secret"),
    ]
    with pytest.raises(ConfigError, match=r"sluice\.pump\.tidbSql: a database is named as mysql://"):
        require_safe(read(tidbSql="a:4000"))


def test_a_library_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=re.escape("needs grpcio: pip install 'sluice-cdc[server,tidb]'")):
        require_safe(read(listen="127.0.0.1", clusterId="1"))
