"""Every column type on every server: what was written by SQL and is read by SELECT is what arrives."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.mysql import schema as schemas
from sluice.protocol.canal.entry_pb2 import EventType
from sluice.verify.comparison import compare
from tests.conftest import Database
from tests.delivery import config_for, deliver, end_of_binlog, rows_of, values
from tests.integration.samples import SAMPLES, Sample
from tests.servers import ALL, Server


def _cases() -> Iterator[Any]:
    """Usually one server with either metadata."""
    for name in ALL:
        marks = () if name == "mariadb118" else (pytest.mark.extended,)
        yield pytest.param(name, "MINIMAL", id=f"{name}-names from the schema", marks=marks)
        marks = () if name == "mysql97" else (pytest.mark.extended,)
        if name in ("mysql97", "mysql80", "mariadb118", "mariadb1011"):
            yield pytest.param(name, "FULL", id=f"{name}-names from the event", marks=marks)


@pytest.mark.parametrize(("name", "metadata"), list(_cases()))
def test_every_type_arrives_as_select_shows_it(
    name: str, metadata: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    samples = {f"t{number}": sample for number, sample in enumerate(SAMPLES) if sample.runs_on(name)}
    if metadata == "FULL":
        server.query("SET GLOBAL binlog_row_metadata = FULL")
    try:
        with deliver(server, tmp_path, filter_regex=f"{schema}\\..*") as delivery:
            expected = {table: _write(server, schema, table, sample) for table, sample in samples.items()}
            arrived: dict[str, list[str | None]] = {table: [] for table in samples}
            types: dict[str, str] = {}
            for table, change in rows_of(delivery.read()):
                if change.eventType == EventType.INSERT:
                    for row in change.rowDatas:
                        arrived[table].append(values(row.afterColumns)["c"])
                        types[table] = row.afterColumns[1].mysqlType
    finally:
        if metadata == "FULL":
            server.query("SET GLOBAL binlog_row_metadata = DEFAULT")
    wrong = [
        f"{samples[table].type} (as {types.get(table)}), {literal[:60]}: {found!r:.80} instead of {right!r:.80}"
        for table, rights in expected.items()
        for literal, right, found in zip(
            (*samples[table].values, "NULL"),
            rights,
            arrived[table] + [None] * (len(rights) - len(arrived[table])),
            strict=True,
        )
        if found != right
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")  # of the other decoder's driver
@pytest.mark.extended
@pytest.mark.parametrize("name", ALL)
def test_another_decoder_reads_the_same_binlog_alike(
    name: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    start = end_of_binlog(server)
    for number, sample in enumerate(SAMPLES):
        # It gives up on table maps with VECTOR columns, and on MariaDB's compressed columns.
        if sample.runs_on(name) and not sample.type.startswith("vector") and not sample.type.endswith(" compressed"):
            _write(server, schema, f"t{number}", sample)
    stop = end_of_binlog(server)
    report = compare(config_for(server, tmp_path), "{}:{}".format(*start), "{}:{}".format(*stop), lambda *_: None)
    assert not report.differences
    assert report.values > 1000
    assert sum(report.unread.values()) < 100
    assert logging.getLogger(schemas.__name__).level == logging.NOTSET, "the parser says again what it reads in doubt"


def _write(server: Server, schema: str, table: str, sample: Sample) -> list[str | None]:
    """Write the values of a sample, and NULL, and return the texts that have to arrive."""
    connection = server.connect(database=schema, init_command="SET sql_mode = '', time_zone = '+00:00'")
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, c {sample.type})")
            for value in (*sample.values, "NULL"):
                cursor.execute(f"INSERT INTO {table} (c) VALUES ({value})")
            cursor.execute(f"SELECT {sample.text} FROM {table} ORDER BY id")
            return [None if text is None else sample.render(text) for (text,) in cursor.fetchall()]
    finally:
        connection.close()
