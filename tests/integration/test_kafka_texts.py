"""Texts of statements in topics."""

from pathlib import Path

from tests.conftest import Database
from tests.delivery import execute
from tests.faults.harness import Sluice
from tests.kafka import configure
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.waiting import eventually

TEXT = "INSERT /* text */ INTO t VALUES (1)"


def test_topics_have_texts_only_where_nothing_is_left_out(
    mariadb118: Server, database: Database, tmp_path: Path, kafka: Kafka
) -> None:
    schema = database(mariadb118)
    topics = {it: f"{schema}-{it}" for it in ("whole", "part")}
    sluice = Sluice(tmp_path)
    configure(sluice, kafka, topics["part"], mariadb118, schema, sluice__output__mq__statements="true")
    sluice.add("whole", mariadb118, canal__mq__topic=topics["whole"], sluice__output__mq__statements="true")

    def records(name: str) -> bytes:
        return b"".join(value for values in kafka.read(topics[name]) for value in values)

    with sluice.reading():
        statements = ["CREATE TABLE t (id INT)", "SET SESSION binlog_annotate_row_events = ON", TEXT]
        execute(mariadb118, [*statements, "CREATE TABLE last (id INT)"], database=schema)
        for name in topics:
            eventually(lambda: b"CREATE TABLE last" in records(name))  # noqa: B023
        assert TEXT.encode() in records("whole")
        assert TEXT.encode() not in records("part")
