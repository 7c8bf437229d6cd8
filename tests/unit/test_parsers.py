"""What the parsers of all kinds of source do alike."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.kafka.config import KafkaConfig
from sluice.instance.sources.kafka.parser import KafkaParser
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.instance.sources.mysql.parser import Parser as MysqlParser
from sluice.protocol.errors import PurgedError
from sluice.store.cursor import OLDEST
from sluice.store.ring import Ring
from tests.waiting import eventually


def mysql(folder: Path, **options: Any) -> MysqlParser:
    address = Address("127.0.0.1", 3306)
    config = MysqlConfig(destination="shop", master_address=address, db_username="cdc", file_data_dir=folder)
    return MysqlParser(config, Ring(16), **options)


def kafka(folder: Path, **options: Any) -> KafkaParser:
    config = KafkaConfig(destination="shop", brokers="127.0.0.1:9092", topic="t", file_data_dir=folder)
    return KafkaParser(config, Ring(16), **options)


@pytest.mark.parametrize(("make", "step"), [(mysql, "_read"), (kafka, "_topic")])
def test_an_attempt_at_former_places_that_fails_later_is_no_failure_of_the_new_ones(
    make: Callable[..., Any], step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, go_on, states = threading.Semaphore(0), threading.Semaphore(0), list[str]()
    parser = make(tmp_path, start=None, on_begin=None, on_state=lambda state, _text: states.append(state))

    def fail(*_: object) -> None:
        tries.release()
        go_on.acquire()
        raise PurgedError("what comes next is purged")

    monkeypatch.setattr(parser, step, fail)
    parser.start()
    try:
        assert tries.acquire(timeout=10)
        parser.begin_at([OLDEST])
        go_on.release()
        assert tries.acquire(timeout=10), "it tries again at once"
        assert (parser.failure, states) == (None, [])
        go_on.release()
        eventually(lambda: isinstance(parser.failure, PurgedError))
        assert states == ["error"]
    finally:
        parser.stop()
        go_on.release(100)
        parser.join(10)
