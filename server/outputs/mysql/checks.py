"""What can be said of an output to MySQL or MariaDB without asking the target."""

from collections.abc import Collection

from ....protocol.errors import BadParameterError, ConfigError
from ....sql.database import Database
from ..routing import Having, Name
from ..settings import OnMarker, Output
from ..target import Complaints
from .settings import MysqlSettings


def complaints(output: Output) -> Complaints:
    """See `Checks.complaints`."""
    settings = output.settings
    assert isinstance(settings, MysqlSettings)
    database_of(output)
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


def doubts(output: Output, tables: Collection[Name], having: Having) -> list[str]:
    """See `Checks.doubts`: nothing is doubtful that the target is not asked."""
    del output, tables, having
    return []
