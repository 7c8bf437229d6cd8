"""The delivery loop: what is acked, when, and what becomes of errors. The other side is a list."""

import asyncio
import gc
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import ConfigError, FencedError, NotStoredError, PurgedError, RefusedError, SluiceError
from sluice.server.conditions import find
from sluice.server.embedded import EmbeddedServer
from sluice.server.outputs import delivery
from sluice.server.outputs.delivery import Delivery
from sluice.server.outputs.outputs import Outputs
from sluice.server.outputs.settings import Output, OutputSettings
from sluice.server.outputs.target import DeliveryError, Place, Prepared, RejectedError, SplitError
from sluice.store.batch import Batch
from sluice.store.cursor import Cursor
from tests.source import Source, numbers, start_embedded
from tests.waiting import soon

NAME = "example"
CLIENT = 1001


class ListTarget:
    """Takes numbers."""

    trouble = ""
    statistics: Mapping[str, float] = {}

    def __init__(self) -> None:
        self.memory = ""
        self.before: str | None = None
        """What it has to remember before the next send."""
        self.opened_with: list[str] = []
        """What it had asked to remember, at each opening."""
        self.lost: list[str] = []
        self.confirmed: list[int] = []
        self.calls: list[str] = []
        self.poison: int | None = None
        """The number that cannot be sent."""
        self.alone: int | None = None
        """The number that is sent by itself."""
        self.sent: list[list[int]] = []
        self.errors: list[SluiceError] = []
        """What the next sends raise."""
        self.unheard: list[SluiceError] = []
        """What the next sends raise after they have been confirmed."""
        self.keeps_place = False
        self.takes_transactions = False
        self.is_ahead = False
        self.place: Place | None = None
        self.free = threading.Event()
        """Not set: a send waits for it."""
        self.free.set()
        self.abandoned = threading.Event()

    def open(self, memory: str, moved: str, _epoch: int) -> Place | None:
        self.opened_with.append(memory)
        self.abandoned.clear()
        self.calls.append("open")
        return None if moved else self.place

    def prepare(self, batch: Batch) -> Prepared:
        found = numbers(Messages.FromString(b"".join(batch.slices)))
        if self.poison in found:
            entry = found.index(self.poison)
            raise RefusedError(f"{self.poison} is too large", entry, "shop", "goods")
        if self.alone in found and len(found) > 1:
            raise SplitError(found.index(self.alone) or 1)
        return Prepared(batch, found, len(found), batch.bytes, is_alone=self.alone in found)

    def send(self, batches: Sequence[Prepared], place: Place | None) -> None:
        self.calls.append("send")
        while not self.free.wait(0.01):
            if self.abandoned.is_set():
                raise DeliveryError("it was stopped")
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append([number for it in batches for number in it.content])
        self.confirmed += self.sent[-1]
        self.place = place
        if self.unheard:
            raise self.unheard.pop(0)

    def memory_before(self, _batches: Sequence[Prepared]) -> str | None:
        return self.before

    def memory_after(self, _prepared: Prepared) -> str:
        return self.memory

    def idle(self) -> None:
        self.calls.append("idle")

    def abandon(self) -> None:
        self.abandoned.set()

    def losses(self) -> list[str]:
        found, self.lost = self.lost, []
        return found

    def close(self) -> None:
        self.calls.append("close")


class Setup:
    """A destination, whose changes are numbers, with an output to a list."""

    def __init__(self, embedded: EmbeddedServer, source: Source) -> None:
        self.embedded = embedded
        self.source = source
        self.target = ListTarget()
        self.configured = [Output(NAME, "a", OutputSettings(client_id=CLIENT, max_bytes=1024), shared=False)]
        self.outputs = Outputs(embedded, lambda _: self.configured, lambda _: self.target)
        embedded.companions = self.outputs

    @property
    def delivery(self) -> Delivery:
        return self.outputs._deliveries[NAME][0]

    @property
    def state(self) -> str:
        return self.outputs.status(NAME)[0].state

    async def deliver(self, count: int, size: int = 0) -> None:
        self.source.put(count, size=size)
        await soon(lambda: len(set(self.target.confirmed)) == self.source.count)

    def acked(self) -> bool:
        return not self.embedded.status(NAME, CLIENT).lag.entries


