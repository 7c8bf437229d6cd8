"""A batch of changes."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from ..protocol import props
from ..protocol.canal.arrow import Decoder, EnvelopeDecoder, TableDecoder, columns_of
from ..protocol.canal.rows import Change, Row, decode_changes, decode_rows, occurs_in_header
from ..protocol.errors import BadParameterError
from ..protocol.formats import FORMATS, PROTOBUF

if TYPE_CHECKING:
    import pyarrow as pa

    from ..protocol.canal.entry_pb2 import Entry

InvalidDates = Literal["text", "null"]
"""What a date that Python cannot hold (``0000-00-00``) becomes: its text, or None."""

logger = logging.getLogger(__name__)

EMPTY = -1  # the id of a batch without entries


@dataclass(slots=True)
class Batch:
    """What one get returned; false when it holds nothing. Iterating over it gives its rows.

    Each call decodes again. `DecodeError` says that a value does not fit its column's type.
    """

    batch_id: int
    """Its mark, -1 without entries; ascending, and never used again."""
    from_: str
    """Position of the first entry."""
    to: str
    """Position after the last entry."""
    data: bytes = field(repr=False)
    """Canal's ``Messages``, as received."""
    invalid_dates: InvalidDates = field(default="text", repr=False)
    acked: bool = field(default=False, compare=False)
    """Whether this client has acked it."""

    def __bool__(self) -> bool:
        return self.batch_id != EMPTY

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    def changes(self) -> list[Change]:
        """All entries, in order: changes of rows, and what has no rows: DDL, TRUNCATE, the ends of transactions.

        Markers are logged as warnings: rows are missing where they stand.
        """
        self._warn()
        return self._changes()

    def rows(self) -> list[Row]:
        """All rows, in order; of a DDL or a TRUNCATE there are none. Markers are logged as by `changes`."""
        self._warn()
        return decode_rows(self.data, invalid_dates=self.invalid_dates)

    def to_arrow(
        self,
        table: str | None = None,
        columns: Iterable[tuple[str, str]] | None = None,
        *,
        time_zone: str = "UTC",
        invalid_dates: Literal["null", "error"] = "null",
        missing_columns: Literal["null", "error"] = "error",
        split_keys: bool = True,
    ) -> "pa.RecordBatch":
        """Return all rows as an Arrow record batch; needs ``sluice-cdc[arrow]``. Markers are logged as by `rows`.

        The names and types of its columns stand in docs/arrow-types.md.

        Args:
            table: ``schema.table``: the rows of this table, each column in its own type; else those of all tables,
                their images as maps of names to texts. The other arguments but ``split_keys`` go with a table.
            columns: name and mysqlType of the columns wanted; those that are found in the batch when not given.
            time_zone: the zone that the destination writes TIMESTAMP values in (``sluice.instance.timeZone``).
            invalid_dates: what ``0000-00-00`` and the like become.
            missing_columns: what a column becomes that a row does not have (binlog_row_image is not FULL).
            split_keys: whether an UPDATE of a primary key becomes a DELETE and an INSERT.

        Raises:
            DecodeError: a value does not fit its column's type.
            SchemaMismatchError: a column has another type than in ``columns``, changes it within the batch, or has no
                value in a row.
            ImportError: pyarrow is not installed.
        """
        decoder: Decoder
        if table is None:
            decoder = EnvelopeDecoder(split_keys=split_keys)
        else:
            schema, _, name = table.partition(".")
            decoder = TableDecoder(
                schema,
                name,
                columns_of(self.data, schema, name) if columns is None else columns,
                time_zone=time_zone,
                invalid_dates=invalid_dates,
                missing_columns=missing_columns,
                split_keys=split_keys,
            )
        decoded = decoder.decode(self.data)
        if decoder.markers:
            self._warn()
        return decoded

    def _warn(self) -> None:
        for marker in self.markers():
            logger.warning("rows are missing at %s:%d: %s", marker.logfile_name, marker.logfile_offset, marker.sql)

    def _changes(self) -> list[Change]:
        return decode_changes(self.data, invalid_dates=self.invalid_dates)

    def markers(self) -> list[Change]:
        """Return the entries that replace rows that could not be decoded, or a gap; ``sql`` says why."""
        if not occurs_in_header(self.data, b"sluice."):
            return []
        return [it for it in self._changes() if not it.header_props.keys().isdisjoint(props.MARKERS)]

    def encode(self, form: str = "json") -> bytes:
        """Return the batch in a format: ``json``, ``ndjson``, ``protobuf``, ``arrow``, ``rows`` or ``csv``.

        Markers are in it as in the stream.

        Raises:
            BadParameterError: there is no such format.
            DecodeError: a value does not fit its column's type.
            ImportError: the format needs a package that is not installed.
        """
        found = next((it for it in FORMATS if it.name == form), None)
        if found is None:
            names = ", ".join(it.name for it in FORMATS)
            raise BadParameterError(f"{form!r} is not a format: use one of {names}", "form")
        return self.data if found is PROTOBUF else b"".join(found.encode(self, False))

    @property
    def slices(self) -> list[bytes]:
        """The entries as formats take them (`sluice.protocol.formats.format.Encodable`)."""
        return [self.data]

    @property
    def positions(self) -> bytes:
        """They stand in `data`."""
        return b""

    def entries(self) -> "list[Entry]":
        """Return all entries as Canal's protobuf objects, whatever they are; needs ``sluice-cdc[protobuf]``."""
        try:
            from ..protocol.canal.entry_pb2 import Entry  # noqa: PLC0415  most consumers never need it
            from ..protocol.canal.packet_pb2 import Messages  # noqa: PLC0415
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("google"):
                raise
            raise ImportError(
                "entries as protobuf objects need protobuf: pip install 'sluice-cdc[protobuf]'"
            ) from error

        return [Entry.FromString(entry) for entry in Messages.FromString(self.data).messages]


@dataclass(frozen=True, slots=True)
class Range:
    """A range that was marked: read it by `rows`, in parts if it is large, then ack ``to``."""

    batch_id: int
    """Its mark; -1 when there is nothing to ack."""
    from_: str
    to: str
    """Where it ends: the next one begins there."""
    entries: int
    rows: int
    bytes: int
    """Of the encoded entries."""
    partial: bool
    """It ends inside a transaction: the durable cursor stays before that one."""
    reached: bool
    """Nothing wanted is between its end and the ``until`` of the call; without that, ``latest``."""
    latest: str
    """End position of the source at the time of the call; empty if it could not be read."""
    acked: str
    """Position up to which everything is acked."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Make it from the answer of the server."""
        return cls(
            answer["batchId"],
            answer["from"],
            *(answer[name] for name in ("to", "entries", "rows", "bytes", "partial", "reached", "latest", "acked")),
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a range."""

    from_: str
    to: str
    entries: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Make it from the answer of the server."""
        return cls(*(answer[name] for name in ("from", "to", "entries", "rows", "bytes")))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    mysql_type: str
    """As ``information_schema`` writes it: ``bigint(20) unsigned``."""
    is_key: bool
    """It is part of the primary key."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Make it from the answer of the server."""
        return cls(answer["name"], answer["mysqlType"], answer["isKey"])
