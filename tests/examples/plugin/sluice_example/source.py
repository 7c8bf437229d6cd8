"""A source that reads changes as lines of JSON, which another program appends to a file.

A line is ``{"schema": "shop", "table": "items", "type": "INSERT", "row": {"id": 1, "name": "pen"}}``, or of the type
DELETE.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from sluice.instance.sources.api import (
    Entry,
    EntryType,
    EventType,
    FolderPath,
    Piece,
    RowChange,
    Settings,
    SourceError,
    framed,
    setting,
)

LONGEST = 1 << 20
"""Bytes of a line."""
TYPES = {"INSERT": EventType.INSERT, "DELETE": EventType.DELETE}


class JsonLinesSettings(Settings):
    """What can be configured of the source."""

    file: FolderPath = setting("sluice.instance.json-lines.file", Path("changes.jsonl"))
    """The file that grows. To begin anew, write a new file and rename it."""


class JsonLines:
    """Reads the lines of a file as they are written. An offset is one of the file."""

    api = 1
    title = "JSON lines in a file"
    settings = JsonLinesSettings

    def __init__(self, settings: JsonLinesSettings) -> None:
        self._path = settings.file
        try:
            self._file = settings.file.open("rb")
        except OSError as error:
            raise SourceError(f"{settings.file} cannot be read: {error.strerror}; create it") from None

    def history(self) -> str:
        """Return what tells a file from the next one of its name."""
        return str(os.fstat(self._file.fileno()).st_ino)

    def oldest(self) -> int:
        """Return the begin of the file."""
        return 0

    def end(self) -> int:
        """Return the end of the last whole line."""
        size = os.fstat(self._file.fileno()).st_size
        while size:
            begin = max(0, size - LONGEST)
            self._file.seek(begin)
            found = self._file.read(size - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            size = begin
        return 0

    def read(self, offset: int) -> Iterator[Piece | None]:
        """Give a piece for each line."""
        self._file.seek(offset)
        while True:
            line = self._file.readline(LONGEST + 1)
            if len(line) > LONGEST:
                raise SourceError(f"the line at offset {offset} has more than {LONGEST} bytes")
            if not line.endswith(b"\n"):  # the rest of it is not written yet
                self._check(offset)
                self._file.seek(offset)
                yield None
                continue
            begin, offset = offset, offset + len(line)
            yield Piece(framed([_entry(line, begin)]), offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _check(self, offset: int) -> None:
        """Raise SourceError when the file is no longer the one of that name, or is shorter."""
        try:
            found = self._path.stat()
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read: {error.strerror}") from None
        if found.st_ino != os.fstat(self._file.fileno()).st_ino or found.st_size < offset:
            raise SourceError(f"{self._path} was replaced, or cut before offset {offset}")


def _entry(line: bytes, offset: int) -> Entry:
    try:
        found = json.loads(line)
        kind = TYPES[found["type"]]
        entry = Entry(entryType=EntryType.ROWDATA)
        entry.header.schemaName, entry.header.tableName = found["schema"], found["table"]
        entry.header.eventType = kind
        change = RowChange(eventType=kind)
        row = change.rowDatas.add()
        columns = row.beforeColumns if kind == EventType.DELETE else row.afterColumns
        for number, (name, value) in enumerate(found["row"].items()):
            column = columns.add(index=number, sqlType=12, name=name, isKey=name == "id", updated=True)
            column.mysqlType, column.isNull = "text", value is None
            column.value = "" if value is None else str(value)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"the line at offset {offset} is no change: {type(error).__name__}: {error}") from None
    entry.storeValue = change.SerializeToString()
    return entry
