"""Makes the target of an output to MySQL or MariaDB, and asks it beforehand whether it would take changes."""

from collections.abc import Callable

import pymysql

from ....protocol.errors import ConfigError, SluiceError
from ....sql.database import reason
from ..settings import Output
from ..target import Report
from .checks import database_of
from .target import MysqlTarget


def make(output: Output, group: Callable[[], str]) -> MysqlTarget:
    """See `Making.make`."""
    del group
    if not output.time_zone:
        raise ConfigError(
            f"{output}: the time zone of this process has no name that the target may know: set"
            " sluice.instance.timeZone, best to UTC"
        )
    return MysqlTarget(output, database_of(output))


def examine(output: Output, report: Report) -> None:
    """See `Making.examine`."""
    try:
        target = make(output, lambda: "")
        report.good(output, target.examine())
    except SluiceError as error:
        report.wrong(output, error)
    except (pymysql.MySQLError, OSError) as error:
        report.wrong(output, reason(error))
