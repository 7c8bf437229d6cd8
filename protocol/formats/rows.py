"""Typed rows as JSON lines: one for each row, or one for a DDL or a marker."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from ..canal.rows import Change, decode_changes
from ..canal.types import JSON_NULL, JsonNull
from .format import BytesLike, Encodable, Format, Lines
from .messages import PROTOBUF


def sql_time(value: timedelta) -> str:
    """Write a TIME as SQL does: ``-838:59:59``, and the fraction of a second if it has one."""
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{'-' if value < timedelta() else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def json_lines(change: Change) -> Iterator[str]:
    """Write a change as JSON objects: one for each row, or one for a DDL or a marker; none for a transaction's ends.

    ``time`` is when it was executed, in UTC. DECIMAL, dates and times are texts as SQL writes them, bytes are base64, a
    SET is a list. SQL's NULL is null; ``jsonNull`` names the columns whose value is the JSON document ``null``.
    """
    if change.entry_type != "ROWDATA":
        return
    moment = datetime.fromtimestamp(change.execute_time / 1000, UTC).isoformat(timespec="milliseconds")
    common: dict[str, Any] = {"time": moment, "type": change.type, "schema": change.schema, "table": change.table}
    if change.gtid:
        common["gtid"] = change.gtid
    if change.xa is not None:
        common["xa"] = change.xa._asdict()
    if change.late is not None:
        common["late"] = change.late
    if change.snapshot is not None:
        common["snapshot"] = change.snapshot
    if change.is_ddl or change.sql:
        yield json_text({**common, "isDdl": change.is_ddl, "sql": change.sql})
        return
    for row in change.rows():
        images = {"before": row.before, "after": row.after}
        line = common | {name: image and plain_values(image) for name, image in images.items()}
        null = [
            f"{name}.{it}"
            for name, image in images.items()
            for it, value in (image or {}).items()
            if value is JSON_NULL
        ]
        yield json_text(line | {"jsonNull": null} if null else line)


def plain_values(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return an image with values that JSON can hold; bytes are base64, times are texts as SQL writes them."""
    return {name: _plain(value) for name, value in image.items()}


def _plain(value: Any) -> Any:
    match value:
        case JsonNull():
            return None
        case timedelta():
            return sql_time(value)
        case datetime() | date() | Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case frozenset() | set():
            return sorted(map(str, value))
        case _:
            return value


def json_text(value: Any) -> str:
    """Write a value as JSON; what JSON does not have becomes a text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _lines(body: bytes) -> Iterator[Sequence[str]]:
    for change in decode_changes(body):
        yield list(json_lines(change))


def text_of(lines: Lines, batch: Encodable) -> list[BytesLike]:
    """Write a batch as its lines."""
    body = b"".join(PROTOBUF.encode(batch, False))
    return ["".join(f"{line}\n" for found in lines.open()(body) for line in found).encode()]


LINES = Lines(
    flag="rows",
    help="one JSON object per row, its values typed, and one per DDL",
    media_type=PROTOBUF.media_type,
    open=lambda: _lines,
)
ROWS = Format(
    name="rows",
    text=LINES.help,
    encode=lambda batch, _strict: text_of(LINES, batch),
    lines=LINES,
)