@pytest.fixture
async def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    monkeypatch.setattr(delivery, "SHORTEST", 0.01)
    embedded, sources = await start_embedded(tmp_path)
    made = Setup(embedded, sources[NAME])
    await made.outputs.start(NAME)
    await soon(lambda: made.state == "running")
    yield made
    await embedded.close()


async def test_what_is_to_be_sent_alone_is_sent_without_those_around_it(setup: Setup) -> None:
    setup.target.alone = 5
    setup.target.free.clear()
    setup.source.put(10)
    setup.target.free.set()
    await soon(lambda: len(setup.target.confirmed) == 10)
    assert setup.target.confirmed == list(range(10))
    assert [5] in setup.target.sent


async def test_changes_are_delivered_in_order_and_acked(setup: Setup) -> None:
    await setup.deliver(50, size=300)
    await soon(setup.acked)
    assert setup.target.confirmed == list(range(50))
    (status,) = setup.embedded.destination_status(NAME).outputs
    assert (status.state, status.records, status.rows, status.retries) == ("running", 50, 50, 0)


async def test_only_rows_that_match_its_conditions_are_delivered(setup: Setup) -> None:
    settings = OutputSettings(client_id=CLIENT, max_bytes=1024, where="shop.goods: id BETWEEN 10 AND 19")
    setup.configured[0] = replace(setup.configured[0], settings=settings)
    await setup.outputs.start(NAME)
    setup.source.put(50, size=300)
    await soon(lambda: 19 in setup.target.confirmed)  # nothing waits before the condition is judged
    await soon(setup.acked)
    assert setup.target.confirmed == list(range(10, 20))


