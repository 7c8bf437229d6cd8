"""What can be configured of the log of a pump as a source."""

from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.pump.config import PumpLogConfig
from sluice.protocol.errors import ConfigError
from tests.unit.test_config import Conf

PUMP = "sluice.pump.socket = p.sock\nsluice.pump.clusterId = 7\nsluice.pump.tidbStatus = http://tidb-1:10080\n"


@pytest.fixture
def conf(tmp_path: Path) -> Conf:
    return Conf(tmp_path)


def read(conf: Conf, main: str, more: str = "") -> Any:
    conf.write("canal.properties", f"canal.destinations = example\n{main}")
    conf.write("example/instance.properties", f"sluice.instance.source = pump\n{more}")
    return conf.read().instance("example")


def test_a_destination_reads_the_pump_that_the_main_file_configures(conf: Conf) -> None:
    config = read(conf, PUMP + "sluice.pump.dir = raw\n")
    assert isinstance(config, PumpLogConfig)
    assert (config.folder, config.cluster_id) == (conf.folder / "raw", 7)
    assert (config.file, config.tidb_status) == ("7.tso.0", ("http://tidb-1:10080",))


@pytest.mark.parametrize(
    ("main", "more", "match"),
    [
        ("sluice.pump.tidbStatus = http://tidb-1:10080\n", "", r"sluice\.pump\.clusterId"),
        ("sluice.pump.clusterId = 7\n", "", r"needs sluice\.pump\.tidbStatus.*or sluice\.instance\.pump\.history"),
        ("sluice.pump.clusterId = 7\nsluice.pump.tidbStatus = tidb-1\n", "", r"'tidb-1' is not the URL of a server"),
        (PUMP, "sluice.instance.filter.mask = s.t.c: null\n", r"are for MySQL"),
        (PUMP + "canal.zkServers = zk-1:2181\n", "", r"another server reads the log of its own pump"),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_name_of_the_key(conf: Conf, main: str, more: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read(conf, main, more)
