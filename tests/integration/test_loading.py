"""Chunks of tables are loaded into a target once, with how far they are in the same transactions."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from sluice.client_sdk.spark.keyranges import connect
from sluice.client_sdk.spark.loading import Chunk, Progress, Run, load, prepare
from sluice.login.tables import KeyRange, SnapshotTable, cut, describe
from sluice.protocol.errors import TargetError
from sluice.sql.database import Database as Address
from sluice.sql.target import Target
from tests.conftest import Database
from tests.proxy import Proxy
from tests.servers import Server

POSITION = "1/bin.000001@1700000000:4:0"


def address(server: Server) -> Address:
    return Address(server.host, server.port, server.user, server.password)


class Setup:
    """Tables on the source, their copies on the target, and what is loaded."""

    def __init__(self, source: Server, target: Server, database: Database) -> None:
        self.source, self.server = source, target
        self.schema, self.copy = database(source), database(target)
        self.target = Target(address(target))
        self.progress = Progress(self.target, f"{self.copy}_progress", "mirror")

    def table(self, columns: str, name: str = "t") -> SnapshotTable:
        for server, schema in ((self.source, self.schema), (self.server, self.copy)):
            server.query(f"CREATE TABLE {schema}.{name} ({columns})")
        with closing(connect(address(self.source))) as session:
            return describe(session, self.schema, name)

    def chunks(self, run: Run, table: SnapshotTable, rows: int) -> list[Chunk]:
        with closing(connect(address(self.source))) as session:
            parts = list(cut(session, table, rows))
        chunks = [Chunk((table.schema, table.name), number, part) for number, part in enumerate(parts)]
        for chunk in chunks:
            self.progress.add(run, chunk)
        return chunks

    def load(self, run: Run, chunk: Chunk, table: SnapshotTable, target: Target | None = None) -> int:
        return load(address(self.source), target or self.target, run, chunk, table, (self.copy, table.name))

    def rows(self, name: str = "t") -> list[tuple[object, ...]]:
        return self.server.query(f"SELECT * FROM {self.copy}.{name} ORDER BY 1")

    def source_rows(self, name: str = "t") -> list[tuple[object, ...]]:
        return self.source.query(f"SELECT * FROM {self.schema}.{name} ORDER BY 1")


@pytest.fixture
def setup(mariadb118: Server, mysql97: Server, database: Database) -> Iterator[Setup]:
    setup = Setup(mariadb118, mysql97, database)
    yield setup
    setup.target.close()
    mysql97.query(f"DROP DATABASE IF EXISTS {setup.copy}_progress")


def numbers(count: int) -> str:
    return ", ".join(f"({i}, REPEAT('x', 1000))" for i in range(count))


def test_chunks_are_loaded_and_a_new_run_knows_them(setup: Setup) -> None:
    table = setup.table("id INT PRIMARY KEY, v VARCHAR(1000)")
    setup.source.query(f"INSERT INTO {setup.schema}.t VALUES {numbers(100)}")
    run = setup.progress.start(POSITION)
    assert (run.number, run.position, run.is_done) == (1, POSITION, False)
    first, second, *_, last = setup.chunks(run, table, 30)
    assert setup.load(run, first, table) == 30
    assert setup.load(run, second, table) == 30
    assert setup.load(run, second, table) == 0
    again = setup.progress.start("1/bin.000009@1700000000:4:0")
    assert again == replace(run, number=2)
    known = setup.progress.chunks((table.schema, table.name))
    assert [(chunk.is_done, chunk.loaded) for chunk in known] == [(True, 30), (True, 30), (False, 0), (False, 0)]
    assert [chunk.part for chunk in known] == [first.part, second.part, known[2].part, last.part]
    for chunk in known:
        setup.load(again, chunk, table)
    assert setup.rows() == setup.source_rows()
    setup.progress.finish(again)
    assert setup.progress.start(POSITION).is_done


def test_tasks_of_an_earlier_run_are_refused(setup: Setup) -> None:
    table = setup.table("id INT PRIMARY KEY, v INT")
    setup.source.query(f"INSERT INTO {setup.schema}.t VALUES (1, 1)")
    old = setup.progress.start(POSITION)
    [chunk] = setup.chunks(old, table, 10)
    setup.progress.start(POSITION)
    with pytest.raises(TargetError, match="the snapshot of job mirror was started again elsewhere"):
        setup.load(old, chunk, table)
    with pytest.raises(TargetError, match="started again elsewhere"):
        setup.progress.add(old, replace(chunk, number=1))
    with pytest.raises(TargetError, match="started again elsewhere"):
        setup.progress.finish(old)
    assert setup.rows() == []


@pytest.mark.extended
def test_a_chunk_goes_on_after_its_last_row_when_either_side_is_lost(setup: Setup) -> None:
    table = setup.table("name VARCHAR(20) PRIMARY KEY, v MEDIUMTEXT")
    rows = ", ".join(f"('{i:05}', REPEAT('{i % 10}', 20000))" for i in range(1500))
    setup.source.query(f"INSERT INTO {setup.schema}.t VALUES {rows}")
    run = setup.progress.start(POSITION)
    [chunk] = setup.chunks(run, table, 10_000)
    with (
        Proxy((setup.source.host, setup.source.port), seed=1) as near,
        Proxy((setup.server.host, setup.server.port), seed=2) as far,
        closing(Target(replace(address(setup.server), host=far.host, port=far.port))) as target,
    ):
        near.cut_after(9_000_000)
        far.cut_randomly(10_000_000)
        source = replace(address(setup.source), host=near.host, port=near.port)
        assert load(source, target, run, chunk, table, (setup.copy, "t")) == 1500
        assert near.cuts > 1
        assert far.cuts > 1
    assert setup.rows() == setup.source_rows()


def test_a_row_from_the_future_takes_the_place_of_one_with_its_unique_value(setup: Setup) -> None:
    table = setup.table("id INT PRIMARY KEY, u INT, UNIQUE (u)")
    setup.source.query(f"INSERT INTO {setup.schema}.t VALUES (1, 10), (2, 20), (3, 30), (4, 40)")
    run = setup.progress.start(POSITION)
    first, second, _ = setup.chunks(run, table, 2)
    setup.load(run, first, table)
    setup.source.query(f"UPDATE {setup.schema}.t SET u = 11 WHERE id = 1")
    setup.source.query(f"UPDATE {setup.schema}.t SET u = 10 WHERE id = 3")
    setup.load(run, second, table)
    assert setup.rows() == [(2, 20), (3, 10), (4, 40)]  # the changes bring 1 again


def test_a_target_has_to_be_empty_and_to_have_the_key(setup: Setup) -> None:
    table = setup.table("id INT PRIMARY KEY, v INT")
    other = setup.table("id INT PRIMARY KEY, v INT", "other")
    copy, unlike = (setup.copy, "t"), (setup.copy, "unlike")
    prepare(setup.target, table, copy, is_begun=False, overwrite=False)
    setup.server.query(f"INSERT INTO {setup.copy}.t VALUES (7, 7)")
    with pytest.raises(TargetError, match=rf"{setup.copy}\.t on the target has rows"):
        prepare(setup.target, table, copy, is_begun=False, overwrite=False)
    prepare(setup.target, table, copy, is_begun=True, overwrite=False)
    assert setup.rows() == [(7, 7)]
    prepare(setup.target, table, copy, is_begun=True, overwrite=True)
    assert setup.rows() == [(7, 7)]
    prepare(setup.target, table, copy, is_begun=False, overwrite=True)
    assert setup.rows() == []
    setup.server.query(f"CREATE TABLE {setup.copy}.unlike (id INT, v INT, PRIMARY KEY (id, v))")
    with pytest.raises(TargetError, match=r"source is \(id\), that of .* is \(id, v\): they have to be the same"):
        prepare(setup.target, other, unlike, is_begun=True, overwrite=False)


def test_progress_that_was_tampered_with_is_not_run_as_sql(setup: Setup) -> None:
    table = setup.table("id INT PRIMARY KEY, v INT")
    run = setup.progress.start(POSITION)
    setup.progress.add(run, Chunk((table.schema, table.name), 0, KeyRange(None, ("1",))))
    setup.server.query(f"UPDATE {setup.copy}_progress.sluice_chunks SET to_key = '[\"1 OR SLEEP(9)\"]'")
    with pytest.raises(TargetError, match="is not a key"):
        setup.progress.chunks((table.schema, table.name))
