"""The history of tables for people: what the commands show of it, export and import."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any

from .....protocol.errors import BadParameterError, BadPositionError
from .....protocol.position import Position
from .....store.cursor import Cursor
from ....source import SchemaChange
from ..config import BinlogConfig
from .tables import Catalog, CatalogChange, State, Table
from .versions import History, Stretch, Version, open_history


class Archive:
    """See `sluice.instance.source.SchemaArchive`."""

    def __init__(self, config: BinlogConfig) -> None:
        """Read the files of a destination; nothing has to run."""
        self._config = config

    def tables(self, at: Position | None) -> dict[str, list[str]]:
        """See `SchemaArchive.tables`."""
        catalog = Catalog()
        with self._history() as history:
            stretches = history.stretches()
            if at is None and stretches:
                at = stretches[-1].until
            is_known = at is not None and history.begin_at(catalog, Cursor.at(at))
        if not is_known:
            known = ", ".join(f"from {it.since} to {it.until}" for it in stretches[-5:]) or (
                "nowhere: the source says the columns in each event (binlog_row_metadata = FULL), or nothing was read"
            )
            place, name = at or "the end", self._config.destination
            raise BadPositionError(f"the tables at {place} are not known; {name} knows {known}")
        return {".".join(name): list(_lines(state)) for name, state in sorted(catalog.tables(), key=lambda it: it[0])}

    def changes(self) -> Iterator[SchemaChange]:
        """See `SchemaArchive.changes`."""
        for stretch, versions in self._all():
            for it in versions:
                names = tuple(change.name for change in it.changes)
                is_first = it.place == stretch.since and not it.sql
                yield SchemaChange(it.place, it.time, it.sql, () if is_first else names, is_first=is_first)

    def export(self) -> Iterator[dict[str, Any]]:
        """See `SchemaArchive.export`."""
        for stretch, versions in self._all():
            ends = {"since": str(stretch.since), "until": str(stretch.until)}
            yield {"stretch": stretch.number, **ends, "gtids": stretch.gtids, "untilGtids": stretch.until_gtids}
            for it in versions:
                changes = [change._asdict() for change in it.changes]
                for change in changes:
                    change["body"] = None if change["body"] is None else json.loads(change["body"])
                yield {"place": str(it.place), "gtids": it.gtids, "sql": it.sql, "time": it.time, "changes": changes}

    def replace(self, lines: Iterable[Mapping[str, Any]]) -> int:
        """See `SchemaArchive.replace`."""
        found: list[tuple[Stretch, list[Version]]] = []
        for number, line in enumerate(lines, 1):
            try:
                if "stretch" in line:
                    found.append((_stretch(line), []))
                else:
                    found[-1][1].append(_version(line))
            except IndexError:
                raise BadParameterError(f"object {number} of the history belongs to no stretch") from None
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                text = f"object {number} of the history cannot be read: {type(error).__name__}: {error}"
                raise BadParameterError(text) from error
        for stretch, versions in found:
            places = [stretch.since, *(it.place for it in versions), stretch.until]
            if any(one > other for one, other in pairwise(places)):
                raise BadParameterError(f"the places of stretch {stretch.number} are not in their order")
        with self._history(writes=True) as history:
            history.replace(found)
        return sum(len(versions) for _, versions in found)

    def _all(self) -> Iterator[tuple[Stretch, list[Version]]]:
        with self._history() as history:
            for stretch in history.stretches():
                yield stretch, history.versions(stretch)

    def _history(self, *, writes: bool = False) -> closing[History]:
        return closing(open_history(self._config, writes=writes))


def _lines(state: State) -> Iterator[str]:
    if not isinstance(state, Table):
        yield "unknown: the source is asked when rows come"
        return
    for it in state.columns:
        signs = it.charset, "generated" * it.generated, "invisible" * it.invisible, "key" * (it.name in state.key)
        yield " ".join([it.name, it.type, *(sign for sign in signs if sign)])


def _stretch(found: Mapping[str, Any]) -> Stretch:
    ends = Position.parse(found["since"]), Position.parse(found["until"])
    return Stretch(int(found["stretch"]), ends[0], str(found["gtids"]), ends[1], str(found["untilGtids"]))


def _version(found: Mapping[str, Any]) -> Version:
    changes = []
    for it in found["changes"]:
        body = None if it["body"] is None else json.dumps(it["body"], ensure_ascii=False, separators=(",", ":"))
        changes.append(CatalogChange(it["kind"], str(it["schema"]), str(it["table"]), body))
    Catalog().check(changes)
    place, time = Position.parse(found["place"]), float(found["time"])
    return Version(place, str(found["gtids"]), str(found["sql"]), time, tuple(changes))
