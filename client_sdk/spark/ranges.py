"""Reading ranges of the stream as Arrow record batches: in a form, cut for tasks, in pieces that fit memory."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ...protocol.canal.arrow import Decoder, EnvelopeDecoder, TableDecoder, arrow_type
from ...protocol.cut import parse_place
from ...protocol.errors import (
    BadParameterError,
    ConnectionLostError,
    DecodeError,
    GoneError,
    NotSubscribedError,
    PurgedError,
    ReshapedError,
    SchemaMismatchError,
    SluiceError,
    SourceChangedError,
    SourceError,
    StaleSessionError,
    UnknownTableError,
)
from ...protocol.position import Position
from ..batch import Batch, Part
from ..client import Client
from .options import Options

logger = logging.getLogger(__name__)

PIECE: Final = 16 << 20
"""Bytes of entries that are fetched and decoded at once: more than 10,000 rows, unless they are large."""
TASK: Final = 4 << 20
"""Bytes of entries that are worth a task of their own."""
PARTS: Final = 10_000
"""The most parts that the server cuts a range into."""

_ADVICE: Final[Mapping[type[SluiceError], str]] = {
    ConnectionLostError: "make the server reachable and its certificate trusted (options url, zookeeper, ca, retry),"
    " then start the query again: it resumes where it stopped",
    StaleSessionError: "this query ends, because another one was started with the same clientId: each needs its own",
    NotSubscribedError: "the clientId is that of a stream which was begun, or of a client which has subscribed",
} | dict.fromkeys(
    (PurgedError, GoneError, ReshapedError, SourceChangedError),
    "the query cannot resume from its checkpoint without losing changes: take a new snapshot of the tables, and begin a"
    " stream with a new checkpoint and a new clientId",
)


@contextlib.contextmanager
def advised() -> Iterator[None]:
    """Say in errors of the server what to do about them in Spark."""
    try:
        yield
    except tuple(_ADVICE) as error:
        raise type(error)(f"{error} In Spark: {_ADVICE[type(error)]}.") from None


_NOT_IN_ALL_ROWS: Final = (
    "rows from before a change of the table may have other columns than it has now: use missingColumns=null, or"
    " name the columns in the option columns with types that hold all values"
)


def place_of_one(text: str) -> Position:
    """Return the place of a single source: what reads a database has one. Raises BadParameterError."""
    place = parse_place(text)
    if place.is_merged:
        raise BadParameterError(
            "the destination is a group: this works on one source. Use an output of type mysql for the group, or a"
            " destination of each member",
            "destination",
        )
    return place


# --- the form of rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Envelope:
    """The rows of all tables, their images as maps of texts."""

    @property
    def table(self) -> None:
        """No table in particular."""
        return

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.decoder().schema

    def decoder(self) -> Decoder:
        """Make a decoder into this form."""
        return EnvelopeDecoder()

    def choose(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """Return what a decoder has made: all of its columns are wanted."""
        return decoded


@dataclass(frozen=True, slots=True)
class Typed:
    """The rows of one table, each column in its own type."""

    table: tuple[str, str]
    columns: tuple[tuple[str, str], ...]
    """Name and mysqlType."""
    time_zone: str
    invalid_dates: Literal["null", "error"]
    missing_columns: Literal["null", "error"]
    metadata: tuple[str, ...] | None = None
    """Which of the other columns are wanted; None: all."""

    @classmethod
    def ask(cls, options: Options, table: tuple[str, str]) -> Self:
        """Make the form for a table; what the options leave open is asked of the server."""
        columns, time_zone = options.columns, options.time_zone
        with options.client() as client:
            if columns is None:
                columns = current_columns(client, table, options.filter or "")
            else:
                check_filter(client, table, options.filter or "")
            if time_zone is None:
                time_zone = client.destination()["timeZone"]
        if not time_zone:
            if any(arrow_type(mysql_type) == pa.timestamp("us", tz="UTC") for _, mysql_type in columns):
                raise BadParameterError(
                    "the server cannot name the time zone that it writes TIMESTAMP values in: set option timeZone, or"
                    " sluice.instance.timeZone of the destination",
                    "timeZone",
                )
            time_zone = "UTC"
        return cls(table, columns, time_zone, options.invalid_dates, options.missing_columns, options.metadata)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are wanted. Raises BadParameterError."""
        fields = list(self.decoder().schema)
        metadata = {field.name: field for field in fields[: len(fields) - len(self.columns)]}
        wanted = metadata if self.metadata is None else self.metadata
        for name in wanted:
            if name not in metadata:
                raise BadParameterError(f"option metadata: {name!r} is not one of {', '.join(metadata)}", "metadata")
        return pa.schema([*(it for name, it in metadata.items() if name in wanted), *fields[len(metadata) :]])

    def choose(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that are wanted of what a decoder has made."""
        return decoded if self.metadata is None else decoded.select(self.schema.names)

    def decoder(self) -> Decoder:
        """Make a decoder into this form. Raises BadParameterError."""
        return TableDecoder(
            *self.table,
            self.columns,
            time_zone=self.time_zone,
            invalid_dates=self.invalid_dates,
            missing_columns=self.missing_columns,
        )


Form = Envelope | Typed


def form_of(options: Options) -> Form:
    """Return the form that the options ask for; the server may be asked for the columns of the table."""
    return Envelope() if options.table is None else Typed.ask(options, options.table)


def current_columns(client: Client, table: tuple[str, str], wanted: str = "") -> tuple[tuple[str, str], ...]:
    """Ask for the columns that a table has now, names and mysqlTypes.

    Raises UnknownTableError, and FilterError when the filter ``wanted`` leaves the table out.
    """
    return tuple((column.name, column.mysql_type) for column in client.columns(".".join(table), wanted))


def check_filter(client: Client, table: tuple[str, str], wanted: str) -> None:
    """Raise FilterError when a filter leaves a table out, of which nothing would ever come."""
    if wanted:
        with contextlib.suppress(UnknownTableError, SourceError):  # filters are looked at before the source is asked
            current_columns(client, table, wanted)


def difference(ours: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]) -> str:
    """Say which columns are other ones in ``theirs``, as far as it shows in Arrow."""
    old, new = dict(ours), dict(theirs)
    found = [f"{name} is gone" for name in old if name not in new]
    found += [
        f"{name} is {new[name]} instead of {old[name]}"
        for name in old
        if name in new and arrow_type(new[name]) != arrow_type(old[name])
    ]
    found += [f"{name} is new" for name in new if name not in old]
    return ", ".join(found)


# --- cutting and reading ---------------------------------------------------------------------------------------------


@dataclass
class RangePartition(InputPartition):
    """What one task reads: pieces of a range, one after the other, each from a position to another."""

    pieces: list[tuple[str, str]]
    servers: tuple[str, ...] = ()
    """URLs of the servers that the driver knows, the active one first; none: those of the options."""


def plan(client: Client, from_: str, to: str, tasks: int, size: int | None = None) -> list[RangePartition]:
    """Cut a range for at most ``tasks`` tasks: contiguous parts of about equal bytes, each in pieces that fit memory.

    ``size``: bytes of the range, at least about, where they are known.
    """
    parts = PARTS
    if size is not None:
        tasks = max(1, min(tasks, size // TASK))
        parts = min(PARTS, tasks * -(-size // (tasks * PIECE)))
        if parts == 1:
            return [RangePartition([(from_, to)], client.servers)]
    cut = client.splits(from_, to, parts)
    total = sum(part.bytes for part in cut)
    tasks = max(1, min(tasks, total // TASK))
    planned: list[list[Part]] = [[]]
    done = 0
    for part in cut:
        if done >= total * len(planned) // tasks and len(planned) < tasks:
            planned.append([])
        planned[-1].append(part)
        done += part.bytes
    return [RangePartition(_pieces(group), client.servers) for group in planned]


def _pieces(parts: Sequence[Part]) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    size = 0
    for part in parts:
        if pieces and size + part.bytes <= PIECE:
            pieces[-1] = (pieces[-1][0], part.to)
            size += part.bytes
        else:
            pieces.append((part.from_, part.to))
            size = part.bytes
    return pieces


def read(options: Options, form: Form, partition: RangePartition) -> Iterator[pa.RecordBatch]:
    """Fetch and decode a partition, piece by piece; memory holds one at a time.

    Raises:
        DecodeError: rows are missing in it, unless ``onMarker`` is ``skip``, or a value does not fit its column.
        SchemaMismatchError: a row has another column than the form.
        SluiceError: what `Client.rows` raises.
    """
    decoder = form.decoder()
    with advised(), options.client(servers=partition.servers) as client:
        for from_, to in partition.pieces:
            batch = client.rows(from_, to)
            try:
                decoded = decoder.decode(batch.data)
            except SchemaMismatchError as error:
                raise SchemaMismatchError(f"{error}; {_NOT_IN_ALL_ROWS}") from None
            if decoder.markers:
                check_markers(batch, form, options.on_marker)
            if decoded.num_rows:
                yield form.choose(decoded)


def check_markers(batch: Batch, form: Form, on_marker: Literal["fail", "skip"]) -> None:
    """Raise DecodeError for rows that are missing in a batch, or log them as a warning when they are to be skipped."""
    for marker in batch.markers():
        if form.table is not None and marker.table and (marker.schema, marker.table) != form.table:
            continue
        table = f" of {marker.schema}.{marker.table}" if marker.table else ""
        what = f"rows{table} are missing at {marker.logfile_name}:{marker.logfile_offset} ({marker.sql})"
        if on_marker == "fail":
            raise DecodeError(
                f"{what}: fix the cause, take these rows from the table or from `sluice quarantine retry`, and go on"
                " with the option onMarker=skip"
            )
        logger.warning("%s, skipped as onMarker says", what)
