"""Random statements and rows while a server is down, and what it gives of them once it is started again."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from sluice.protocol import props
from sluice.protocol.canal.rows import decode_changes
from tests.ddl.oracle import DATABASES, Key, Oracle
from tests.ddl.random_statements import Statements
from tests.reading import config, embedded, followed
from tests.servers import Server

NAME, CLIENT = "example", 1001
BEFORE, ROWS = 12, 60
GENERATED = ("VIRTUAL GENERATED", "STORED GENERATED", "PERSISTENT")
Row = dict[str, Any]
Change = tuple[str, Key, Row]
"""INSERT or DELETE, the table, and the row; MariaDB leaves virtual columns out of the latter."""


@dataclass
class Outcome:
    """What became of the rows of a sequence."""

    rows: int = 0
    doubtful: list[str] = field(default_factory=list)
    """Tables whose rows were flagged, and the reasons of quarantine: one for each row."""
    unknown: list[str] = field(default_factory=list)
    """Statements after which a table was unknown."""
    wrong: list[str] = field(default_factory=list)
    """Rows without a flag that are not what was selected."""


def quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


class Rows:
    """Changes the row of random tables; each has none or one."""

    def __init__(self, oracle: Oracle, chance: random.Random) -> None:
        self._oracle = oracle
        self._chance = chance
        self.changes: list[Change] = []

    def change(self, key: Key) -> None:
        """Delete the row of a table, and insert another."""
        # The server takes what is too long or too large, and cuts it.
        self._oracle.ask("SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'")
        before = self._select(key)
        try:
            if before:
                self._oracle.ask(f"DELETE FROM {quoted(*key)}")
                self.changes.append(("DELETE", key, before))
            columns, values = self._values(key)
            self._oracle.ask(f"INSERT INTO {quoted(*key)} ({columns}) VALUES ({values})")
        except pymysql.err.MySQLError:  # a column of a kind that takes no such value
            return
        self.changes.append(("INSERT", key, self._select(key)))

    def _columns(self, key: Key) -> list[tuple[str, str, bool]]:
        """Name, type, and whether it is generated, of each column."""
        found = self._oracle.ask(
            "SELECT column_name, CONVERT(column_type USING utf8mb4), extra FROM information_schema.columns"
            f" WHERE table_schema = '{key[0]}' AND table_name = '{key[1]}' ORDER BY ordinal_position"
        )
        return [(name, kind, any(it in extra for it in GENERATED)) for name, kind, extra in found]

    def _values(self, key: Key) -> tuple[str, str]:
        columns = [(name, kind) for name, kind, generated in self._columns(key) if not generated]
        return ",".join(quoted(name) for name, _ in columns), ",".join(self._value(kind) for _, kind in columns)

    def _value(self, kind: str) -> str:
        number = self._chance.randrange(1, 100)
        if kind.startswith(("enum", "set", "bit")):
            return "1"
        if kind.startswith("point"):
            return f"ST_GeomFromText('POINT({number} 1)')"
        if kind.startswith("geom"):
            return f"ST_GeomFromText('GEOMETRYCOLLECTION(POINT({number} 1))')"
        if kind.startswith(("date", "timestamp")):
            return f"'2024-03-{number % 28 + 1:02} 01:02:03.25'"
        if kind.startswith("time"):
            return f"'-01:02:{number % 60:02}.75'"
        if kind.startswith("year"):
            return str(2000 + number)
        return f"'{number}'" if self._chance.random() < 0.9 else "0"

    def _select(self, key: Key) -> Row:
        columns = self._columns(key)
        names = ",".join(quoted(name) for name, _, _ in columns)
        found = self._oracle.ask(f"SELECT {names} FROM {quoted(*key)}") if columns else []
        if not found:
            return {}
        return {name: _as_the_sdk(kind, value) for (name, kind, _), value in zip(columns, found[0], strict=True)}


def _as_the_sdk(kind: str, value: Any) -> Any:
    """A value as PyMySQL gives it, in the types of the SDK."""
    if value is None or not kind.startswith(("bit", "enum", "set")):
        return value
    if kind.startswith("bit"):
        return int.from_bytes(value, "big")
    label = value.decode() if isinstance(value, bytes) else value
    return label if kind.startswith("enum") else frozenset(label.split(",")) - {""}


async def sequence(server: Server, folder: Path, seed: int) -> Outcome:
    """Follow a server, change its tables and their rows while nobody reads, and read that."""
    chance = random.Random(seed)
    configuration = config(server, folder, filter_regex=r"ddl_.*\..*", time_zone="UTC")
    with Oracle(server) as oracle:
        oracle.ask("SET SESSION time_zone = '+00:00'")
        statements = Statements(seed, mariadb=server.mariadb, version=oracle.dialect.version)
        while oracle.ran < BEFORE:
            oracle.run(statements.next(oracle.tables))
        rows = Rows(oracle, chance)
        async with followed(configuration, CLIENT) as following:
            oracle.ask(f"CREATE TABLE {DATABASES[0]}.mark (a INT)")
            oracle.ask(f"INSERT INTO {DATABASES[0]}.mark VALUES (1)")
            await _read(following, [("INSERT", (DATABASES[0], "mark"), {"a": 1})])
            oracle.ask(f"DROP TABLE {DATABASES[0]}.mark")
        while len(rows.changes) < ROWS:
            oracle.run(statements.next(oracle.tables))
            for key in chance.sample(sorted(oracle.tables), min(2, len(oracle.tables))):
                rows.change(key)
        async with embedded(configuration) as reading:
            outcome = await _read(reading, rows.changes)
            outcome.unknown = oracle.unknown
            return outcome


async def _read(server: Any, changes: Sequence[Change]) -> Outcome:
    """Read all changes, and compare them."""
    outcome = Outcome()
    left = list(changes)
    while outcome.rows < len(changes):
        batch = await server.get_without_ack(NAME, CLIENT, timeout=30)
        await server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        assert batch.slices, f"{left[:1]} does not come"
        for it in (change for part in batch.slices for change in decode_changes(part)):
            reason = it.header_props.get(props.QUARANTINE)
            if reason is not None:
                outcome.doubtful.append(reason)
                outcome.rows += 1
                left.pop(0)
                continue
            for row in it.rows():
                kind, key, expected = left.pop(0)
                outcome.rows += 1
                if kind == "DELETE":
                    expected = {name: value for name, value in expected.items() if name not in row.absent}
                found = row.type, (it.schema, it.table), dict(row.after or row.before or {})
                if props.SCHEMA in it.header_props:
                    outcome.doubtful.append(".".join(key))
                elif found != (kind, key, expected):
                    outcome.wrong.append(f"{found} is really {(kind, key, expected)}")
    return outcome
