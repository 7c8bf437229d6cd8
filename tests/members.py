"""A group whose members a test brings forward itself, event by event, instead of parsers that read servers."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from sluice.instance.sources.group.config import GroupConfig
from sluice.instance.sources.group.parser import GroupParser
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.instance.status import ParserStatus
from sluice.protocol.canal.entry_pb2 import ROWDATA, Entry, Header
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.cut import Cut, Executed
from sluice.protocol.gtid import GtidSet
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from sluice.store.track import Track
from tests.stream import CREATED, FILE
from tests.waiting import eventually

if TYPE_CHECKING:
    from sluice.instance.agreement import Agreement
    from sluice.instance.sources.group.member import MakeMember
    from sluice.protocol.errors import SluiceError


def place(name: str, transaction: int, n: int = 0) -> Position:
    """The place of the n-th event of a transaction of a member."""
    return Position(f"of-{name}", FILE, CREATED, 4 + transaction, n)


class Played:
    """A member's parser. It begins where it is told to, else at the transaction ``written``."""

    def __init__(self, name: str, ring: Ring, places: Sequence[Cursor | None], begun: Callable[..., None]) -> None:
        self.name, self.ring, self.places = name, ring, places
        self.failure: SluiceError | None = None
        self.heartbeat = 0.0
        self.on_caught_up: Callable[[float], None] = lambda _: None
        self.status = ParserStatus()
        self.is_stopped = False
        self.at = (0, 0)
        """The transaction, and the event in it, that comes next."""
        self._on_begin = begun
        self._staging, self._writer = Staging(), SegmentWriter(ring.pool)
        self._source, self._file = ring.sources.intern(("", f"of-{name}")), ring.files.intern((FILE, CREATED))

    def begin(self, written: int = 0, gtids: GtidSet | None = None, *, is_named: bool = True) -> Self:
        """Say where it begins; unless ``is_named`` only its first slot will tell the place."""
        asked = next((it.position for it in self.places if it is not None), None)
        found = asked or place(self.name, written)
        self.at = found.begin - 4, found.n
        self._on_begin(found if is_named else None, gtids)
        return self

    def bring(self, *rows: str, ends: bool = True) -> None:
        """Put what follows of a transaction, with its begin if that is next, and its end if it ends."""
        if self.at[1] == 0:
            self._stage("begin", Kind.TRANSACTION_BEGIN)
        for row in rows:
            self._stage(row, Kind.ROW_DATA)
        if ends:
            self._stage("end", Kind.TRANSACTION_END, ends=True)
        threading.Thread(target=self.ring.put, args=(self._staging,), daemon=True).start()  # it may have to wait

    def rest(self) -> None:
        """Say that there is nothing more."""
        self.on_caught_up(time.monotonic())

    def _stage(self, text: str, kind: Kind, *, ends: bool = False) -> None:
        entry = Entry(header=Header(tableName="orders"), entryType=ROWDATA, storeValue=text.encode())
        self._writer.write_framed(entry.SerializeToString())
        (transaction, n), after = self.at, (self.at[0] + 1, 0) if ends else (self.at[0], self.at[1] + 1)
        self._staging.add_entry(
            self._writer,
            kind,
            flags=Flag.BOUNDARY if ends else 0,
            rows=int(kind is Kind.ROW_DATA),
            source=self._source,
            execute_ms=(CREATED + transaction) * 1000,
            file=self._file,
            begin=4 + transaction,
            n=n,
            next_file=self._file,
            next_begin=4 + after[0],
            next_n=after[1],
        )
        self.at = after

    # --- what a group's thread asks of a parser

    def start(self) -> None:
        """Do nothing: the test brings it forward."""

    def stop(self) -> None:
        """Note it."""
        self.is_stopped = True

    def join(self, timeout: float | None = None) -> None:
        """Return at once: it has no thread."""

    def agree_with(self, agreement: "Agreement", member: str) -> None:
        """Have no split tables."""

    def clock(self) -> float | None:
        """Have no clock."""
        return None

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """Begin there, if it begins."""
        self.places = places


