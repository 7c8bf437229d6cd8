"""Logs: one line an event, with its destination, without secrets; as text for people, as JSON for machines."""

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

from ..instance.context import current_destination
from ..protocol.errors import SluiceError

HIDDEN = "***"
SHORTEST_SECRET = 4  # characters; hiding every place of a shorter one would make logs unreadable, and it hides nothing


class LogLevel(StrEnum):
    """The least serious events that are logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogFormat(StrEnum):
    """How events are logged: as lines for people, or as a JSON object each."""

    TEXT = "text"
    JSON = "json"


COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
PLAIN = "\x1b[0m"

# What looks like a secret, for texts of libraries; our own texts have none. The group is kept.
PATTERNS = (
    re.compile(r"(\bsluice_[0-9a-f]+_)[\w-]+"),  # a token; its id may show
    re.compile(r"(\bbearer\s+)[^\s'\",]+", re.IGNORECASE),
    re.compile(
        r"(\b\w*(?:password|passwd|secret)\w*(?:\s*=|['\"]\s*:)\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,;)}\]]+)", re.IGNORECASE
    ),
    re.compile(r"(\b(?:IDENTIFIED\s+(?:WITH\s+\S+\s+)?(?:BY|AS)\s+))(?:'[^']*'|\"[^\"]*\")", re.IGNORECASE),
    re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)"),
)
STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "destination"}


class Redactor:
    """Takes secrets out of texts: those it was told, and what looks like one."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def hide(self, secret: str) -> None:
        """Hide ``secret`` wherever it appears from now on."""
        if len(secret) >= SHORTEST_SECRET and secret not in self._secrets:
            self._secrets.add(secret)
            longest_first = sorted(self._secrets, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __call__(self, text: str) -> str:
        """Return ``text`` without secrets."""
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        for pattern in PATTERNS:
            text = pattern.sub(rf"\1{HIDDEN}", text)
        return text


redactor = Redactor()
"""The process's own; a password is told to it when it is read."""


# Besides C0 and C1: what ends a line for some readers, and what turns the direction of a text.
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str, keep: str = "") -> str:
    """Spell out the control characters of a text, but those to ``keep``: they would end lines and drive terminals."""
    return CONTROLS.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def json_line(value: Any) -> str:
    """Return a value as JSON in one line for every reader, in its own script."""
    return escaped(json.dumps(value, ensure_ascii=False))


def escaped(text: str, keep: str = "") -> str:
    """Write the control characters of a text, but those to ``keep``, as JSON has them in its texts."""
    return CONTROLS.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


def one_line(text: str, separator: str = " | ") -> str:
    """Put ``text`` on one line: what were lines is separated by bars, control characters are spelled out."""
    return printable(separator.join(line.strip() for line in text.splitlines() if line.strip()))


class TextFormatter(logging.Formatter):
    """``12:30:05.120 WARNING example: text``; after an unexpected error its traceback, indented."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        time = datetime.fromtimestamp(record.created).astimezone()
        text = one_line(record.getMessage())
        trace = ""
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            text += f": {one_line(str(error)) or type(error).__name__}"
            if not isinstance(error, SluiceError | OSError):
                trace = "\n    " + printable(self.formatException(record.exc_info), "\n").replace("\n", "\n    ")
        destination = one_line(destination_of(record))
        line = f"{f'{destination}: ' if destination else ''}{text}"
        colour = COLOURS.get(record.levelname, "") if self._colour else ""
        level = f"{colour}{record.levelname:<7}{PLAIN if colour else ''}"
        return redactor(f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03} {level} {line}{trace}")


class JsonFormatter(logging.Formatter):
    """An object with time, level, logger, destination, message, the event's own fields, and error and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        event: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "destination": destination_of(record) or None,
            "message": record.getMessage(),
        }
        event |= {key: value for key, value in vars(record).items() if key not in STANDARD_FIELDS}
        if record.exc_info and record.exc_info[1]:
            event["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            event["traceback"] = self.formatException(record.exc_info)
        plain = {
            key: value if isinstance(value, int | float | None) else redactor(str(value))
            for key, value in event.items()
        }
        return json_line({key: value for key, value in plain.items() if value is not None})


def destination_of(record: logging.LogRecord) -> str:
    """Return the destination that the event is about: its own field, else that of the running code."""
    return getattr(record, "destination", None) or current_destination.get()


def configure_logging(level: LogLevel, style: LogFormat, stream: TextIO = sys.stderr) -> None:
    """Send all events of ``level`` and worse to ``stream``; of libraries, warnings and worse."""
    handler = logging.StreamHandler(stream)
    colour = stream.isatty() and "NO_COLOR" not in os.environ
    handler.setFormatter(JsonFormatter() if style is LogFormat.JSON else TextFormatter(colour=colour))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    logging.getLogger("sluice").setLevel(level)
    logging.captureWarnings(capture=True)
