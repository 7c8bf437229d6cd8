"""A source whose answers are damaged anywhere: every question ends in time, and with a SourceError or an answer."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.schema import InformationSchema, ask_charsets
from sluice.instance.sources.mysql.start import StartFinder
from sluice.protocol.errors import SluiceError
from sluice.store.cursor import Cursor
from tests.conftest import Database
from tests.peer import Peer, Recorder, Talk, replay
from tests.reading import Reading, config
from tests.servers import Server

SEEDS = 60


def settings(server: Server, peer: Peer) -> MysqlConfig:
    return config(server, master_address=f"127.0.0.1:{peer.port}")


def impatient(server: Server, peer: Peer) -> MysqlConfig:
    """For peers whose answers are damaged: many of them never end."""
    options: dict[str, Any] = {"login_timeout": 0.3, "answer_timeout": 0.3, "so_timeout": 1}
    return settings(server, peer).model_copy(update=options)


def ask_everything(configuration: MysqlConfig, schema: str) -> list[str]:
    """Ask all that a start asks; return the columns of the table. Raises SluiceError."""

    def connect() -> Connection:
        return Connection(configuration)

    with connect() as connection:
        connection.check(configuration, 4242)
        ask_charsets(connection)
        finder = StartFinder(connection, configuration, connect)
        end = finder.end_position([])
        finder.find(Cursor.at(end))
        finder.find_first([None])
        with closing(InformationSchema(connect)) as columns:
            goods = columns.fetch(schema, "goods")
            columns.tables()
            columns.snapshot()
    return [column.name for column in goods.columns]


@pytest.fixture
def recorded(server: Server, database: Database) -> tuple[str, list[list[bytes]]]:
    """The answers of a real server to all these questions, and the schema that they are about."""
    schema = database(server)
    server.query("CREATE TABLE goods (id INT PRIMARY KEY, name VARCHAR(20))", database=schema)
    with Recorder((server.host, server.port)) as recorder:
        ask_everything(settings(server, recorder), schema)
    return schema, recorder.answers


def damaged(answers: list[list[bytes]], chance: random.Random) -> list[list[bytes]]:
    """The same with one answer changed: bits, bytes and stretches of it, or its end."""
    result = [list(connection) for connection in answers]
    connection = chance.choice(result)
    index = chance.choice([number for number, answer in enumerate(connection) if answer])
    data = bytearray(connection[index])
    for _ in range(chance.choice((1, 1, 1, 4))):
        at = chance.randrange(len(data))
        match chance.randrange(6):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice((0, 1, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF))
            case 2:
                del data[at : at + chance.randint(1, 20)]
            case 3:
                data[at:at] = chance.randbytes(chance.randint(1, 20))
            case 4:
                data[at:] = b""
            case _:
                data[at : at + 8] = chance.randbytes(8)
        if not data:
            break
    connection[index] = bytes(data)
    return result


def one_after_another(connections: list[list[bytes]]) -> Callable[[Talk], None]:
    """Answer the first connection like the first one, and so on; the last one's answers go to all that come later."""
    left = iter(connections)
    last = connections[-1]

    def behave(talk: Talk) -> None:
        replay(next(left, last))(talk)

    return behave


def test_what_was_recorded_is_understood(server: Server, recorded: tuple[str, list[list[bytes]]]) -> None:
    schema, answers = recorded
    with Peer(one_after_another(answers)) as peer:
        assert ask_everything(settings(server, peer), schema) == ["id", "name"]


@pytest.mark.extended
def test_damaged_answers_are_errors_of_the_source(server: Server, recorded: tuple[str, list[list[bytes]]]) -> None:
    schema, answers = recorded
    failed = 0
    for seed in range(SEEDS):
        with Peer(one_after_another(damaged(answers, random.Random(seed)))) as peer:
            try:
                ask_everything(impatient(server, peer), schema)
            except SluiceError:  # whatever else it raises has no name for the operator
                failed += 1
    assert failed > SEEDS // 10


@pytest.mark.extended
def test_a_parser_goes_on_after_damaged_answers_without_a_traceback(
    server: Server, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = database(server)
    server.query("CREATE TABLE goods (id INT PRIMARY KEY, name VARCHAR(20))", database=schema)
    with Connection(config(server)) as connection:
        file, offset, _ = connection.end_of_binlog()
    server.query("INSERT INTO goods VALUES (1, 'a'), (2, 'b')", database=schema)

    def reading(source: MysqlConfig, name: str) -> Reading:
        place = {"master_journal_name": file, "master_position": offset, "file_data_dir": tmp_path / name}
        return Reading(source.model_copy(update=place))

    with (
        Recorder((server.host, server.port)) as recorder,
        reading(settings(server, recorder), "recorded") as whole,
    ):
        whole.wait(lambda: len(whole.rows()) == 2)
    for seed in range(10):
        with (
            Peer(one_after_another(damaged(recorder.answers, random.Random(seed)))) as peer,
            reading(impatient(server, peer), str(seed)) as it,
        ):
            it.wait(lambda it=it: it.error or len(it.rows()) == 2)  # type: ignore[misc]
    assert "the parser failed" not in caplog.text
