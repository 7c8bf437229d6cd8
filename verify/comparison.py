"""Two decoders, one binlog: a range of it is decoded by Sluice and by pymysqlreplication, and compared value by value.

Both dump the range from the source on their own. A rows event gives one entry, so the two streams are walked in step;
where the other decoder cannot read an event or a value, that is counted by its reason and passed over on our side.
What a table map of the binlog leaves out (names, signedness, charsets, labels), the other decoder is told from
information_schema, since it knows no other source of it.
"""

import contextlib
import json
import logging
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE
from pymysqlreplication.event import NotImplementedEvent
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from ..instance.columns import SourceColumn
from ..instance.config import InstanceConfig
from ..instance.source import Findings
from ..instance.sources.mysql import control, schema
from ..instance.sources.mysql.config import MysqlConfig
from ..instance.sources.mysql.connection import Connection, login_arguments
from ..instance.sources.mysql.dump import FIRST_EVENT, Replica
from ..instance.sources.mysql.parser import Parser
from ..instance.sources.mysql.schema import InformationSchema
from ..login.session import MysqlSession
from ..protocol import props
from ..protocol.canal.entry_pb2 import RowChange
from ..protocol.canal.rows import Change, decode_changes
from ..protocol.canal.types import JsonExpression, JsonNull, labels_of
from ..protocol.errors import ConfigError, DecodeError, SourceError
from ..protocol.position import Position, file_number
from ..store.ring import Ring

PATIENCE = 60.0
"""Seconds that our decoder may take for the next entry."""
CHUNK = 1 << 20
"""Bytes of entries that are taken from the ring at once."""

EVENT_NAMES = {WriteRowsEvent: "INSERT", UpdateRowsEvent: "UPDATE", DeleteRowsEvent: "DELETE"}
READABLE = frozenset(number for name, number in vars(FIELD_TYPE).items() if name.isupper())
"""Types of columns whose metadata the other decoder reads; after any other type it reads nonsense."""
TRANSACTION_PAYLOAD = 40
MARIADB_COMPRESSED_ROWS = range(166, 172)


@dataclass(frozen=True, slots=True, order=True)
class BinlogPlace:
    """An offset in a binlog file."""

    number: int
    offset: int
    file: str = field(compare=False)

    @classmethod
    def of(cls, file: str, offset: int) -> "BinlogPlace":
        """Make a place; files are ordered by the number at the end of their name."""
        return cls(file_number(file), offset, file)

    @classmethod
    def parse(cls, text: str) -> "BinlogPlace":
        """Read ``file``, ``file:offset``, or a position. Raises ConfigError."""
        if "/" in text:
            position = Position.parse(text)
            return cls.of(position.file, position.begin)
        file, _, offset = text.partition(":")
        if not file.rpartition(".")[2].isdecimal() or (offset and not offset.isdecimal()):
            raise ConfigError(f"{text!r} is not a place in a binlog; write mysql-bin.000003 or mysql-bin.000003:4096")
        return cls.of(file, int(offset or FIRST_EVENT))

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(slots=True)
class Report(Findings):
    """What a comparison with another decoder found."""

    events: int = 0
    rows: int = 0
    values: int = 0
    """Values that both decoders read."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let loggers say nothing of what the report names: what goes into quarantine, or is decoded wrongly."""
    levels = {
        "pymysqlreplication": logging.ERROR,  # it advises on settings that it is told here
        control.__name__: logging.CRITICAL,
        schema.__name__: logging.CRITICAL,
    }
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def compare(
    config: InstanceConfig, start: str | None, stop: str | None, advance: Callable[[str, int, int], None]
) -> Report:
    """Compare the decoders over a range: places are FILE, FILE:OFFSET, or positions.

    None is the begin of the last binlog file, and its current end. ``advance`` is told where in the source it is, and
    how many bytes of how many that are.

    Raises SourceError, and ConfigError for a source of another kind or a range that the source does not have.
    """
    if not isinstance(config, MysqlConfig):
        title = config.source_title
        raise ConfigError(f"{config.destination}: {title} as a source cannot be compared with another decoder")
    with _quiet(), contextlib.closing(Connection(config)) as connection:
        return _compare(config, connection, start, stop, advance)


