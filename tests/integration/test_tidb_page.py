"""What docs/tidb.md shows, on a real broker with what a Drainer wrote."""

import re
import subprocess
import sys

from confluent_kafka import Producer

from tests.pages import ROOT
from tests.servers.kafka import Kafka
from tests.tidb import captured

TOPIC = "7561_obinlog"
PAGE = (ROOT / "docs" / "tidb.md").read_text()


def test_the_program_of_the_page_prints_statements_and_rows(kafka: Kafka) -> None:
    kafka.create(TOPIC)
    producer = Producer({"bootstrap.servers": kafka.servers})
    for it in captured():
        producer.produce(TOPIC, it.value, partition=0)
    assert producer.flush(20) == 0
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-u", "-c", program.replace("127.0.0.1:9092", kafka.servers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(9)]
        running.kill()
    assert lines[0] == f"{captured()[0].commit_ts} CREATE DATABASE `shop`\n"
    assert lines[8].startswith(f"{captured()[8].commit_ts} INSERT shop.orders {{'id': 1}} {{'id': 1, 'customer': 'Ana'")