async def test_a_call_that_does_not_return_is_an_error_until_it_does(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[tuple[str, str]]:
        status = setup.embedded.destination_status(NAME)
        return [(it.condition.name, it.text) for it in find(status) if it.subject == "output a"]

    free = threading.Event()
    prepare = setup.target.prepare
    monkeypatch.setattr(setup.target, "prepare", lambda batch: free.wait() and prepare(batch))
    setup.source.put(1)
    await soon(lambda: setup.delivery._encoder.began is not None)
    assert found() == []
    monkeypatch.setattr(delivery, "SLOW", 0.0)
    ((name, text),) = found()
    assert (name, "the call that prepares a batch has not returned" in text) == ("output-fails", True)
    monkeypatch.setattr(delivery, "SLOW", 60.0)
    free.set()
    await soon(setup.acked)
    assert (found(), setup.delivery._encoder.began) == ([], None)


async def test_it_is_drained_when_all_is_acked_and_its_target_knows_of_nothing_after_its_place(setup: Setup) -> None:
    def is_drained() -> bool:
        return setup.embedded._running(NAME).cursors.places.undrained() == {}

    await setup.deliver(1)
    await soon(setup.acked)
    setup.target.is_ahead = True
    assert is_drained(), "it would not have to know again what it is sent"
    setup.target.keeps_place = setup.target.takes_transactions = True
    assert not is_drained()
    setup.target.is_ahead = False
    assert is_drained()
    setup.target.free.clear()
    setup.source.put(1)
    assert not is_drained()
    setup.target.free.set()
    await soon(setup.acked)
    assert is_drained()


async def test_nothing_is_acked_before_it_is_confirmed(setup: Setup) -> None:
    setup.target.free.clear()
    setup.source.put(50, size=300)
    await soon(lambda: "send" in setup.target.calls)
    await asyncio.sleep(0.05)
    status = setup.embedded.status(NAME, CLIENT)
    assert status.lag.entries == 50
    window = setup.delivery.output.settings.window
    assert 1 < len(status.marks) <= 2 * window + 1, "what is outstanding is bounded"
    setup.target.free.set()
    await soon(setup.acked)


async def test_what_the_target_remembers_counts_only_when_what_it_stands_for_is_acked(setup: Setup) -> None:
    setup.target.memory = "first"
    await setup.deliver(1)
    await soon(setup.acked)
    setup.target.memory = "second"
    setup.target.errors = [DeliveryError("no"), DeliveryError("no")]
    await setup.deliver(1)
    await soon(setup.acked)
    assert setup.target.opened_with == ["", "first", "first"]
    assert setup.embedded.memory(NAME, CLIENT) == "second"


async def test_what_has_to_be_remembered_before_a_send_is_stored_before_it(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.deliver(1)
    send, stored = setup.target.send, list[str]()

    def note(batches: Sequence[Prepared], place: Place | None) -> None:
        stored.append((tmp_path / NAME / "meta.dat").read_text())
        send(batches, place)

    monkeypatch.setattr(setup.target, "send", note)
    setup.target.before = "nothing after 7"
    await setup.deliver(1)
    assert ['"memory":"nothing after 7"' in it.replace('": "', '":"') for it in stored] == [True]


async def test_what_cannot_be_remembered_before_a_send_keeps_it_from_being_sent(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.deliver(1)
    remember, errors = setup.embedded.remember, [NotStoredError("the disk is full") for _ in range(3)]

    async def fail(*arguments: Any, before: Sequence[int]) -> None:
        assert setup.target.confirmed == [0]
        if errors:
            raise errors.pop()
        await remember(*arguments, before=before)

    monkeypatch.setattr(setup.embedded, "remember", fail)
    setup.target.before = "nothing after 7"
    setup.source.put(1)
    await soon(lambda: setup.target.confirmed == [0, 1])
    (status,) = setup.outputs.status(NAME)
    assert (status.last_error, status.retries, errors) == ("the disk is full", 3, [])


async def test_a_target_may_see_to_what_is_due_while_there_is_nothing_to_send(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "IDLE", 0.01)
    await setup.deliver(1)
    await soon(lambda: setup.target.calls.count("idle") > 2)
    for _ in range(50):
        await setup.deliver(1)
    assert setup.target.confirmed == list(range(51))
    assert setup.target.calls.count("open") == 1


async def test_what_the_other_side_has_lost_is_logged_and_shown(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    setup.target.lost = ["topic t was deleted and made again"]
    await setup.deliver(1)
    await soon(lambda: setup.outputs.status(NAME)[0].lost)
    (status,) = setup.outputs.status(NAME)
    assert status.lost.startswith("topic t was deleted and made again: changes before 101/bin.")
    assert f"output a: {status.lost}" in caplog.messages


@pytest.mark.parametrize("error", [DeliveryError("no broker"), RejectedError("no such topic")])
async def test_an_error_is_followed_by_another_attempt_from_what_was_confirmed(
    setup: Setup, error: SluiceError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LONGEST", 0.05)
    await setup.deliver(5)
    setup.target.errors = [error] * 3
    await setup.deliver(5)
    assert setup.target.confirmed == list(range(10))
    assert setup.target.calls.count("open") == setup.target.calls.count("close") + 1 == 4
    await soon(setup.acked)


async def test_what_an_output_was_given_before_its_quota_was_used_up_is_delivered(setup: Setup) -> None:
    await setup.embedded.limit(NAME, CLIENT, {"quota": 1})  # one batch a day
    setup.source.put(50, size=300)
    await soon(lambda: setup.target.confirmed and not setup.embedded.status(NAME, CLIENT).marks)
    await soon(lambda: setup.state == "retrying")
    assert "has used up its quota" in setup.delivery.error
    given = setup.target.confirmed
    assert given == list(range(len(given)))
    assert 0 < len(given) < 50
    await setup.embedded.limit(NAME, CLIENT, {"quota": 0})
    await soon(lambda: len(setup.target.confirmed) == 50)
    assert setup.target.confirmed == list(range(50))


async def test_what_cannot_be_sent_stops_the_output_after_all_before_it(setup: Setup) -> None:
    setup.target.poison = 7
    setup.source.put(20, size=100)
    await soon(lambda: setup.state == "error")
    assert setup.target.confirmed == list(range(7))
    (status,) = setup.outputs.status(NAME)
    assert status.error == f"7 is too large, at {setup.embedded.status(NAME, CLIENT).acked}"
    assert setup.embedded.status(NAME, CLIENT).lag.entries == 13
    setup.target.poison = None
    await setup.outputs.start(NAME)  # as the command to start it does
    await soon(lambda: setup.target.confirmed == list(range(20)))


async def test_one_transaction_that_cannot_be_sent_is_skipped_by_its_position(setup: Setup) -> None:
    setup.target.poison = 7
    setup.source.put(20, size=100)
    await soon(lambda: setup.state == "error")
    (status,) = setup.outputs.status(NAME)
    await setup.embedded.skip(NAME, CLIENT, status.error.rpartition(", at ")[2])
    await setup.outputs.start(NAME)  # as the command does
    await soon(setup.acked)
    assert setup.target.confirmed == [*range(7), *range(8, 20)]
    (after,) = setup.outputs.status(NAME)
    assert (after.state, after.error, after.last_error) == ("running", "", status.error)
    assert after.failed == pytest.approx(time.time(), abs=60)


async def test_a_stop_ends_a_send_that_waits_and_sends_nothing_more(setup: Setup) -> None:
    setup.target.free.clear()
    setup.source.put(3)
    await soon(lambda: "send" in setup.target.calls)
    async with asyncio.timeout(2):
        await setup.embedded.stop(NAME)
    assert setup.target.calls[-1] == "close"
    assert setup.target.confirmed == []
    assert setup.outputs.status(NAME)[0].state == "stopped"


async def test_a_target_that_cannot_be_closed_is_logged_and_the_output_goes_on(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for that: Python would log that the exception of a task was never retrieved."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def close() -> None:
        raise OSError("the connection is lost")

    monkeypatch.setattr(setup.target, "close", close)
    setup.target.errors = [DeliveryError("no broker")]
    await setup.deliver(3)
    gc.collect()
    assert reported == []
    assert "output a: its target could not be closed: the connection is lost" in caplog.messages


async def test_a_stop_that_comes_together_with_an_error_ends_the_output(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = setup.outputs._running[setup.delivery]

    def lose(*_: object) -> None:
        monkeypatch.undo()
        task.cancel()
        raise FencedError("another server has it")

    monkeypatch.setattr(setup.embedded, "check", lose)
    setup.source.put(1)
    async with asyncio.timeout(2):
        await asyncio.wait([task])
    assert setup.state == "stopped"


@pytest.mark.parametrize(("takes", "again"), [(True, [2, 3]), (False, [])])
async def test_a_target_that_takes_transactions_gets_a_whole_one_again_after_an_error(
    setup: Setup, takes: bool, again: list[int]
) -> None:
    await setup.embedded.subscribe(NAME, CLIENT + 1)  # which holds all that was put
    setup.target.takes_transactions = takes
    await setup.deliver(2)
    setup.source.put(2, commits=0)
    await soon(lambda: setup.target.confirmed == [0, 1, 2, 3])
    await soon(setup.acked)
    setup.target.errors = [DeliveryError("the connection is lost")]
    setup.source.put(3, commits=1)
    await soon(lambda: 6 in setup.target.confirmed)
    assert setup.target.confirmed == [0, 1, 2, 3, *again, 4, 5, 6]
    await soon(setup.acked)


@pytest.mark.parametrize("keeps_place", [False, True])
async def test_what_comes_again_while_acks_wait_for_the_store_is_sent_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, *, keeps_place: bool
) -> None:
    setup.target.keeps_place = keeps_place
    free = await hold_acks(setup, monkeypatch)
    setup.source.put(20, size=300)
    await soon(lambda: not setup.embedded.status(NAME, CLIENT).waiting.entries)
    await setup.embedded.rollback(NAME, CLIENT, session=setup.delivery._session)
    await soon(lambda: not setup.embedded.status(NAME, CLIENT).waiting.entries)
    free.set()
    await soon(setup.acked)
    assert setup.target.confirmed == list(range(21))


async def test_what_was_forgotten_while_it_waited_to_be_sent_is_not_sent(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has left the ring, say, and was not given it again yet."""
    free = await hold_acks(setup, monkeypatch)
    get, waits, again = setup.embedded.get_without_ack, asyncio.Event(), asyncio.Event()

    async def hold(*arguments: Any, **named: Any) -> Batch:
        waits.set()
        await again.wait()
        return await get(*arguments, **named)

    monkeypatch.setattr(setup.embedded, "get_without_ack", hold)
    setup.source.put(3)
    await waits.wait()
    setup.embedded.instances[NAME].cursors.clients.find(CLIENT).roll_back()
    free.set()
    await soon(lambda: setup.outputs.status(NAME)[0].retries)
    again.set()
    await soon(setup.acked)
    assert setup.target.confirmed == [0, 1, 2, 3]


async def test_an_output_whose_place_is_purged_skips_nothing_until_its_client_is_moved(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.deliver(2)
    await setup.outputs.stop(NAME)
    await setup.embedded.subscribe(NAME, CLIENT + 1, start="latest")  # which holds what follows
    setup.source.put(3)
    instance = setup.embedded.instances[NAME]
    left = instance.cursors.track.floor
    assert left is not None
    monkeypatch.setattr(setup.source, "find_place", lambda _: Cursor.at(left))
    instance._fall_out(CLIENT, PurgedError("the source has purged it"))
    await setup.outputs.start(NAME)
    await soon(lambda: setup.state == "error")
    (status,) = setup.outputs.status(NAME)
    assert f"`sluice seek {NAME} {CLIENT} oldest` goes on without that" in status.error
    assert setup.target.confirmed == [0, 1]
    await setup.embedded.seek(NAME, CLIENT, "oldest")
    await setup.outputs.start(NAME)  # as the command does
    await soon(setup.acked)
    assert setup.target.confirmed == [0, 1, 2, 3, 4]


async def test_what_an_operator_has_acked_meanwhile_is_not_sent(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    free = await hold_acks(setup, monkeypatch)
    setup.source.put(10, size=1000)
    await soon(lambda: not setup.embedded.status(NAME, CLIENT).waiting.entries)
    free.set()
    await setup.embedded.ack(NAME, CLIENT, position="101/bin.000001@1700000000:1004:0", by_operator=True)
    await soon(setup.acked)
    assert setup.target.confirmed == [0, 10]


async def hold_acks(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Deliver one change; until the event is set, its ack counts and waits, as one does for a store that is slow."""
    ack, free = setup.embedded.ack, asyncio.Event()

    async def hold(*arguments: Any, **named: Any) -> None:
        await ack(*arguments, **named)
        await free.wait()

    monkeypatch.setattr(setup.embedded, "ack", hold)
    setup.source.put(1)
    await soon(setup.acked)
    return free


@pytest.mark.parametrize(
    ("end", "begin", "follows"),
    [
        ("101/bin.000001@1:500:0", "101/bin.000001@1:500:0", True),
        ("101/bin.000001@1:500:0", "101/bin.000002@2:4:0", True),
        ("101/bin.000001@1:500:1", "101/bin.000001@1:500:0", False),
        ("101/bin.000001@1:500:0", "102/bin.000001@1:4:0", True),
        ("101/bin.000001@1:500:1", "102/bin.000001@1:4:0", False),
    ],
)
def test_a_batch_follows_another_one_unless_it_brings_something_again(end: str, begin: str, *, follows: bool) -> None:
    made = Batch(batch_id=1, slices=[], from_=begin, to=end, entries=0, rows=0, bytes=0, timestamp=0)
    assert delivery._follows(made, made) is follows


class TestPlaceOfTheOtherSide:
    """A target that keeps the place of its output with what it confirms has each change once."""

    @pytest.fixture(autouse=True)
    async def keeps(self, setup: Setup) -> None:
        """Another client holds all that was put."""
        setup.target.keeps_place = True
        setup.target.memory = '{"topics": "known"}'
        await setup.embedded.subscribe(NAME, CLIENT + 1)

    async def test_it_is_that_after_what_is_sent(self, setup: Setup) -> None:
        await setup.deliver(3)
        await soon(setup.acked)
        cursor = setup.embedded.cursor(NAME, CLIENT)
        assert cursor is not None
        number = json.loads(setup.embedded.memory(NAME, CLIENT))["number"]
        assert setup.target.place == Place(str(cursor.position), cursor.gtid, number)
        assert 1 <= number <= 3

    @pytest.mark.parametrize("takes", [False, True])
    async def test_a_part_of_a_transaction_does_not_have_to_be_there_where_whole_ones_are_kept(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch, *, takes: bool
    ) -> None:
        setup.target.takes_transactions = takes
        await setup.deliver(3)
        await soon(setup.acked)
        assert setup.target.place is not None
        number, place_after = setup.target.place.number, setup.embedded.place_after

        def inside(*arguments: Any) -> Cursor | None:
            found = place_after(*arguments)
            assert found is not None
            assert found.position is not None
            return replace(found, position=replace(found.position, n=1))

        monkeypatch.setattr(setup.embedded, "place_after", inside)
        setup.source.put(1)
        await soon(lambda: 3 in setup.target.confirmed)
        await soon(setup.acked)
        assert json.loads(setup.embedded.memory(NAME, CLIENT))["number"] == number + (not takes)

    async def test_what_was_confirmed_without_an_answer_is_not_sent_again(self, setup: Setup) -> None:
        await setup.deliver(3)
        setup.target.unheard = [DeliveryError("the connection is lost")] * 2
        await setup.deliver(40, size=300)
        await soon(setup.acked)
        assert setup.target.confirmed == list(range(43))

    async def test_a_client_that_has_lost_its_cursor_goes_on_there(self, setup: Setup) -> None:
        await setup.deliver(5)
        await soon(setup.acked)
        await setup.outputs.stop(NAME)
        await setup.embedded.release(NAME, CLIENT)
        await setup.embedded.unsubscribe(NAME, CLIENT)
        settings = OutputSettings(client_id=CLIENT, start="latest")
        setup.configured = [replace(it, settings=settings) for it in setup.configured]
        setup.source.put(2)
        await setup.outputs.start(NAME)
        await setup.deliver(2)
        assert setup.target.confirmed == list(range(9))

    async def two(self, setup: Setup) -> tuple[Place, Place]:
        """Deliver two numbers and two more, and stop; return the places after them."""
        places = []
        for _ in range(2):
            await setup.deliver(2)
            await soon(setup.acked)
            assert setup.target.place is not None
            places.append(setup.target.place)
        await setup.outputs.stop(NAME)
        return places[0], places[1]

    @pytest.mark.parametrize("is_known", [True, False])
    async def test_a_cursor_after_it_counts_where_nothing_was_sent_since(self, setup: Setup, *, is_known: bool) -> None:
        """An earlier version does not know that."""
        early, late = await self.two(setup)
        setup.target.place = early._replace(number=late.number if is_known else 0)
        for _ in range(2):  # the second time nothing was acked since
            await setup.outputs.start(NAME)
            await soon(lambda: setup.state == "running")
            await setup.outputs.stop(NAME)
        await setup.outputs.start(NAME)
        await setup.deliver(2)
        assert setup.target.confirmed == list(range(6))

    @pytest.mark.parametrize("is_wanted", [True, False])
    async def test_an_earlier_one_than_was_confirmed_stops_the_output_which_says_how_it_goes_on(
        self, setup: Setup, *, is_wanted: bool
    ) -> None:
        """The other side was restored from a backup: the cursor would pass over what that lacks."""
        setup.target.place, end = await self.two(setup)
        place, confirmed = setup.target.place.position, setup.target.confirmed
        del confirmed[2:]
        setup.source.put(1)
        await setup.outputs.start(NAME)
        await soon(lambda: setup.state == "error")
        (status,) = setup.outputs.status(NAME)
        assert status.error == (
            f"the other side has lost changes that it had confirmed: it has those up to {place}."
            f" `sluice seek {NAME} {CLIENT} {place}` sends again what follows;"
            f" `sluice seek {NAME} {CLIENT} {end.position}` goes on without it"
        )
        assert confirmed == [0, 1]
        await setup.embedded.seek(NAME, CLIENT, place if is_wanted else end.position)
        await setup.outputs.start(NAME)  # as the command does
        await soon(setup.acked)
        assert confirmed == ([0, 1, 2, 3, 4] if is_wanted else [0, 1, 4])

    async def test_one_of_another_history_is_an_error_unless_the_cursor_has_executed_it(self, setup: Setup) -> None:
        await setup.deliver(3)
        await soon(setup.acked)
        await setup.outputs.stop(NAME)
        setup.target.place = Place("102/bin.000001@1700000000:900:0", "0-102-7")
        await setup.outputs.start(NAME)
        await soon(lambda: setup.state == "error")
        assert "belongs to another source or history" in setup.outputs.status(NAME)[0].error

    async def test_one_inside_a_transaction_of_another_source_is_an_error_that_says_how_it_goes_on(
        self, setup: Setup
    ) -> None:
        await setup.deliver(3)
        await soon(setup.acked)
        cursor = setup.embedded.cursor(NAME, CLIENT)
        assert cursor is not None
        await setup.outputs.stop(NAME)
        await setup.embedded.seek(NAME, CLIENT, replace(cursor, gtid="0-101-3"), is_confirmed=True)
        setup.target.place = Place("102/bin.000001@1700000000:900:5", "0-101-3")
        await setup.outputs.start(NAME)
        await soon(lambda: setup.state == "error")
        error = setup.outputs.status(NAME)[0].error
        assert "a part of a transaction, up to 102/bin.000001@1700000000:900:5" in error
        assert "Switch back to that one; or let the whole transaction be sent again" in error
        assert f"`sluice seek {NAME} {CLIENT} {cursor.position}`" in error

    @pytest.mark.parametrize("gtids", ["0-102-7", ""])
    async def test_so_is_one_inside_a_transaction_for_a_client_of_which_nothing_is_remembered(
        self, setup: Setup, gtids: str
    ) -> None:
        await setup.outputs.stop(NAME)
        await setup.embedded.release(NAME, CLIENT)
        await setup.embedded.unsubscribe(NAME, CLIENT)
        setup.target.place = Place("102/bin.000001@1700000000:900:5", gtids)
        await setup.outputs.start(NAME)
        await soon(lambda: setup.state == "error")
        error = setup.outputs.status(NAME)[0].error
        assert "belongs to another source or history" in error
        assert f"`sluice seek {NAME} {CLIENT} POSITION`" in error


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ("0-101-3", "0-101-3", True),
        ("0-101-3,1-5-7", "0-101-2", True),
        ("0-101-3", "0-101-4", False),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3", True),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-6", False),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "0-101-1", False),
        ("0-101-3", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", False),
        ("0-101-3", "", False),
        ("", "0-101-3", False),
    ],
)
def test_a_cursor_is_after_a_place_of_another_history_if_it_has_executed_all_of_it(
    here: str, there: str, *, expected: bool
) -> None:
    cursor = Cursor("bin.000001", 4, 0, 101, gtid=here)
    assert delivery._has_executed(cursor, Place("102/bin.000001@1700000000:900:0", there)) is expected
    inside = Place("102/bin.000001@1700000000:900:2", there)
    assert delivery._has_executed(cursor, inside) is (expected and here != there), "a part of the next transaction"


class TestAnotherConfiguration:
    """Outputs come, change and go while their destination runs."""

    async def test_one_that_is_added_starts_beside_the_others(self, setup: Setup) -> None:
        first, setup.target = setup.target, ListTarget()
        setup.configured = [*setup.configured, Output(NAME, "b", OutputSettings(client_id=1002), shared=False)]
        await setup.outputs.start(NAME)
        setup.source.put(3)
        await soon(lambda: first.confirmed == setup.target.confirmed == [0, 1, 2])
        assert first.calls.count("open") == 1

    async def test_one_that_changes_starts_again_at_its_cursor(self, setup: Setup) -> None:
        await setup.deliver(3)
        await soon(setup.acked)
        first, setup.target = setup.target, ListTarget()
        setup.configured = [Output(NAME, "a", OutputSettings(client_id=CLIENT, max_bytes=4096), shared=False)]
        await setup.outputs.start(NAME)
        assert first.calls[-1] == "close"
        setup.source.put(2)
        await soon(lambda: setup.target.confirmed == [3, 4])

    async def test_one_that_goes_sends_nothing_more(self, setup: Setup) -> None:
        setup.configured = []
        await setup.outputs.start(NAME)
        setup.source.put(3)
        assert setup.target.calls[-1] == "close"
        assert not setup.outputs.status(NAME)
        assert setup.embedded.status(NAME, CLIENT).lag.entries == 3

    async def test_a_mistake_changes_nothing(self, setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
        def fail(_: str) -> list[Output]:
            raise ConfigError("instance.properties:7: sluice.outputs")

        setup.outputs._load = fail
        await setup.outputs.start(NAME)
        assert "its outputs do not change: instance.properties:7" in caplog.text
        await setup.deliver(3)
        assert setup.target.calls.count("open") == 1
