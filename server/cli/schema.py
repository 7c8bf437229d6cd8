"""``sluice schema``: the history of the tables of a destination."""

import getpass
import json
import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...instance.audit import Change, keep, path_of
from ...protocol.cut import Cut, parse_place
from ...protocol.errors import BadParameterError, BadPositionError
from ...protocol.position import Position
from ..config import Configuration
from ..logging import json_line, one_line
from ..wording import counted
from .common import NO, add_command, add_conf, add_destination, add_group, log, out

if TYPE_CHECKING:
    from ...instance.source import SchemaArchive

POSITION = "1/mysql-bin.000003@1767225600:4096:0"
MEMBER = "of a group: the member whose history it is"
AT = "a position, as sluice status shows it (default: the end of what the stream has read)"

NOTHING = (
    "no history: the source names the columns in each event (binlog_row_metadata = FULL), or nothing was read from it"
)


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    schema = add_group(commands, "schema", "show which columns tables had, and when")
    show = add_command(
        schema,
        "show",
        schema_show_command,
        "show the tables at a position of the stream",
        "Show the columns that the tables of a destination had at a position of its stream. There is no history for\n"
        "a source with binlog_row_metadata = FULL, which names the columns in each event.",
        "sluice schema show example",
        f"sluice schema show example shop.orders --at {POSITION}",
    )
    add_destination(show)
    show.add_argument("table", metavar="SCHEMA.TABLE", nargs="?", help="show only this table")
    show.add_argument("--at", metavar="POSITION", help=AT)
    history = add_command(
        schema,
        "history",
        schema_history_command,
        "list the statements that changed tables",
        "List each statement that changed tables, with its position and the tables that it changed.",
        "sluice schema history example",
        "sluice schema history example shop.orders",
    )
    add_destination(history)
    history.add_argument(
        "table", metavar="SCHEMA.TABLE", nargs="?", help="list only the statements that changed this table"
    )
    diff = add_command(
        schema,
        "diff",
        schema_diff_command,
        "show what differs between two positions",
        "Show which columns differ between two positions of the stream. A - marks the columns at the first\n"
        "position, a + those at the second.",
        f"sluice schema diff example {POSITION}",
    )
    add_destination(diff)
    diff.add_argument("from_", metavar="FROM", help="a position, as sluice status shows it")
    diff.add_argument("to", metavar="TO", nargs="?", help=AT)
    exported = add_command(
        schema,
        "export",
        schema_export_command,
        "write the history as JSON lines",
        "Write the history of tables to standard output. Each continuous part of the stream has a line, followed by\n"
        "a line for each position at which tables changed.",
        "sluice schema export example > tables.jsonl",
    )
    add_destination(exported)
    imported = add_command(
        schema,
        "import",
        schema_import_command,
        "import a history from JSON lines",
        "Replace the history of tables by an exported one, which you may have corrected. Stop the destination\n"
        "first: it uses the new history when it starts. `sluice quarantine retry` uses it, too.",
        "sluice schema import example tables.jsonl",
    )
    add_destination(imported)
    imported.add_argument("file", metavar="FILE", type=Path, help="the file of JSON lines")
    for command in (show, history, diff, exported, imported):
        command.add_argument("--member", default="", metavar="NAME", help=MEMBER)
        add_conf(command)


def _archive(options: Any) -> "SchemaArchive":
    from ...instance.sources.registry import archive

    sources = Configuration(options.conf, os.environ).instance(options.destination).main.sources()
    if options.member in sources:
        return archive(sources[options.member])
    if "" in sources:
        raise BadParameterError(f"{options.destination} has no members: leave out --member", "member")
    raise BadParameterError(
        f"{options.destination} has a history for each member: --member {' or '.join(sources)}", "member"
    )


def _place(options: Any, text: str | None) -> Position | None:
    """Read a place; of a group it may be one of all members, as the status shows it."""
    if not text:
        return None
    place = parse_place(text)
    if not isinstance(place, Cut):
        return place
    if options.member not in place.places:
        raise BadPositionError(f"{text} is a place of a group, without one of {options.member or 'a single source'}")
    return place.places[options.member]


def schema_show_command(options: Any) -> int:
    """Show the tables at a place."""
    found = _archive(options).tables(_place(options, options.at))
    wanted = {name: columns for name, columns in found.items() if options.table in (None, name)}
    for name, columns in wanted.items():
        out.print(Text(name, style="bold"))
        for column in columns:
            out.print(Text(f"  {column}"))
    if options.table and not wanted:
        log.print(f"there is no table {options.table} at this place")
        return NO
    if not found:
        out.print(NOTHING)
    return 0


def schema_history_command(options: Any) -> int:
    """List what has changed tables."""
    changes = list(_archive(options).changes())
    if not changes:
        out.print(NOTHING)
    names = {None, "*", options.table, (options.table or "").partition(".")[0]}
    for it in changes:
        if options.table is not None and not it.is_first and names.isdisjoint(it.tables):
            continue
        out.print(Text(f"{it.place}  {datetime.fromtimestamp(it.time).astimezone():%Y-%m-%d %H:%M:%S}", style="bold"))
        what = "all tables, as the source had them" if it.is_first else one_line(it.sql, " ") or "the source was asked"
        out.print(Text(f"  {what}"))
        if it.tables:
            out.print(Text(f"  → {', '.join(it.tables)}"))
    return 0


def schema_diff_command(options: Any) -> int:
    """Show what differs between two places."""
    archive = _archive(options)
    before, after = archive.tables(_place(options, options.from_)), archive.tables(_place(options, options.to))
    for name in sorted({*before, *after}):
        old, new = before.get(name, ()), after.get(name, ())
        if list(old) != list(new):
            out.print(Text(name, style="bold"))
            for sign, columns, others in (("-", old, new), ("+", new, old)):
                for column in columns:
                    if column not in others:
                        out.print(Text(f"  {sign} {column}"))
    return 0


def schema_export_command(options: Any) -> int:
    """Write the history as JSON lines."""
    for line in _archive(options).export():
        print(json_line(line))
    return 0


def schema_import_command(options: Any) -> int:
    """Take over a history from JSON lines."""
    with options.file.open("rb") as file:
        count = _archive(options).replace(_parsed(options.file, file))
    places = counted(count, "place")
    config = Configuration(options.conf, os.environ).instance(options.destination)
    change = Change("schema import", f"user {getpass.getuser()}", time.time_ns() // 1_000_000, detail=places)
    keep(path_of(config.file_data_dir, options.destination), change)
    out.print(places)
    return 0


def _parsed(name: Path, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair could not be stored
        except (ValueError, RecursionError) as error:
            raise BadParameterError(f"{name}:{number}: {error}") from None
        if not isinstance(found, dict):
            raise BadParameterError(f"{name}:{number}: it is not an object")
        yield found