def _compare(
    config: MysqlConfig,
    connection: Connection,
    start: str | None,
    stop: str | None,
    advance: Callable[[str, int, int], None],
) -> Report:
    connection.check(config)
    file, offset, _gtids = connection.end_of_binlog()
    files = dict(connection.binlog_files())
    begin = BinlogPlace.parse(start) if start else BinlogPlace.of(file, FIRST_EVENT)
    end = min(BinlogPlace.parse(stop) if stop else BinlogPlace.of(file, offset), BinlogPlace.of(file, offset))
    for place in (begin, end):
        if place.file not in files:
            raise ConfigError(f"the source has no binlog file {place.file}, but {', '.join(files)}")
    if begin > end:
        raise ConfigError(f"the range ends at {end}, before it begins at {begin}")

    report = Report(str(begin), str(end))
    clock = time.monotonic()
    sizes = {name: size for name, size in files.items() if begin.number <= BinlogPlace.of(name, 0).number <= end.number}

    def pass_place(place: BinlogPlace) -> None:
        before = sum(size for name, size in sizes.items() if BinlogPlace.of(name, 0).number < place.number)
        advance(place.file, before + place.offset, sum(sizes.values()))

    with (
        TemporaryDirectory(prefix="sluice-verify-") as folder,
        Ours(_unfiltered(config, begin, Path(folder))) as ours,
    ):
        Comparison(config, (begin, end), report, ours, mariadb=connection.facts.mariadb).run(pass_place)
    report.seconds = time.monotonic() - clock
    return report


class Ours:
    """The changes of rows as Sluice decodes them, and markers where it cannot, in the order of the binlog."""

    def __init__(self, config: MysqlConfig) -> None:
        """Read from where ``config`` says."""
        self._ring = Ring()
        self._put = threading.Event()
        self._ring.on_put = self._put.set
        self._error = ""
        self._waiting: list[Change] = []
        self._sequence = 0
        self._parser = Parser(
            config,
            self._ring,
            start=None,
            on_begin=lambda _position, _gtids: None,
            on_state=self._on_state,
            moves_xa=False,  # as the other decoder
        )

    def __enter__(self) -> Self:
        self._parser.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._parser.stop()
        self._ring.close()
        self._parser.join(PATIENCE)

    def peek(self) -> Change:
        """Return the next change and leave it there. Raises DecodeError when Sluice cannot decode on, SourceError."""
        deadline = time.monotonic() + PATIENCE
        while not self._waiting:
            self._put.clear()
            if not self._collect() and not self._put.wait(0.1):
                if self._error:
                    raise DecodeError(self._error)
                if time.monotonic() > deadline:
                    raise SourceError(f"no entry came for {PATIENCE:g} s, although the other decoder has one")
        return self._waiting[-1]

    def take(self) -> Change:
        """Return the next change and go on after it."""
        change = self.peek()
        self._waiting.pop()
        return change

    def _collect(self) -> bool:
        collected = self._ring.collect(self._sequence, max_bytes=CHUNK)
        data = b"".join(collected.slices)
        self._sequence = collected.stop
        self._waiting = [
            change
            for change in decode_changes(data)
            if change.entry_type == "ROWDATA" and (change.type in ROW_TYPES or props.QUARANTINE in change.header_props)
        ][::-1]
        collected.slices.clear()
        self._ring.free_to(self._sequence)
        return collected.stop > collected.start

    def _on_state(self, state: str, text: str) -> None:
        self._error = text if state == "error" else ""


ROW_TYPES = frozenset(EVENT_NAMES.values())
IMAGES = {
    "INSERT": (("after", ""),),
    "UPDATE": (("before", "before_"), ("after", "after_")),
    "DELETE": (("before", ""),),
}
"""The images of a row, each with what the other decoder puts before the names of its parts."""


