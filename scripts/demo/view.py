"""Changes as lines that people can read."""

from datetime import datetime

from rich.console import Console
from rich.text import Text

from sluice.protocol.rows import Change, Row

STYLES = {"INSERT": "green", "UPDATE": "yellow", "DELETE": "red"}
SHOWN = 3
"""Rows of one change that are shown; of more only the number."""


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value[:8].hex()}" + ("…" if len(value) > 8 else "")
    if isinstance(value, frozenset):
        return "{" + ",".join(sorted(value)) + "}"
    text = "NULL" if value is None else str(value)
    return text if len(text) <= 30 else text[:29] + "…"


def _columns(row: Row) -> str:
    if row.before is not None and row.after is not None:
        key = [f"{name}={_value(value)}" for name, value in row.key.items()]
        return "  ".join(key + [f"{n}: {_value(row.before[n])} → {_value(row.after[n])}" for n in row.changed])
    return "  ".join(f"{name}={_value(value)}" for name, value in (row.after or row.before or {}).items())


class View:
    """Prints changes to a terminal, or as plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, changes: list[Change]) -> None:
        """Print a batch of changes."""
        for change in changes:
            if change.is_ddl:
                self._line(change, "DDL", "magenta", change.sql)
            else:
                self._rows(change)

    def _rows(self, change: Change) -> None:
        rows = change.rows()
        for row in rows[:SHOWN]:
            self._line(change, row.type, STYLES.get(row.type, ""), f"{row.schema}.{row.table}  {_columns(row)}")
        if len(rows) > SHOWN:
            self._line(change, "", "dim", f"… and {len(rows) - SHOWN} more rows of this statement")

    def _line(self, change: Change, kind: str, style: str, text: str) -> None:
        when = datetime.fromtimestamp(change.execute_time / 1000).astimezone().strftime("%H:%M:%S")
        line = Text.assemble((when, "dim"), "  ", (f"{kind:<7}", style), text)
        self._console.print(line, soft_wrap=not self._console.is_terminal, no_wrap=True, overflow="ellipsis")
