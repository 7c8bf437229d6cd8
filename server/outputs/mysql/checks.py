"""What can be said of an output to MySQL or MariaDB without asking the target."""

from collections.abc import Collection

from ....protocol.errors import BadParameterError, ConfigError
from ....sql.database import Database
from ..routing import Having, Name
from ..settings import PLACE, OnMarker, Output
from ..target import Complaints
from .loops import LoopGuard
from .routes import Routes
from .settings import MysqlSettings


def complaints(output: Output) -> Complaints:
    """See `Checks.complaints`."""
    settings = output.settings
    assert isinstance(settings, MysqlSettings)
    database_of(output)
    routes_of(output)
    own = f"sluice.output.{output.name}."
    wrong = {
        f"{own}onMarker = send cannot be used with type mysql: a marker is no change of a row": (
            settings.on_marker is OnMarker.SEND
        ),
        f"{own}late = true cannot be used with type mysql: late rows would overwrite newer ones": settings.late,
        "canal.instance.filter.transaction.entry = true cannot be used with type mysql, which applies whole"
        " transactions": not output.has_transactions,
        "canal.instance.parser.strictCanal = true cannot be used with type mysql: it changes values, and sends rows of"
        " XA transactions that may be rolled back": output.strict,
        "sluice.instance.sharedFilter = true cannot be used with type mysql: other clients would change which tables"
        " arrive": output.has_shared_filter,
    }
    if found := [text for text, is_wrong in wrong.items() if is_wrong]:
        raise ConfigError(f"{output}: {'; '.join(found)}")
    return Complaints([], [])


def database_of(output: Output) -> Database:
    """Return the target of an output. Raises ConfigError."""
    settings = output.settings
    assert isinstance(settings, MysqlSettings)
    try:
        return Database.of(settings.url, password=settings.password.get_secret_value())
    except BadParameterError as error:
        raise ConfigError(f"{output}: sluice.output.{output.name}.url: {error}") from None


def routes_of(output: Output) -> Routes:
    """Return where the tables of an output go. Raises ConfigError."""
    settings = output.settings
    assert isinstance(settings, MysqlSettings)
    try:
        guard = LoopGuard("", settings.channel, settings.progress)
        return Routes(settings.routes, settings.columns, settings.events, guard.owns)
    except ConfigError as error:
        raise ConfigError(f"{output}: {str(error).replace(PLACE, output.name)}") from None


def doubts(output: Output, tables: Collection[Name], having: Having) -> list[str]:
    """See `Checks.doubts`: rules that match no table, or name a column that none of theirs has."""
    routes = routes_of(output)
    found = []
    for key, rules in (("routes", routes.routes), ("columns", routes.rules)):
        found += [
            f"the rule '{rule.text}' of {key} matches none of the tables that there are"
            for rule in rules
            if tables and not any(rule.tables.accepts(*name) for name in tables)
        ]
    for rule in routes.rules:
        found += [
            f"the rule '{rule.text}' of columns names {column}, which no table has that it matches"
            for column in rule.names
            if not any(rule.tables.accepts(*name) for name in having(column))
        ]
    return found
