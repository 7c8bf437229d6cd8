"""The options of the data source."""

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self

from ...protocol.errors import BadParameterError
from ..calls import Start
from ..client import Client
from ..cluster import ClusterClient

TIMEOUT: Final = 30.0
"""Seconds without an answer after which a connection counts as broken."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the options say; each attribute has the name of its option, in snake case."""

    url: str = "http://127.0.0.1:11180"
    """Of the server; several of an HA group, comma separated."""
    zookeeper: str | None = None
    """Where the servers are found instead: `canal.zkServers` of theirs."""
    destination: str = "example"
    client_id: int = 1001
    """Each query needs one of its own."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """File that holds the token, on the driver and on every executor."""
    ca: Path | None = None
    """File of the certificates to trust, on the driver and on every executor."""
    verify: bool = True
    insecure: bool = False
    """Send the token over plain http to another machine."""
    retry: float = 60.0
    """Seconds for which a call is repeated that gets no answer; then the query ends."""
    filter: str | None = None
    """The tables wanted: Canal's regular expressions; None: the ``table``, or as the client is subscribed."""
    where: str | None = None
    """Conditions on rows, by table; None: as the client is subscribed."""
    table: tuple[str, str] | None = None
    """Schema and name: only the rows of this table, each column in its own type."""
    columns: tuple[tuple[str, str], ...] | None = None
    """Name and mysqlType of the columns of the table; None: those that the source has when the query is loaded."""
    metadata: tuple[str, ...] | None = None
    """Which of the columns that are not the table's the rows have; None: all."""
    time_zone: str | None = None
    """The zone that the destination writes TIMESTAMP values in; None: ask it."""
    invalid_dates: Literal["null", "error"] = "null"
    missing_columns: Literal["null", "error"] = "error"
    on_schema_change: Literal["fail", "continue"] = "fail"
    on_marker: Literal["fail", "skip"] = "fail"
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    """Of the encoded entries; at most half of what the server's ring holds, and that if not given."""
    starting_position: Start | None = None
    """Where a client that does not exist yet begins; None: the earliest change held."""
    partitions: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """Maximum number of parts of a micro-batch; the number of the driver's cores if not given."""
    from_: str | None = None
    """Of a batch: where it begins."""
    to: str | None = None
    """Of a batch: where it ends."""
    snapshot: str | None = None
    """Of a batch: the database whose tables are read, instead of the stream."""
    snapshot_password: str | None = field(default=None, repr=False)
    snapshot_password_file: Path | None = None
    """File that holds the password, on the driver."""
    snapshot_rows: int = 200_000
    """Approximate number of rows of a table that a task reads."""
    max_rows_per_second: int | None = None
    """Of a snapshot, with ``partitions`` tasks at a time."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options as Spark has them: texts, whose names it does not tell apart by case.

        Raises:
            BadParameterError: an option is unknown, or its value cannot be used.
        """
        values: dict[str, Any] = {}
        for given, text in options.items():
            name = NAMES.get(given.lower())
            if name is None:
                raise BadParameterError(f"unknown option {given!r}{_similar(given)}", given)
            attribute, read = _OPTIONS[name]
            try:
                values[attribute] = read(text)
            except ValueError as error:
                raise BadParameterError(f"option {name}: {error}", name) from None
        made = cls(**values)
        if made.zookeeper is not None and "url" in values:
            raise BadParameterError("give either url or zookeeper", "url")
        if made.token is not None and made.token_file is not None:
            raise BadParameterError("give either token or tokenFile", "token")
        for name in ("columns", "metadata"):
            if getattr(made, name) is not None and made.table is None:
                raise BadParameterError(f"option {name} goes with table", name)
        return made

    @property
    def tables(self) -> str | None:
        """The filter to subscribe with; None: that of the client stays."""
        if self.filter is None and self.table is not None:
            # A filter refuses two backslashes: most that write them do not mean one.
            return re.escape(".".join(self.table)).replace(r"\\", r"\x5c").replace(",", r"\,")
        return self.filter

    def client(self, *, retry: float | None = None, servers: Sequence[str] = ()) -> Client:
        """Make a client; nothing is sent yet. Raises BadParameterError.

        ``retry``: instead of the option's. ``servers``: URLs that somebody has found already.
        """
        token = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.read_text().strip()
            except OSError as error:
                raise BadParameterError(f"option tokenFile: {error}", "tokenFile") from None
        found = self.zookeeper is not None and not servers
        return ClusterClient(
            () if found else servers or self.url,
            self.destination,
            self.client_id,
            zookeeper=self.zookeeper if found else None,
            elect=False,
            token=token,
            ca=self.ca,
            verify=self.verify,
            insecure=self.insecure,
            timeout=TIMEOUT,
            retry=self.retry if retry is None else retry,
        )


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"true or false is expected, not {text!r}")
    return text.lower() == "true"


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a number is expected, not {text!r}") from None