class Group:
    """A group's parser with played members, from ``start`` on; ``joins``: others may join."""

    def __init__(
        self,
        folder: Path,
        *names: str,
        start: Cursor | None = None,
        later: Sequence[Cursor] = (),
        joins: bool = True,
        ring: Ring | None = None,
        **options: Any,
    ) -> None:
        self.ring = Ring() if ring is None else ring
        self.members: dict[str, Played] = {}
        """As they were made last."""
        self.begun: list[tuple[Position | None, Executed | None]] = []
        self.states: list[tuple[str, str]] = []
        self.kept: dict[str, Future[None]] = {}
        """The starts that are to be stored."""
        self._folder, self._options = folder, options
        self.parser = GroupParser(
            cast("MakeMember", self._make),  # it is all that is asked of a member
            self.config(*names),
            self.ring,
            start=start,
            later=later,
            on_begin=lambda *it: self.begun.append(it),
            on_state=lambda *it: self.states.append(it),
        )
        if joins:
            self.parser.use_keep_start(self._keep)

    def config(self, *names: str, **users: str) -> GroupConfig:
        """The configuration with these members, of which some are read by other users."""
        common: dict[str, Any] = {"file_data_dir": self._folder}
        made = GroupConfig(destination="orders", members=names, **common, **self._options)
        return made.with_parts(
            {
                it: MysqlConfig(
                    destination=f"orders.{it}",
                    master_address=Address("db", 1),
                    db_username=users.get(it, "x"),
                    **common,
                )
                for it in names
            }
        )

    def __enter__(self) -> Self:
        self.parser.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.parser.stop()
        self.ring.close()
        self.parser.join(10)

    def _make(self, config: MysqlConfig, ring: Ring, *, start: Cursor | None, **more: Any) -> Played:
        name = config.destination.partition(".")[2]
        made = Played(name, ring, [start, *more["later"]], more["on_begin"])
        made.end = lambda: more["on_state"]("finished", "")  # type: ignore[attr-defined]
        self.members[name] = made
        return made

    def _keep(self, member: str, at: Position, gtids: GtidSet | None) -> Future[None]:
        del at, gtids
        self.kept[member] = Future()
        return self.kept[member]

    def member(self, name: str, *, after: Played | None = None) -> Played:
        """Wait for a member, another one than ``after``."""
        eventually(lambda: self.members.get(name) is not after and name in self.members)
        return self.members[name]

    def rest(self) -> None:
        """Let all members say that they have nothing more."""
        for it in tuple(self.members.values()):
            it.rest()

    def rows(self) -> list[str]:
        """What is in the ring: member and row, with the property of those that are late."""
        found = []
        for message in Messages.FromString(b"".join(self.ring.collect(self.ring.first).slices)).messages:
            it = Entry.FromString(message)
            props: Mapping[str, str] = {pair.key: pair.value for pair in it.header.props}
            if it.storeValue not in (b"begin", b"end"):
                text = "gap" if "sluice.gap" in props else it.storeValue.decode()
                found.append(f"{props['sluice.member']}:{text}{' late' * ('sluice.disorder' in props)}")
        return found

    def wait_for(self, *rows: str) -> None:
        """Wait until just these are in the ring."""

        def is_there() -> bool:
            self.rest()
            return self.rows() == [*rows]

        eventually(is_there)

    def wait_for_slots(self, count: int) -> None:
        """Wait until the ring holds `count` slots."""

        def are_there() -> bool:
            self.rest()
            return self.ring.next >= count

        eventually(are_there)

    def end(self) -> Cut:
        """The cut after what is in the ring."""
        (begin, _) = self.begun[0]
        assert isinstance(begin, Cut)
        track = Track(self.ring)
        track._cuts = {0: begin}
        found = track.position_before(self.ring.next)
        assert isinstance(found, Cut)
        return found
