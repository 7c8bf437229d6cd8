"""Lays the entries of two streams side by side, and says in what they differ."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from tests.compat.streams import MARKER, Entry


class Difference(NamedTuple):
    """What one stream has and the other has not, or otherwise."""

    topic: str
    field: str
    """A path such as `header.gtid` or `row.value`; `entry` for an entry that only one of them has."""
    context: str
    """The type of the column, else the kind of the entry."""
    canal: Any
    """None where it has nothing."""
    sluice: Any
    place: str
    """File, offset and table, to look into it."""
    column: str = ""
    """The name of the column, for a field of one."""


class Side(NamedTuple):
    """An entry and the topic it belongs to."""

    topic: str
    entry: Entry


def without_empty_transactions(entries: list[Entry]) -> list[Entry]:
    """Leave out begins and ends of transactions with no rows: of those Canal delivers one every five seconds."""
    kept: list[Entry] = []
    for entry in entries:
        if entry["entryType"] != "TRANSACTIONEND" or (kept and _in_transaction(kept[-1])):
            kept.append(entry)
        elif kept and kept[-1]["entryType"] == "TRANSACTIONBEGIN":
            kept.pop()
    return kept


def _in_transaction(entry: Entry) -> bool:
    return entry["entryType"] == "ROWDATA" and not entry["storeValue"].get("isDdl")


def by_topic(entries: list[Entry]) -> list[Side]:
    """Say for each entry which topic it belongs to: that of the marker before it."""
    topic = ""
    sides = []
    for entry in without_empty_transactions(entries):
        if entry["header"].get("tableName") == MARKER:
            for row in entry["storeValue"].get("rowDatas", ()):
                topic = row["afterColumns"][0]["value"].partition(" ")[2]
        sides.append(Side(topic, entry))
    return sides


def compare(canal: list[Entry], sluice: list[Entry]) -> Iterator[Difference]:
    """Compare entry by entry."""
    ours, theirs = by_topic(sluice), by_topic(canal)
    matcher = SequenceMatcher(None, [_key(it) for it in theirs], [_key(it) for it in ours], autojunk=False)
    for kind, begin, end, our_begin, our_end in matcher.get_opcodes():
        if kind == "equal":
            for their, our in zip(theirs[begin:end], ours[our_begin:our_end], strict=True):
                yield from _fields(their, our)
            continue
        for side in theirs[begin:end]:
            yield Difference(side.topic, "entry", kind_of(side.entry), told(side.entry), None, _place(side.entry))
        for side in ours[our_begin:our_end]:
            yield Difference(side.topic, "entry", kind_of(side.entry), None, told(side.entry), _place(side.entry))


def _key(side: Side) -> tuple[object, ...]:
    header, kind = side.entry["header"], kind_of(side.entry)
    # Rows of an XA transaction may have the place of its XA COMMIT.
    return header.get("logfileOffset"), side.entry["entryType"], kind if kind.startswith("XA") else ""


def kind_of(entry: Entry) -> str:
    """Name the kind of an entry: TRANSACTIONBEGIN, INSERT, ALTER …"""
    if entry["entryType"] != "ROWDATA":
        return str(entry["entryType"])
    return str(entry["storeValue"].get("eventType", "ROWDATA"))


def told(entry: Entry) -> str:
    """Describe an entry that the other side has not."""
    return str(entry["storeValue"].get("sql", kind_of(entry)))


def _place(entry: Entry) -> str:
    header = entry["header"]
    names = f"{header.get('schemaName')}.{header.get('tableName')}"
    return f"{header.get('logfileName')}:{header.get('logfileOffset')} {names}"


def _fields(canal: Side, sluice: Side) -> Iterator[Difference]:
    kind, place = kind_of(canal.entry), _place(canal.entry)
    theirs, ours = _flat(canal.entry), _flat(sluice.entry)
    for path in sorted(theirs.keys() | ours.keys()):
        if theirs.get(path) != ours.get(path):
            field, in_column = _name(path)
            beside = ((*path[:-1], key) for key in ("mysqlType", "name"))
            mysql_type, name = (theirs.get(it, ours.get(it, "")) for it in beside)
            yield Difference(
                canal.topic,
                field,
                str(mysql_type or kind) if in_column else kind,
                theirs.get(path),
                ours.get(path),
                f"{place} {'.'.join(map(str, path))}",
                str(name),
            )


def _flat(value: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    if path[-1:] == ("props",):
        return {(*path, pair["key"]): pair.get("value") for pair in value}
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {path: value}
    found: dict[tuple[str | int, ...], Any] = {}
    for key, each in items:
        found |= _flat(each, (*path, key))
    return found


def _name(path: tuple[str | int, ...]) -> tuple[str, bool]:
    """The path without numbers, and whether it is in a column."""
    words = [word for word in path if isinstance(word, str)]
    text = ".".join(words).replace("storeValue.", "").replace("rowDatas.", "row.")
    in_column = ".beforeColumns." in text or ".afterColumns." in text
    return text.replace("Columns", ""), in_column