def _unfiltered(config: MysqlConfig, start: BinlogPlace, folder: Path) -> MysqlConfig:
    """Make a configuration that reads everything from ``start`` on and writes into ``folder`` alone."""
    settings = {
        name: model_field.default
        for name, model_field in MysqlConfig.model_fields.items()
        if name.startswith(("filter_", "group_", "memory_"))
    }
    return config.model_copy(
        update=settings
        | {
            "master_journal_name": start.file,
            "master_position": start.offset,
            "master_timestamp": None,
            "master_gtid": None,
            "gtid_on": False,
            "slave_id": 0,
            "meta": "memory",
            "file_data_dir": folder,
            "quarantine": True,
            "strict_canal": False,
            "time_zone": "UTC",  # which is how the other decoder writes TIMESTAMP
        }
    )


class Comparison:
    """Walks both streams in step."""

    def __init__(
        self,
        config: MysqlConfig,
        between: tuple[BinlogPlace, BinlogPlace],
        report: Report,
        ours: Ours,
        *,
        mariadb: bool,
    ) -> None:
        self._config = config
        self._begin, self._end = between
        self._report = report
        self._ours = ours
        self._mariadb = mariadb
        self._schemas = InformationSchema(lambda: Connection(config))
        self._told: dict[int, list[SourceColumn]] = {}  # by table id, what the other decoder was told

    def run(self, advance: Callable[[BinlogPlace], None]) -> None:
        """Compare until the end of the range; ``advance`` is told how far it is."""
        try:
            for event, place in self._theirs(advance):
                if isinstance(event, TableMapEvent):
                    self._complete(event)
                elif isinstance(event, RowsEvent):
                    self._compare_event(event, place)
                else:
                    self._pass_over(event, place)
        except DecodeError as error:
            self._report.differs(f"Sluice stops: {error}")
        finally:
            self._schemas.close()

    def _theirs(self, advance: Callable[[BinlogPlace], None]) -> Iterator[tuple[Any, BinlogPlace]]:
        """Yield the other decoder's events that matter, each with its end."""
        arguments = login_arguments(self._config, self._config.master_address)
        reader = BinLogStreamReader(
            connection_settings=arguments,
            pymysql_wrapper=MysqlSession,
            server_id=Replica.unique().server_id,
            resume_stream=True,
            log_file=self._begin.file,
            log_pos=self._begin.offset,
            only_events=(*EVENT_NAMES, PartialUpdateRowsEvent, TableMapEvent, NotImplementedEvent),
            filter_non_implemented_events=False,
            enable_logging=False,
        )
        try:
            while (event := self._next(reader)) is not None:
                # Within a transaction MariaDB 11.8 writes no offsets: then this is the last one known.
                place = BinlogPlace.of(reader.log_file, reader.log_pos)
                if place > self._end:
                    return
                if not isinstance(event, NotImplementedEvent) or _holds_rows(event):
                    yield event, place
                advance(place)
        finally:
            reader.close()

    def _next(self, reader: BinLogStreamReader) -> Any:
        try:
            return reader.fetchone()
        except Exception as error:  # noqa: BLE001  whatever it fails with, it cannot read on
            place = f"{reader.log_file}:{reader.log_pos}"
            self._report.differs(f"pymysqlreplication cannot read on after {place}: {type(error).__name__}: {error}")
            return None

    def _complete(self, event: TableMapEvent) -> None:
        """Tell the other decoder what the table map does not say."""
        self._told.pop(event.table_id, None)
        if all(column.name for column in event.columns):
            return
        try:
            known = self._schemas.fetch(event.schema, event.table).columns
        except DecodeError:
            return  # dropped since: columns are then compared by their place
        self._told[event.table_id] = known
        for theirs, ours in zip(event.columns, known, strict=False):
            theirs.name = ours.name
            theirs.unsigned = ours.is_unsigned
            theirs.character_set_name = ours.charset or "binary"
            if ours.data_type == "enum":
                theirs.enum_values = ["", *labels_of(ours.mysql_type)]
            elif ours.data_type == "set":
                theirs.set_values = list(labels_of(ours.mysql_type))

    def _compare_event(self, event: RowsEvent, place: BinlogPlace) -> None:
        change = self._ours.take()
        name = f"{event.schema}.{event.table}"
        where = f"{name} at {change.logfile_name}:{change.logfile_offset}"
        kind = next((text for of, text in EVENT_NAMES.items() if isinstance(event, of)), None)
        at = place.offset - event.packet.event_size
        if (change.schema, change.table) != (event.schema, event.table) or (
            event.packet.log_pos and change.logfile_offset != at
        ):
            raise DecodeError(f"the decoders are out of step: {where} against {name} at {place.file}:{at}")
        self._report.events += 1
        if reason := change.header_props.get(props.QUARANTINE):
            self._report.differs(f"{where} goes into quarantine: {reason}")
            return
        rows = change.rows()
        if kind is None:
            self._report.unread["rows of partial JSON updates"] += len(rows)
            return
        if self._was_altered(change, self._told.get(event.table_id)):
            self._report.unread["rows of tables that were altered since"] += len(rows)
            return
        columns = event.table_map[event.table_id].columns
        if strange := sorted({column.type for column in columns} - READABLE):
            self._report.unread[f"rows of {name}: it has columns of the types {strange}"] += len(rows)
            return
        try:
            theirs = event.rows
        except Exception as error:  # noqa: BLE001  whatever it fails with, it cannot read the event
            self._report.unread[f"rows of {name}: {type(error).__name__} of pymysqlreplication"] += len(rows)
            return
        if (change.type, len(rows)) != (kind, len(theirs)):
            self._report.differs(f"{where}: {len(rows)} rows of {change.type}, not {len(theirs)} of {kind}")
            return
        self._report.rows += len(rows)
        for number, (our_row, their_row) in enumerate(zip(rows, theirs, strict=True), 1):
            for image, prefix in IMAGES[kind]:
                self._compare_image(
                    f"{where}, row {number} {image}",
                    columns,
                    getattr(our_row, image) or {},
                    their_row[f"{prefix}values"],
                    their_row[f"{prefix}none_sources"],
                )

    @staticmethod
    def _was_altered(change: Change, told: list[SourceColumn] | None) -> bool:
        """Whether Sluice knows other columns, of the time of the rows, than the other decoder was told."""
        if told is None:
            return False
        rows = RowChange.FromString(change.raw).rowDatas
        columns = [it for row in rows[:1] for it in (*row.beforeColumns, *row.afterColumns)]
        return any(
            it.index >= len(told) or (it.name, it.mysqlType) != (told[it.index].name, told[it.index].mysql_type)
            for it in columns
        )

    def _compare_image(
        self, where: str, columns: list[Any], ours: dict[str, Any], theirs: dict[str, Any], nones: dict[str, str]
    ) -> None:
        present = [column for column in columns if nones.get(column.name) != NONE_SOURCE.COLS_BITMAP]
        if len(present) != len(ours):
            self._report.differs(f"{where}: {len(ours)} columns, not {len(present)}")
            return
        for column, (name, value) in zip(present, ours.items(), strict=True):
            if column.name is None:
                self._report.unread["values of tables that no longer exist"] += 1
                continue
            if column.name != name:
                self._report.differs(f"{where}: column {name!r}, not {column.name!r}")
                continue
            verdict = compare_values(column, value, theirs[name], nones.get(name, ""))
            if verdict is True:
                self._report.values += 1
            elif verdict is False:
                self._report.differs(f"{where}, column {name}: {value!r}, not {theirs[name]!r}")
            else:
                self._report.unread[f"values: {verdict}"] += 1

    def _pass_over(self, event: NotImplementedEvent, place: BinlogPlace) -> None:
        """Skip on our side what an event holds that the other decoder does not know."""
        if event.event_type != TRANSACTION_PAYLOAD:
            self._report.unread["rows of MariaDB's compressed events"] += len(self._ours.take().rows())
            return
        begin = place.offset - event.packet.event_size
        while True:
            change = self._ours.peek()
            if (change.logfile_name, change.logfile_offset) != (place.file, begin):
                return
            self._report.unread["rows of compressed transactions"] += len(self._ours.take().rows())


