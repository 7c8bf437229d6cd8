"""Makes the target of an output to MySQL or MariaDB, and asks it beforehand whether it would take changes."""

from collections.abc import Callable
from contextlib import closing

import pymysql

from ....instance.sink.filters import TableFilter
from ....protocol.errors import ConfigError, SluiceError
from ....sql.database import reason
from ....sql.target import set_up
from ..settings import Output
from ..target import Asked, Report
from .checks import database_of, routes_of
from .examination import TargetExamination, mismatches
from .settings import MysqlSettings
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


def examine(output: Output, report: Report, asked: Asked | None = None) -> None:
    """See `Making.examine`."""
    settings = output.settings
    assert isinstance(settings, MysqlSettings)
    own = TableFilter(settings.filter)
    try:
        make(output, lambda: "")
        database, routes = database_of(output), routes_of(output)
        with closing(database.connect()) as session, session.cursor() as cursor:
            set_up(cursor, database, output.time_zone)
            examination = TargetExamination(cursor, database, settings, routes)
            report.good(output, examination.summary())
            for text in examination.notes():
                report.note(output, text)
            tables = [] if asked is None else [it for it in asked.tables if own.accepts(*it)]
            for text in examination.problems(tables):
                report.wrong(output, text)
            for text in () if asked is None else mismatches(cursor, routes, tables, asked.source):
                report.wrong(output, text)
    except SluiceError as error:
        report.wrong(output, error)
    except (pymysql.MySQLError, OSError) as error:
        report.wrong(output, reason(error))
