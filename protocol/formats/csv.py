"""Rows as CSV."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from ..canal.rows import Change, decode_changes
from .format import Format, Lines
from .messages import PROTOBUF
from .rows import json_text, plain_values, text_of


class Csv:
    """Writes rows as CSV (RFC 4180): time, type, schema, table, then the row after the change (for a DELETE, before).

    Texts are quoted, so that NULL, an empty field, differs from the empty text, ``""``. A line of names comes first.
    It comes again, after an empty line, whenever the table or its columns change.
    """

    def __init__(self) -> None:
        self._header: tuple[str, ...] | None = None

    def lines(self, change: Change) -> Iterator[str]:
        """Write the rows of a change, each with what comes before it; nothing for a change without rows."""
        if change.entry_type != "ROWDATA" or change.is_ddl or change.sql:
            return
        moment = f"{datetime.fromtimestamp(change.execute_time / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
        for row in change.rows():
            image = plain_values(row.after or row.before or {})
            header = (change.schema, change.table, *image)
            names = ""
            if header != self._header:
                names = "\n" if self._header is not None else ""
                names += ",".join(map(_field, ("time", "type", "schema", "table", *image))) + "\n"
                self._header = header
            yield names + ",".join(map(_field, (moment, row.type, change.schema, change.table, *image.values())))


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):  # true and false of a JSON column too
        return json_text(value)
    text = value if isinstance(value, str) else json_text(value)
    return '"' + text.replace('"', '""') + '"'


def _open() -> Callable[[bytes], Iterator[Sequence[str]]]:
    csv = Csv()

    def lines(body: bytes) -> Iterator[Sequence[str]]:
        for change in decode_changes(body):
            yield list(csv.lines(change))

    return lines


LINES = Lines(
    flag="csv",
    help="one line of CSV per row, after a line of names for each table",
    media_type=PROTOBUF.media_type,
    open=_open,
)
CSV = Format(
    name="csv",
    text=LINES.help,
    encode=lambda batch, _strict: text_of(LINES, batch),
    lines=LINES,
)
