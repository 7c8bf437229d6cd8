"""``sluice verify``: the decoder beside another one, on the source's own binlog."""

import os
from importlib.util import find_spec
from typing import Any

from ...protocol.errors import ConfigError
from ..config import Configuration
from .common import NO, add_command, add_conf, out


def add_verify_command(commands: Any) -> None:
    """Add the command to those of the command line."""
    verify = add_command(
        commands,
        "verify",
        verify_command,
        "decode your own binlog twice and compare",
        "Read a range of the source's binlog with Sluice's decoder and with an independent one (pymysqlreplication),\n"
        "and compare all rows, value by value. What the other one cannot read is counted and named.",
        "sluice verify example",
        "sluice verify example --from mysql-bin.000003 --to mysql-bin.000005:1000000",
    )
    verify.add_argument("destination", metavar="DESTINATION", help="its name, as in canal.destinations")
    verify.add_argument(
        "--from",
        dest="start",
        metavar="FILE[:OFFSET]",
        help="beginning of the range; the last binlog file when not given",
    )
    verify.add_argument("--to", dest="stop", metavar="FILE[:OFFSET]", help="its end; the current end when not given")
    add_conf(verify)


def verify_command(options: Any) -> int:
    """Decode a range twice and compare."""
    if find_spec("pymysqlreplication") is None:
        raise ConfigError("pymysqlreplication, the other decoder, not found: pip install 'sluice[verify]'")
    from .comparison import show, verify

    config = Configuration(options.conf, os.environ).instance(options.destination)
    return 0 if show(verify(config, options.start, options.stop, out), out) else NO
