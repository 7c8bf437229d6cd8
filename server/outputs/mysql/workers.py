"""Applies transactions at the same time in several sessions, as far as they do not depend on one another."""

from array import array
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from ....sql.dependencies import Dependencies
from ....sql.tables import Name, Tables
from ....sql.writer import by_table
from ..threads import LeftExecutor
from .progress import Progress
from .session import Session, StoppedError, Turns
from .settings import SafeMode
from .units import Unit

if TYPE_CHECKING:
    from pymysql.cursors import Cursor


class Workers:
    """The sessions of an output beside the main one, each with a thread. All methods but `abandon` are of one thread.

    A session is opened when it is first needed.
    """

    def __init__(self, count: int, connect: Callable[[int], Session], progress: Progress, *, in_order: bool) -> None:
        """``connect`` opens the session of a worker by its number, from 1 on.

        ``in_order``: transactions are committed in their order.
        """
        self._connect = connect
        self._progress = progress
        self._in_order = in_order
        self._threads = {number: LeftExecutor(f"apply {number}") for number in range(1, count + 1)}
        self._sessions: dict[int, Session] = {}
        self._turns: Turns | None = None
        self._is_abandoned = False

    def __len__(self) -> int:
        return len(self._threads)

    def apply(self, units: Sequence[Unit], keys: Sequence[bytes], mode: SafeMode) -> None:
        """Apply units, each in a transaction which notes that; returns when all are committed, or the first has failed.

        ``keys``: the digests that each of them has, see `Dependencies`. Raises as `Session.transact`.
        """
        graph = Dependencies()
        ends = array("i")
        for some in keys:
            ends.append((ends[-1] if ends else 0) + len(some) // 8)
        graph.add(ends, b"".join(keys))
        turns = self._turns = Turns() if self._in_order else None
        ended: SimpleQueue[_Ended] = SimpleQueue()
        idle = sorted(self._threads, reverse=True)
        failure: BaseException | None = None

        def run(worker: int, place: int, number: int) -> None:
            error: BaseException | None = None
            try:
                self._apply(worker, units[place], number, mode, (turns, place))
            except BaseException as caught:  # noqa: BLE001  for the thread that waits
                error = caught
            ended.put(_Ended(worker, place, error))

        first = self._progress.numbers(len(units))
        while len(graph):
            for place in graph.take(len(idle)) if failure is None else ():
                worker = idle.pop()
                self._threads[worker].submit(run, worker, place, first + place)
            if len(idle) == len(self._threads):
                break  # after a failure
            worker, place, error = ended.get()
            idle = sorted([*idle, worker], reverse=True)
            if error is None:
                graph.done([place])
            elif failure is None or isinstance(failure, StoppedError):
                failure = error
                if turns is not None:
                    turns.stop()
        self._turns = None
        if failure is not None:
            raise failure

    def _apply(self, worker: int, unit: Unit, number: int, mode: SafeMode, turn: tuple[Turns | None, int]) -> None:
        session = self._sessions.get(worker)
        if session is None:
            session = self._sessions[worker] = self._connect(worker)
            if self._is_abandoned:
                session.shutdown()

        def work(is_safe: bool) -> None:
            session.write([unit], is_safe=is_safe)
            self._progress.note(session.cursor, worker, number, unit.server, unit.names)

        session.transact(work, mode, *turn)

    def abandon(self) -> None:
        """Let `apply` end soon, by an error; from any thread."""
        self._is_abandoned = True
        turns = self._turns
        if turns is not None:
            turns.stop()
        for session in list(self._sessions.values()):
            session.shutdown()

    def close(self) -> None:
        """Close the sessions. It is not used any more."""
        for thread in self._threads.values():
            thread.shutdown()
        for session in self._sessions.values():
            session.close()


class _Ended(NamedTuple):
    worker: int
    place: int
    error: BaseException | None


def keys_of(units: Sequence[Unit], tables: Tables, cursor: "Cursor", *, is_safe: bool) -> list[bytes]:
    """Return the digests by which each unit depends on others, see `Dependencies`. Gets the tables.

    All changes of a table depend on one another if that is not known of some of them.
    """
    found: list[bytearray] = []
    named: list[list[Name]] = []
    in_line: set[Name] = set()
    for unit in units:
        own, names = bytearray(), []
        for name, rows in by_table(unit.changes):
            needs_key = unit.changes["_key"].take(rows).null_count == 0
            known = tables.get(cursor, name, needs_key=needs_key)
            digests = known.key_digests(unit.changes, rows, is_safe=is_safe)
            if digests is None:
                in_line.add(name)
            else:
                own.extend(digests)
            names.append(name)
        found.append(own)
        named.append(names)
    for own, names in zip(found, named, strict=True):
        for name in in_line.intersection(names):
            own.extend(tables.get(cursor, name, needs_key=False).digest())
    return [bytes(it) for it in found]
