"""What is configured of a pump."""

from pathlib import Path

import pytest

from sluice.instance.properties import Property
from sluice.protocol.errors import ConfigError
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
        ({"socket": "a" * 200, "clusterId": "1"}, "sluice.pump.socket: the path of a socket has at most 107 bytes"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        read(**values)


def test_names_are_separated_by_commas() -> None:
    found = read(tlsCert="a.pem", tlsKey="a.key", tlsCa="ca.pem", names="tidb, drainer")
    assert found.allowed == ("tidb", "drainer")