def _count(text: str) -> int:
    number = _integer(text)
    if number < 1:
        raise ValueError(f"{number} is less than 1")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a number of seconds is expected, not {text!r}")
    return seconds


def _one_of(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"{' or '.join(values)} is expected, not {text!r}")
        return text.lower()

    return read


def _metadata(text: str) -> tuple[str, ...]:
    return () if text.lower() == "none" else tuple(name.strip() for name in text.split(","))


def _start(text: str) -> Start:
    """Read ``earliest``, ``oldest``, ``latest``, a position, ms since 1970, or an ISO 8601 time with its zone."""
    if text.lower() in ("earliest", "oldest", "latest"):
        return text.lower()
    if "/" in text:
        return text
    try:
        if text.isdecimal():
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(text))
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(
            "earliest, oldest, latest, a position, or a time is expected, as 2026-01-31T12:00:00Z or in ms since 1970,"
            f" not {text!r}"
        )
    return time


def _table(text: str) -> tuple[str, str]:
    schema, _, name = text.partition(".")
    if not schema or not name:
        raise ValueError(f"schema.table is expected, not {text!r}")
    return schema, name


_QUOTED: Final = r"'(?:[^'\\]|\\.|'')*+'"
_COLUMN: Final = re.compile(
    rf"""\s*+
    (?: `(?P<quoted> (?:[^`]|``)++ )` | (?P<name> [^\s,`]++ ) )
    \s++ (?P<type> (?: {_QUOTED} | \((?: {_QUOTED} | [^()'] )*+\) | [^,'()] )++ )
    (?: , | \Z )""",
    re.VERBOSE | re.DOTALL,
)


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    """Read names and types as CREATE TABLE has them, comma separated."""
    columns = []
    end = 0
    while end < len(text):
        match = _COLUMN.match(text, end)
        if match is None:
            raise ValueError(f"a name and a type are expected, as in `id bigint, name varchar(20)`: {text[end:]!r}")
        name = match["name"] or match["quoted"].replace("``", "`")
        columns.append((name, match["type"].strip()))
        end = match.end()
    if not columns:
        raise ValueError("at least one column is expected")
    return tuple(columns)


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "url": ("url", str),
    "zookeeper": ("zookeeper", str),
    "destination": ("destination", str),
    "clientId": ("client_id", _integer),
    "token": ("token", str),
    "tokenFile": ("token_file", Path),
    "ca": ("ca", Path),
    "verify": ("verify", _boolean),
    "insecure": ("insecure", _boolean),
    "retry": ("retry", _seconds),
    "filter": ("filter", str),
    "where": ("where", str),
    "table": ("table", _table),
    "columns": ("columns", _columns),
    "metadata": ("metadata", _metadata),
    "timeZone": ("time_zone", str),
    "invalidDates": ("invalid_dates", _one_of("null", "error")),
    "missingColumns": ("missing_columns", _one_of("error", "null")),
    "onSchemaChange": ("on_schema_change", _one_of("fail", "continue")),
    "onMarker": ("on_marker", _one_of("fail", "skip")),
    "maxRowsPerTrigger": ("max_rows_per_trigger", _count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _count),
    "startingPosition": ("starting_position", _start),
    "partitions": ("partitions", _count),
    "from": ("from_", str),
    "to": ("to", str),
    "snapshot": ("snapshot", str),
    "snapshotPassword": ("snapshot_password", str),
    "snapshotPasswordFile": ("snapshot_password_file", Path),
    "snapshotRows": ("snapshot_rows", _count),
    "maxRowsPerSecond": ("max_rows_per_second", _count),
}
NAMES: Final = {name.lower(): name for name in _OPTIONS}
"""The names of the options, by the same in lower case."""


def _similar(name: str) -> str:
    found = difflib.get_close_matches(name.lower(), NAMES, 1)
    return f": did you mean {NAMES[found[0]]}?" if found else ""