def _holds_rows(event: Any) -> bool:
    return isinstance(event, NotImplementedEvent) and (
        event.event_type == TRANSACTION_PAYLOAD or event.event_type in MARIADB_COMPRESSED_ROWS
    )


def compare_values(column: Any, ours: Any, theirs: Any, none_source: str) -> bool | str:  # noqa: C901, PLR0912  a list of cases
    """Compare a value as both decoders have it; a text says why the other one cannot be asked.

    ``column`` is the other decoder's description, ``none_source`` its reason for a None.
    """
    if none_source in OUT_OF_RANGE:
        return "zero or invalid dates" if isinstance(ours, str) else False
    if isinstance(ours, JsonNull):
        return theirs is None  # which it has for SQL's NULL as well
    if ours is None or (theirs is None and none_source == NONE_SOURCE.NULL):
        return ours is None and theirs is None
    if isinstance(ours, JsonExpression):
        return "partial JSON updates"
    match column.type:
        case FIELD_TYPE.FLOAT:
            return struct.pack("<f", ours) == struct.pack("<f", theirs)
        case FIELD_TYPE.YEAR:
            return bool(ours == (0 if theirs == ZERO_YEAR else theirs))
        case FIELD_TYPE.BIT:
            return bool(ours == int(theirs, 2))
        case FIELD_TYPE.ENUM if theirs is None:
            return "ENUMs without labels"
        case FIELD_TYPE.SET:
            return "SETs without labels" if column.set_values is None else ours == frozenset(theirs or ())
        case FIELD_TYPE.TIMESTAMP | FIELD_TYPE.TIMESTAMP2 if isinstance(ours, str):
            return "zero timestamps" if theirs == EPOCH else False
        case FIELD_TYPE.TIME if ours < timedelta(0):
            return "negative TIMEs from before MySQL 5.6.4"
        case FIELD_TYPE.TIME2 if ours < timedelta(0) and ours.microseconds:
            return "negative TIMEs with a fraction"
        case FIELD_TYPE.JSON:
            ours, theirs = as_json(ours), as_json(theirs)
            if ours != theirs and NEGATIVE_TIME.search(ours):
                return "negative TIMEs inside JSON"
            return "binary values inside JSON" if "base64:type" in ours else bool(ours == theirs)
    stripped = theirs == "" and column.character_set_name == "binary"
    if isinstance(ours, str) and (isinstance(theirs, bytes) or stripped):
        return "texts and addresses in a form that it leaves as bytes"  # from which it strips zeros at the end
    if isinstance(ours, str) and column.character_set_name == "utf16":
        return "texts in UTF-16, which it reads in the other order of bytes"
    if isinstance(ours, bytes) and column.type == FIELD_TYPE.STRING:
        ours = ours.rstrip(b"\0")  # a BINARY is sent without the zeros at its end
    if not ours and not theirs and isinstance(ours, bytes):
        return True  # it gives the empty binary value as a text
    return type(ours) is type(theirs) and bool(ours == theirs)


OUT_OF_RANGE = (
    NONE_SOURCE.OUT_OF_DATE_RANGE,
    NONE_SOURCE.OUT_OF_DATETIME_RANGE,
    NONE_SOURCE.OUT_OF_DATETIME2_RANGE,
)
NEGATIVE_TIME = re.compile(r'"-\d\d+:\d\d:\d\d\.\d{6}"')
ZERO_YEAR = 1900  # the other decoder adds 1900 to the 0 that stands for 0000
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  it writes UTC without saying so


def as_json(value: Any) -> str:
    """Write a JSON value so that what both decoders read of it is equal, whatever they read it into."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {_plain(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case bytes():
            return value.decode(errors="replace")
        case Decimal():
            return float(value)
        case float():
            return value + 0.0  # of MySQL 5.7 the zero has no sign: it shows -0, an integer
        case datetime():
            return value.isoformat(" ", "microseconds")
        case date():
            return value.isoformat()
        case clock():
            return value.isoformat("microseconds")
        case bool() | None:
            return value
        case int():
            return float(value) if abs(value) < 1 << 53 else value
        case _:
            return value
