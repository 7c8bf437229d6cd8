"""Apache Flink reads a topic as `canal-json`, and ends with the rows of the source."""

import random
import subprocess
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.waiting import eventually

FETCH = Path(__file__).parents[1] / "clients" / "flink.sh"
COLUMNS = "id BIGINT, name STRING, price DECIMAL(10, 2), made TIMESTAMP(3), note STRING"


def read(folder: Path, kafka: Kafka, topic: str) -> Counter[tuple[Any, ...]]:
    """The rows of a topic."""
    fetched = subprocess.run([str(FETCH), str(folder)], capture_output=True, text=True, check=False)
    assert fetched.returncode == 0, fetched.stderr
    command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", fetched.stdout.strip(), "Flink"]
    done = subprocess.run([*command, kafka.servers, topic, COLUMNS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows: Counter[tuple[Any, ...]] = Counter()
    for line in done.stdout.splitlines():
        kind, id_, name, price, made, note = line.split("\t")
        row = int(id_), name, price, datetime.fromisoformat(made), None if note == "null" else note
        rows[row] += 1 if kind in ("+I", "+U") else -1
    assert min(rows.values()) >= 0, "a row was taken away that is not there"
    return +rows


def change(source: Server, schema: str, seed: int) -> None:
    draw = random.Random(seed)
    with source.connect(database=schema) as connection, connection.cursor() as cursor:
        for i in range(100):
            row = (
                i,
                draw.choice(["é", "😀", "a'b\"", ""]),
                i * 1.25,
                f"2026-11-22 10:11:12.{i:03d}",
                draw.choice([None, "x"]),
            )
            cursor.execute("INSERT INTO goods VALUES (%s, %s, %s, %s, %s)", row)
        for _ in range(100):
            low = draw.randrange(200)
            statement = draw.choice(
                [
                    "UPDATE goods SET price = price + 1, note = NULL WHERE id BETWEEN %s AND %s",
                    "DELETE FROM goods WHERE id BETWEEN %s AND %s LIMIT 2",
                    "UPDATE IGNORE goods SET id = id + 100 WHERE id BETWEEN %s AND %s",
                ]
            )
            cursor.execute(statement, (low, low + 5))
        connection.commit()
        cursor.execute("ALTER TABLE goods COMMENT = 'of no interest to Flink'")
        cursor.execute("INSERT INTO goods VALUES (1000, 'last', 0, NOW(3), NULL)")
        connection.commit()


@pytest.mark.extended
def test_flink_ends_with_the_rows_of_the_source(
    tmp_path: Path, sluice: Sluice, kafka: Kafka, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(
        f"CREATE TABLE {schema}.goods (id BIGINT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10, 2), made DATETIME(3),"
        " note TEXT)"
    )
    sluice.settings = {"canal__serverMode": "kafka", "kafka__bootstrap__servers": kafka.servers}
    sluice.add(
        "flink", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*", canal__instance__filter__query__ddl=True
    )
    with sluice:
        change(mariadb118, schema, 1)
        eventually(lambda: any(b'"last"' in it for values in kafka.read("flink") for it in values), "the last row")
        expected = Counter(
            (id_, name, str(price), made, note)
            for id_, name, price, made, note in mariadb118.query(f"SELECT * FROM {schema}.goods")
        )
        assert read(tmp_path, kafka, "flink") == expected
