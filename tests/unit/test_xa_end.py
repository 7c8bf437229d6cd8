"""What is asked of a source to know how a large XA transaction ends."""

import re
import threading
import time
from functools import partial

import pytest

from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.parser import Parser
from sluice.instance.sources.mysql.xa import EVENTS, commits_in_one_phase
from sluice.protocol.errors import SourceError
from sluice.store.ring import Ring
from tests.peer import Peer, Talk
from tests.unit.test_mysql_session import config, logs_in_and

COLUMNS = ["Log_name", "Pos", "Event_type", "Server_id", "End_log_pos", "Info"]
BEGIN = 1000
STEP = 100
QUIT = b"\x01"
ROWS = ("Write_rows", b"table_id: 107")
Shown = tuple[str, bytes]


def source(*events: Shown) -> Peer:
    """A source that has an XA transaction of these events."""
    log = [("Query", b"XA START X'63',X'',1"), *events]

    def behave(talk: Talk) -> None:
        while talk.received[-1] != QUIT:
            question = re.search(rb"IN 'b\.1' FROM (\d+) LIMIT (\d+), (\d+)$", talk.received[-1])
            assert question is not None
            at, skipped, count = map(int, question.groups())
            first, back = divmod(at - BEGIN, STEP)
            assert not back
            page = list(enumerate(log))[first + skipped :][:count]
            talk.result(
                COLUMNS,
                *(
                    ("b.1", str(BEGIN + number * STEP), kind, "1", str(BEGIN + (number + 1) * STEP), info)
                    for number, (kind, info) in page
                ),
            )
            talk.receive()

    return Peer(logs_in_and(behave))


def questions(peer: Peer) -> list[bytes]:
    """How many events were passed over and asked for, each time."""
    sent = [payload for talk in peer.talks for payload in talk.received]
    return [it.rpartition(b" LIMIT ")[2] for it in sent if b"SHOW BINLOG EVENTS" in it]


@pytest.mark.parametrize(
    ("end", "is_one_phase"), [(b"XA COMMIT X'63',X'',1 ONE PHASE", True), (b"XA PREPARE X'63',X'',1", False)]
)
def test_the_end_of_a_transaction_is_looked_for_piece_by_piece(end: bytes, is_one_phase: bool) -> None:
    with source(*[ROWS] * (EVENTS + 3), ("XA_prepare", end)) as peer:
        assert commits_in_one_phase(partial(Connection, config(peer)), "b.1", BEGIN) is is_one_phase
        assert questions(peer) == [b"1, %d" % EVENTS] * 2


def test_a_text_that_is_not_utf_8_is_accepted() -> None:
    end = ("XA_prepare", b"XA COMMIT X'63',X'',1 ONE PHASE")
    with source(("Rows_query", b"# INSERT INTO t VALUES (_binary'\xff\xfe')"), ROWS, end) as peer:
        assert commits_in_one_phase(partial(Connection, config(peer)), "b.1", BEGIN)


def test_an_answer_that_would_be_too_long_is_asked_for_in_smaller_pieces() -> None:
    statement = [("Rows_query", b"# INSERT INTO t VALUES ('" + b"x" * 4000 + b"')"), ROWS]
    end = ("XA_prepare", b"XA COMMIT X'63',X'',1 ONE PHASE")
    with source(*statement * 30, *[ROWS] * EVENTS, end) as peer:
        assert commits_in_one_phase(partial(Connection, config(peer, answer_bytes=1 << 16)), "b.1", BEGIN)
        assert questions(peer)[:3] == [b"1, %d" % EVENTS, b"1, %d" % (EVENTS // 4), b"1, %d" % (EVENTS // 16)]


def test_a_text_that_is_too_long_by_itself_is_left_out() -> None:
    long = ("Rows_query", b"x" * 65_500)
    end = ("XA_prepare", b"XA COMMIT X'63',X'',1 ONE PHASE")
    with source(ROWS, long, long, ROWS, end) as peer:
        assert commits_in_one_phase(partial(Connection, config(peer, answer_bytes=1 << 16)), "b.1", BEGIN)


@pytest.mark.parametrize("count", [0, 7, EVENTS])
def test_an_end_that_the_source_does_not_have_is_a_source_error(count: int) -> None:
    reason = r"does not have the end of the XA transaction at b\.1:1000"
    with source(*[ROWS] * count) as peer, pytest.raises(SourceError, match=reason):
        commits_in_one_phase(partial(Connection, config(peer)), "b.1", BEGIN)


def test_a_source_that_repeats_itself_is_a_source_error() -> None:
    def behave(talk: Talk) -> None:
        talk.result(COLUMNS, *[("b.1", str(BEGIN), "Write_rows", "1", str(BEGIN + STEP), "")] * EVENTS)
        talk.receive()

    reason = r"does not have the end of the XA transaction at b\.1:1000"
    with Peer(logs_in_and(behave)) as peer, pytest.raises(SourceError, match=reason):
        commits_in_one_phase(partial(Connection, config(peer)), "b.1", BEGIN)


@pytest.mark.parametrize("stops", ["before", "while it waits"])
def test_a_parser_that_is_told_to_stop_does_not_wait_for_the_end(stops: str) -> None:
    asked = threading.Event()

    def never_answers(talk: Talk) -> None:
        asked.set()
        talk.receive()

    def stop(parser: Parser) -> None:
        assert asked.wait(10)
        parser.stop()

    with Peer(logs_in_and(never_answers)) as peer:
        parser = Parser(config(peer), Ring(16), start=None)
        stopping = threading.Thread(target=stop, args=(parser,))
        if stops == "before":
            parser.stop()
        else:
            stopping.start()
        begin = time.monotonic()
        with pytest.raises(SourceError, match=r"Lost connection|has gone away"):
            commits_in_one_phase(parser._further_binlog, "b.1", BEGIN)
        assert time.monotonic() - begin < 5
        if stops != "before":
            stopping.join()
