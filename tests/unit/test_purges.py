"""What is said of clients that the source is about to leave behind, and when."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.instance.serving import purges
from sluice.instance.serving.purges import PurgeWatch
from sluice.instance.source import Expiry
from sluice.protocol.errors import SourceError
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.ring import Ring
from sluice.store.stream import Stream
from tests.waiting import soon

HERE = Position("1", "bin.000007", 1_700_000_000, 400, 0)
HOUR = 3600.0


class Clients:
    """One with a place, and one that has none yet."""

    ids = (1001, 1002)

    def __init__(self, restart: Position | None, log: Any) -> None:
        self.track = Stream(Ring(), catches_up=True)
        self.track.log = log
        self._restart = restart

    def cursor(self, client_id: int) -> Cursor | None:
        return replace(Cursor.at(HERE), restart=self._restart) if client_id == 1001 else None


class Log:
    """Has the place, and keeps it as the test says."""

    def __init__(self, *answers: tuple[float, float] | None) -> None:
        self.answers = list(answers)

    def expiries(self, places: dict[int, Position]) -> dict[int, tuple[float, float] | None]:
        assert places == {1001: HERE}
        return {1001: self.answers.pop(0)}


class Parser:
    """Answers what the test says."""

    failure: SourceError | None = None

    def __init__(self, *answers: Expiry | SourceError | None) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[Position]] = []

    def expiries(self, places: Sequence[Position]) -> Sequence[Expiry | None]:
        self.asked.append(places)
        answer = self.answers.pop(0)
        if isinstance(answer, SourceError):
            raise answer
        return [answer] * len(places)


def watch(parser: Any, restart: Position | None = None, log: Log | None = None) -> PurgeWatch:
    clients: Any = Clients(restart, log)
    return PurgeWatch("shop", clients, parser)


def expiry(hours: float) -> Expiry:
    """Of a source that keeps its binlog for 40 h."""
    return Expiry(time.time() + hours * HOUR, 40 * HOUR)


@pytest.mark.parametrize(
    ("hours", "text"),
    [(30, ""), (10.1, ""), (9.01, "in 9.0 h"), (-1, "in 0.0 h")],
    ids=["long", "just long enough", "soon", "overdue"],
)
async def test_it_is_said_when_less_than_a_quarter_of_the_time_is_left(hours: float, text: str) -> None:
    assert await said(expiry(hours)) == [text] * bool(text)


async def test_it_is_said_of_the_oldest_file_that_is_left() -> None:
    assert await said(Expiry(0.0, 0.0)) == ["any time: no older file is left"]


async def test_nothing_is_said_where_no_end_is_in_sight() -> None:
    assert await said(None) == []


async def said(found: Expiry | None) -> list[str]:
    """When the source may purge what each client needs."""
    it = watch(Parser(found))
    await it.look()
    prefix = f"the source may purge the binlog at its cursor, {HERE}, "
    return [threat.text.removeprefix(prefix) for threat in it.threats.values()]


async def test_only_clients_with_a_place_are_asked_for() -> None:
    parser = Parser(None)
    await watch(parser).look()
    assert parser.asked == [[HERE]]


async def test_an_open_xa_transaction_is_needed_from_where_it_was_prepared() -> None:
    prepared = Position("1", "bin.000005", 1_600_000_000, 77, 0)
    parser = Parser(Expiry(0.0, 0.0))
    it = watch(parser, restart=prepared)
    await it.look()
    assert parser.asked == [[prepared]]
    (threat,) = it.threats.values()
    assert threat.text.startswith(
        f"the source may purge the binlog at {prepared}, where an XA transaction was prepared that is still open, any"
    )


async def test_beside_a_log_that_has_the_place_only_open_xa_transactions_are_needed() -> None:
    prepared = Position("1", "bin.000005", 1_600_000_000, 77, 0)
    parser = Parser(Expiry(0.0, 0.0))
    it = watch(parser, log=Log(None, (time.time() + HOUR, 40 * HOUR), None))
    await it.look()
    assert not parser.asked
    it._clients.track.ring.restarts.note(HERE, prepared)
    await it.look()
    assert parser.asked == [[prepared]]
    assert it.threats[1001].text.startswith(f"the source may purge the binlog at {prepared}, where an XA"), "is worse"
    it._clients.track.ring.restarts.note(HERE, None)
    await it.look()
    assert not it.threats


async def test_it_is_said_before_the_log_lets_go_and_the_source_is_not_asked_as_long_as_it_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, parser = time.time(), Parser()
    parser.failure = SourceError("away")  # the log is looked at all the same
    log = Log((now + 11 * HOUR, 40 * HOUR), (now + 9.01 * HOUR, 40 * HOUR), (now + HOUR, 40 * HOUR), None)
    it = watch(parser, log=log)
    await it.look()
    assert not it.threats
    with caplog.at_level(logging.WARNING):
        for hours in ("9.0", "1.0"):
            await it.look()
            assert it.threats[1001].text == (
                f"the log on disk may delete what follows its cursor, {HERE}, in {hours} h; from then on it reads"
                " the source"
            )
    assert len(caplog.messages) == 1
    await it.look()
    assert not it.threats
    assert not parser.asked


async def test_it_is_logged_once_each_time_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    it = watch(Parser(expiry(1), expiry(0.9), None, expiry(0.8)))
    with caplog.at_level(logging.WARNING):
        for count in (1, 1, 1, 2):
            await it.look()
            assert len(caplog.messages) == count
    assert caplog.messages[0].startswith("client 1001: the source may purge the binlog at its cursor, ")


async def test_what_was_known_stays_while_the_source_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purges, "PERIOD", 0.001)
    parser = Parser(Expiry(0.0, 0.0), *[SourceError("away")] * 100_000)
    it = watch(parser)
    await it.look()
    running = asyncio.create_task(it.run())
    await soon(lambda: len(parser.asked) > 2)
    assert 1001 in it.threats
    parser.answers = [None] * 100_000
    await soon(lambda: not it.threats)
    running.cancel()


async def test_a_source_that_cannot_be_read_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purges, "PERIOD", 0.001)
    parser = Parser()
    parser.failure = SourceError("away")
    running = asyncio.create_task(watch(parser).run())
    await asyncio.sleep(0.05)
    assert parser.asked == []
    running.cancel()
