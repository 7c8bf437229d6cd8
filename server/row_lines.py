"""Changes as lines for programs: typed JSON, a line for each row or DDL, and CSV, a line for each row."""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from sluice.protocol.rows import Change
from sluice.protocol.types import JSON_NULL, JsonNull


def sql_time(value: timedelta) -> str:
    """Write a TIME as SQL does: ``-838:59:59``, and the fraction of a second where there is one."""
    micros = abs(value) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{'-' if value < timedelta() else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def json_lines(change: Change) -> Iterator[str]:
    """Write a change as JSON objects: one for each row, or one for a DDL or a marker; none for a transaction's ends.

    ``time`` is when it was executed, in UTC. DECIMAL, dates and times are texts as SQL writes them, bytes are base64, a
    SET is a list. SQL's NULL is null; ``jsonNull`` names the columns that hold the JSON document ``null``.
    """
    if change.entry_type != "ROWDATA":
        return
    moment = datetime.fromtimestamp(change.execute_time / 1000, UTC).isoformat(timespec="milliseconds")
    common: dict[str, Any] = {"time": moment, "type": change.type, "schema": change.schema, "table": change.table}
    if change.gtid:
        common["gtid"] = change.gtid
    if change.xa is not None:
        common["xa"] = change.xa._asdict()
    if change.is_ddl or change.sql:
        yield _json({**common, "isDdl": change.is_ddl, "sql": change.sql})
        return
    for row in change.rows():
        images = {"before": row.before, "after": row.after}
        line = common | {name: image and _plain_values(image) for name, image in images.items()}
        null = [
            f"{name}.{it}"
            for name, image in images.items()
            for it, value in (image or {}).items()
            if value is JSON_NULL
        ]
        yield _json(line | {"jsonNull": null} if null else line)


class Csv:
    """Writes rows as CSV (RFC 4180): time, type, schema, table, then the row as it is, of a DELETE as it was.

    Texts are quoted, so that NULL, which is nothing, is not the empty text, which is ``""``. A line of names comes
    first, and again, after an empty one, whenever the table or its columns are others than before.
    """

    def __init__(self) -> None:
        self._header: tuple[str, ...] | None = None

    def lines(self, change: Change) -> Iterator[str]:
        """Write the rows of a change; nothing of other changes."""
        if change.entry_type != "ROWDATA" or change.is_ddl or change.sql:
            return
        moment = f"{datetime.fromtimestamp(change.execute_time / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
        for row in change.rows():
            image = _plain_values(row.after or row.before or {})
            header = (change.schema, change.table, *image)
            if header != self._header:
                if self._header is not None:
                    yield ""
                self._header = header
                yield ",".join(map(_field, ("time", "type", "schema", "table", *image)))
            yield ",".join(map(_field, (moment, row.type, change.schema, change.table, *image.values())))


def _plain_values(image: Mapping[str, Any]) -> dict[str, Any]:
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


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):  # true and false of a JSON column too
        return _json(value)
    text = value if isinstance(value, str) else _json(value)
    return '"' + text.replace('"', '""') + '"'
