"""Every error that a program can meet, each with the stable name it has in the HTTP API.

What HTTP itself cannot serve, `server/http/errors.py` has.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

LONGEST: Final = 20_000
"""Characters of the text of an error."""
TABLES_NAMED: Final = 10
"""Tables in the text of an error."""


class SluiceError(Exception):
    """Base of all errors of Sluice. ``type`` is the stable name of the problem in the HTTP API (RFC 9457).

    What others said may be a part of its text, which goes into statuses, logs and answers. So it has bounds, and what
    UTF-8 cannot have is an escape in it.
    """

    type: ClassVar[str] = "internal"

    def __str__(self) -> str:
        text = super().__str__().encode(errors="backslashreplace").decode()
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


class UnknownDestinationError(SluiceError):
    """No destination of that name is configured here."""

    type = "unknown-destination"


class DestinationStoppedError(SluiceError):
    """The destination is known but not running."""

    type = "destination-stopped"


class NotSubscribedError(SluiceError):
    """The client has not subscribed to the destination."""

    type = "not-subscribed"


class UnknownBatchError(SluiceError):
    """No outstanding batch has that id: it was acked, rolled back, or belongs to an earlier life of the destination."""

    type = "unknown-batch"


class AckOutOfOrderError(SluiceError):
    """The batch is outstanding but not the oldest one."""

    type = "ack-out-of-order"


class UnknownSnapshotError(SluiceError):
    """The client has no snapshot of that id: it was cancelled, or complete when another was begun."""

    type = "unknown-snapshot"


class SnapshotRunningError(SluiceError):
    """The client takes a snapshot, whose rows are in no range."""

    type = "snapshot-running"


class GapError(SluiceError):
    """The client does not get some changes, and nobody has confirmed that yet."""

    type = "gap"


class StaleSessionError(SluiceError):
    """A newer session of the same client id took over."""

    type = "stale-session"


class OwnedError(SluiceError):
    """The client is that of an output: nobody else takes, acknowledges or rolls back its batches, or removes it."""

    type = "owned"


class FilterError(SluiceError):
    """The filter is not a valid regular expression, or cannot match anything the instance lets through."""

    type = "filter-matches-nothing"


class BadPositionError(SluiceError, ValueError):
    """The text is not a position, or does not name a place that can exist."""

    type = "bad-position"


class SourceChangedError(SluiceError):
    """The position belongs to another source, or to a history that the source no longer has."""

    type = "source-changed"


class SwitchRefusedError(SluiceError):
    """It is not proven that the stream goes on at another source of the same data, or it cannot; all is as before."""

    type = "switch-refused"


class LostTransactionsError(SwitchRefusedError):
    """Another source of the same data lacks transactions that were delivered."""

    type = "transactions-lost"

    def __init__(self, message: str, lost: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.lost = lost
        """The first of them, by runs of their numbers."""


class GoneError(SluiceError):
    """What was asked for is neither in the ring nor readable from the source."""

    type = "gone"


class ReshapedError(SluiceError):
    """What was delivered is no longer in the log, and the source would give other changes, as configured now."""

    type = "reshaped"


class SourceError(SluiceError):
    """The source refuses, lacks a setting or privilege, or broke off."""

    type = "source-error"


class SourceMovedError(SourceError):
    """Another server answers at the address of the source than the one that was read."""


class PurgedError(SourceError):
    """The source has purged the binlog at the position."""

    type = "purged"


class TargetError(SluiceError):
    """The target of a mirror cannot be reached, refuses, or does not fit the changes."""

    type = "target-error"


class DecodeError(SluiceError):
    """Bytes of the binlog do not fit their description."""

    type = "undecodable"


class UnknownJobError(DecodeError):
    """What a DDL of TiDB has changed is not known yet: a later history of its jobs may tell."""


class SchemaMismatchError(DecodeError):
    """A column in the data has another type than in the schema it is decoded with, or is not there."""


class UnknownTableError(DecodeError):
    """The source has no such table, or the account may not see it."""

    type = "unknown-table"


class RefusedError(SluiceError):
    """An entry cannot be sent to a message queue. `entry` is its index in the batch, `schema` and `table` its table."""

    type = "refused"

    def __init__(self, message: str, entry: int, schema: str, table: str) -> None:
        super().__init__(message)
        self.entry = entry
        self.schema = schema
        self.table = table


class RecordTooLargeError(RefusedError):
    """A row, or a statement, is larger than a record may be. `key` says which row: ``id=7``."""

    type = "record-too-large"

    def __init__(self, entry: int, schema: str, table: str, key: str, size: int, limit: int) -> None:
        what = f"the row {key} of {schema}.{table}" if key else f"a change of {schema}.{table}"
        super().__init__(f"{what} is too large for a record: {size} bytes of {limit}", entry, schema, table)
        self.key = key
        self.size = size
        self.limit = limit


class MarkerError(RefusedError):
    """Rows are missing where the entry stands; `reason` says why."""

    type = "marker"

    def __init__(self, entry: int, schema: str, table: str, reason: str) -> None:
        where = f" of {schema}.{table}" if table else ""
        super().__init__(f"changes{where} are missing here: {reason}", entry, schema, table)
        self.reason = reason


class PartialRowsError(RefusedError):
    """Rows lack columns, and the form has no place to say which."""

    type = "partial-rows"

    def __init__(self, entry: int, schema: str, table: str) -> None:
        super().__init__(
            f"rows of {schema}.{table} do not have all columns: set binlog_row_image = FULL at the source, and in every"
            " session that changes its own",
            entry,
            schema,
            table,
        )


class UnfitChangeError(RefusedError):
    """The form has no place for a change; `reason` says why, and what to do."""

    type = "unfit-change"

    def __init__(self, entry: int, schema: str, table: str, reason: str) -> None:
        super().__init__(f"a change of {schema}.{table} {reason}", entry, schema, table)
        self.reason = reason


class TransactionTooLargeError(RefusedError):
    """A transaction has more than a record may have. `size` is that of what came before it was noticed."""

    type = "transaction-too-large"

    def __init__(self, entry: int, schema: str, table: str, tables: Sequence[str], size: int, limit: int) -> None:
        named = ", ".join(tables[:TABLES_NAMED]) + (" and others" if len(tables) > TABLES_NAMED else "")
        super().__init__(
            f"a transaction with changes of {named} is too large for a record: {size} bytes or more of {limit}. Raise"
            " kafka.max.request.size, and max.message.bytes of the topic, or commit more often at the source",
            entry,
            schema,
            table,
        )
        self.tables = tables
        self.size = size
        self.limit = limit


class ConfigError(SluiceError):
    """A configuration file or value is wrong."""

    type = "bad-configuration"


class NotConfiguredError(ConfigError):
    """The destination has not what a call needs: a log on disk, another source, or tables that can be read."""

    type = "not-configured"


class FencedError(SluiceError):
    """Another server has taken the destination over; ``active`` is its URL, if it is known."""

    type = "fenced"

    def __init__(self, message: str, active: str | None = None) -> None:
        super().__init__(message)
        self.active = active


class ZooKeeperError(SluiceError):
    """ZooKeeper cannot be reached, or refuses."""

    type = "zookeeper-error"


class NotStoredError(SluiceError):
    """A cursor could not be made durable yet. The ack counts, and is stored as soon as that is possible."""

    type = "not-stored"


class HistoryError(SluiceError):
    """The history of the tables cannot be read or written."""

    type = "history"


class BadParameterError(SluiceError, ValueError):
    """A parameter of a call has a value that cannot be used; ``parameter`` is its name, if it has one."""

    type = "bad-parameter"

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class BusyError(SluiceError):
    """The server is already receiving as much at once as it can handle."""

    type = "busy"


class LimitError(SluiceError):
    """There are as many clients or conditions as are allowed, or their filters are as large."""

    type = "limit"


class UnauthorizedError(SluiceError):
    """The call carries no credentials, or none that are valid."""

    type = "unauthorized"


class ForbiddenError(SluiceError):
    """The credentials are valid but do not allow this call."""

    type = "forbidden"


class TooManyAttemptsError(SluiceError):
    """Too many failed logins; ``retry_after`` is the number of seconds to wait."""

    type = "too-many-attempts"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QuotaExceededError(SluiceError):
    """The client was given as much as its quota allows for a day; ``retry_after`` is the number of seconds to wait."""

    type = "quota-exceeded"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConnectionLostError(SluiceError, ConnectionError):
    """The server could not be reached, or the connection broke and the outcome of the call is unknown."""

    type = "connection-lost"


def sentences(detail: str, advice: str) -> str:
    """Join what was wrong and what to do about it into one text; each of them may be empty."""
    return ". ".join(part for part in (detail.removesuffix("."), advice) if part)
