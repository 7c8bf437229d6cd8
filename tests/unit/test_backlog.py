"""What is measured of clients that are behind the ring."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from sluice.instance.serving import backlog
from sluice.instance.serving.backlog import Backlog, BacklogWatch
from sluice.protocol.errors import SourceError
from sluice.protocol.position import Position
from tests.waiting import soon

RING = Position("1", "bin.000007", 1_700_000_000, 400, 0)


def place(begin: int) -> Position:
    return Position("1", "bin.000007", 1_700_000_000, begin, 0)


@dataclass
class Client:
    """One that is behind the ring if it has something unread."""

    client_id: int
    unread: Position | None


class Track:
    """Where the ring begins, and the log."""

    def __init__(self, floor: Position | None, log: Any) -> None:
        self.floor = floor
        self.log = log


class Clients:
    """Two that are behind the ring, and one that is not."""

    def __init__(self, log: Any = None, floor: Position | None = RING) -> None:
        self.subscribers = {it: Client(it, place(it)) for it in (100, 200)} | {300: Client(300, None)}
        self.track = Track(floor, log)


class Log:
    """Has what follows the later place."""

    def distances(self, places: Mapping[int, Position], to: Position) -> dict[int, int]:
        return {it: 7 for it, place in places.items() if place.begin == 200}


class Parser:
    """Of a source that reports the distances."""

    failure: SourceError | None = None

    def __init__(self, error: SourceError | None = None) -> None:
        self.error = error
        self.asked: list[list[int]] = []

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        self.asked.append([it.begin for it in places])
        if self.error is not None:
            raise self.error
        return [to.begin - it.begin if it.begin == 100 else None for it in places]


def watch(clients: Any, parser: Any) -> BacklogWatch:
    return BacklogWatch("shop", clients, parser)


async def test_the_log_is_asked_first_and_the_source_for_what_it_lacks() -> None:
    parser = Parser()
    it = watch(Clients(Log()), parser)
    await it.look()
    assert it.found == {100: Backlog(300, "source"), 200: Backlog(7, "log")}
    assert parser.asked == [[100]]


async def test_what_the_source_does_not_report_is_unknown() -> None:
    it = watch(Clients(), Parser())
    await it.look()
    assert it.found == {100: Backlog(300, "source")}


async def test_nothing_is_asked_while_no_client_is_behind_or_the_source_cannot_be_read() -> None:
    parser, clients = Parser(), Clients()
    parser.failure = SourceError("away")
    await watch(clients, parser).look()
    parser.failure = None
    await watch(Clients(floor=None), parser).look()
    clients.subscribers = {300: Client(300, None)}
    await watch(clients, parser).look()
    assert parser.asked == []


async def test_an_error_makes_it_unknown_and_it_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "PERIOD", 0.01)
    parser = Parser()
    it = watch(Clients(), parser)
    running = asyncio.create_task(it.run())
    await soon(lambda: it.found)
    parser.error = SourceError("away")
    await soon(lambda: not it.found)
    parser.error = None
    await soon(lambda: it.found)
    running.cancel()
    assert len(parser.asked) > 2
