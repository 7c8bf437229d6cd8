"""Which changes run at the same time, and what is acked: random keys, orders, failures and rollbacks beside a model."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sluice.client_sdk import Batch
from sluice.client_sdk.endpoint import Endpoint
from sluice.client_sdk.process import Processing
from tests.effort import times

Keys = frozenset[Hashable] | None

KEYS: st.SearchStrategy[Keys] = st.one_of(
    st.frozensets(st.integers(0, 4), min_size=1, max_size=2),  # two: a key that changes
    st.frozensets(st.integers(0, 50), min_size=1, max_size=1),
    st.sampled_from([None, frozenset([0])]),
)
SELDOM = st.sampled_from([False] * 7 + [True])
WINDOW = 4
MAX_BYTES = 30


@dataclass(eq=False)
class Change:
    """A change as the model knows it."""

    type = "INSERT"
    schema = "shop"
    table = "orders"
    logfile_name = "bin.000001"

    logfile_offset: int
    keys: Keys
    state: str = "waiting"

    def excludes(self, other: "Change") -> bool:
        return self.keys is None or other.keys is None or not self.keys.isdisjoint(other.keys)


class Model(RuleBasedStateMachine):
    """What is given, what runs, and what the rules allow."""

    @initialize(workers=st.integers(1, 4))
    def start(self, workers: int) -> None:
        self.workers = workers
        self.endpoint = Endpoint("http://localhost", "shop", 1001, None, insecure=False)
        self.processing: Processing[Any] = Processing(
            self.endpoint, print, workers, None, None, WINDOW, MAX_BYTES, grace=1
        )
        self.batches: list[tuple[Batch, list[Change]]] = []
        self.count = 0
        self.late: list[Change] = []  # of batches that come again, begun before
        self.running: list[Any] = []
        self.is_failed = False

    @property
    def changes(self) -> list[Change]:
        return self.late + [change for _, changes in self.batches for change in changes]

    def may_begin(self) -> list[Change]:
        """All that may, the oldest first."""
        unfinished = [it for it in self.changes if it.state != "done"]
        return [
            it
            for number, it in enumerate(unfinished)
            if it.state == "waiting" and not any(it.excludes(before) for before in unfinished[:number])
        ]

    def begin(self) -> None:
        """Begin what may, and check each; then nothing that may is left without a reason."""
        for task in self.processing.begin():
            change: Any = task.change
            assert not self.is_failed
            assert change is self.may_begin()[0]
            change.state = "running"
            self.running.append(task)
            assert self.processing.active == len(self.running) <= self.workers
        assert self.is_failed or len(self.running) == self.workers or not self.may_begin()

    @precondition(lambda self: not self.processing.is_full)
    @rule(keys=st.lists(KEYS, max_size=8), size=st.integers(1, 20), comes_late=SELDOM)
    def fetch(self, keys: list[Keys], size: int, comes_late: bool) -> None:
        self.add(keys, size, comes_late=comes_late)

    def add(self, keys: list[Keys], size: int, *, comes_late: bool) -> None:
        changes = [Change(self.count + number, it) for number, it in enumerate(keys)]
        self.count += len(keys)
        batch = Batch(self.count, "", "", bytes(size))
        generation = self.endpoint.generation - comes_late
        self.processing.add(generation, batch, [(it, it.keys) for it in changes])  # type: ignore[misc]
        if not comes_late:
            self.batches.append((batch, changes))
        self.begin()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=SELDOM)
    def finish(self, data: st.DataObject, fails: bool) -> None:
        task = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        change: Any = task.change
        change.state = "failed" if fails else "done"
        self.is_failed |= fails
        self.processing.end(task, ValueError("no") if fails else None)
        self.begin()

    @rule()
    def ack(self) -> None:
        wanted = []
        while self.batches and all(it.state == "done" for it in self.batches[0][1]):
            wanted.append(self.batches.pop(0)[0])
        if self.is_failed:
            generation, batches = self.processing.take_last()
        else:
            generation, batches = self.processing.take()
        assert batches == wanted
        assert generation == self.endpoint.generation
        full = len(self.batches) >= WINDOW or sum(len(batch.data) for batch, _ in self.batches) >= MAX_BYTES
        assert self.processing.is_full == full
        self.begin()

    @rule(comes=SELDOM)
    def roll_back(self, comes: bool) -> None:
        if not comes:
            return
        self.endpoint.generation += 1
        self.late = [it for it in self.changes if it.state in ("running", "failed")]
        self.batches = []
        self.add([it.keys for it in self.late], 1, comes_late=False)


TestSchedule = Model.TestCase
TestSchedule.settings = settings(max_examples=times(40, 400), stateful_step_count=40, deadline=None)
