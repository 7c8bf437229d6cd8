"""What is asked of a source to know how a large XA transaction ends."""

import pytest

from sluice.instance.parser.connection import Connection
from sluice.instance.parser.xa import EVENTS, commits_in_one_phase
from sluice.protocol.errors import SourceError
from tests.peer import Peer, Talk
from tests.unit.test_mysql_session import config, logs_in_and

COLUMNS = ["Log_name", "Pos", "Event_type", "Server_id", "End_log_pos", "Info"]
BEGIN = 1000
XA_START = (BEGIN, "Query", "XA START X'63',X'',1")
STEP = 100


def rows(first: int) -> list[tuple[int, str, str]]:
    """As many events as are asked for at once."""
    return [(first + STEP * number, "Write_rows", "table_id: 107") for number in range(EVENTS)]


def answers(*pages: list[tuple[int, str, str]]) -> Peer:
    """A source that shows these events, one page for each question."""

    def behave(talk: Talk) -> None:
        for page in pages:
            talk.result(COLUMNS, *(("b.1", str(at), kind, "1", str(at + STEP), info) for at, kind, info in page))
            talk.receive()

    return Peer(logs_in_and(behave))


@pytest.mark.parametrize(
    ("end", "is_one_phase"), [("XA COMMIT X'63',X'',1 ONE PHASE", True), ("XA PREPARE X'63',X'',1", False)]
)
def test_the_end_of_a_transaction_is_looked_for_piece_by_piece(end: str, is_one_phase: bool) -> None:
    second = BEGIN + STEP * (EVENTS - 1)
    pages = [XA_START, *rows(BEGIN + STEP)][:EVENTS], [*rows(second)[:3], (second + 3 * STEP, "XA_prepare", end)]
    with answers(*pages) as peer, Connection(config(peer)) as connection:
        assert commits_in_one_phase(connection, "b.1", BEGIN) is is_one_phase
        for begin in (BEGIN, second):
            assert f"SHOW BINLOG EVENTS IN 'b.1' FROM {begin} LIMIT {EVENTS}".encode() in peer.received


@pytest.mark.parametrize("last", [[], rows(BEGIN)[:7], rows(BEGIN - STEP * (EVENTS - 1))], ids=["none", "few", "back"])
def test_an_end_that_the_source_does_not_have_is_a_source_error(last: list[tuple[int, str, str]]) -> None:
    reason = r"does not have the end of the XA transaction at b\.1:1000"
    with (
        answers(last) as peer,
        Connection(config(peer)) as connection,
        pytest.raises(SourceError, match=reason),
    ):
        commits_in_one_phase(connection, "b.1", BEGIN)
