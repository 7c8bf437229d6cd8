"""The thread of a destination: it reads another one as a client, lets a function process the rows, and fills the ring.

Each entry keeps its place, whatever the function makes of it. So places are those of the other destination, and a
cursor says what is to be read again.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ....client_sdk.batch import Batch
from ....client_sdk.calls import Limits
from ....client_sdk.client import Client
from ....protocol import props
from ....protocol.canal.rows import occurs_in_header
from ....protocol.errors import (
    BadPositionError,
    NotConfiguredError,
    NotSubscribedError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
    StaleSessionError,
    UnknownTableError,
)
from ....protocol.position import Position
from ....store.cursor import OLDEST, Cursor
from ....store.moves import Reason
from ....store.ring import Ring
from ...columns import SourceColumn
from ...quarantine import Item, Quarantine, path_of
from ...source import TableReader
from ...status import ParserStatus
from ..changes.frames import FrameParser
from .config import ProcessConfig, read_columns
from .pool import Pool
from .rows import Failure

logger = logging.getLogger(__name__)

WAIT: Final = 0.5
"""Seconds for which the other destination is waited for: what a stop may take."""
RETRY: Final = 5.0
"""Seconds for which a call is repeated that gets no answer; then the thread tries again."""
LAST: Final = 1.0
"""Seconds for the last call of a client that may outlive the server."""
EVERYTHING: Final = r".*\..*"
"""The filter that lets all tables through."""
LARGEST: Final = 1 << 20
"""Bytes of a batch, unless it is one entry."""
EXPIRY: Final = 3600
"""Seconds after which the other destination forgets the client of a reader that was killed."""
BEGIN: Final = 10.0
"""Seconds for which the other destination is asked where a client begins."""

BY_HAND: Final = (Reason.SEEK, Reason.SKIP, Reason.ACK, Reason.UNSUBSCRIBE)
"""The reasons of jumps that somebody asks for. Of any other, a marker in the stream tells."""

_taken: set[tuple[str, int]] = set()
_lock = threading.Lock()


class Feeder(Client):
    """A client of the other destination."""

    def __init__(self, config: ProcessConfig, client_id: int, *, retry: float = RETRY) -> None:
        ca = None if config.ca == Path() else config.ca
        token = config.token.get_secret_value() or None
        self.config = config
        self.client_id = client_id
        self._given = ""  # the place after the last batch, where the next one begins if nobody moves the client
        self._own: set[tuple[str, int]] = set()  # the jumps by hand until it began, and that of its own beginning
        super().__init__(config.url, config.feeder, client_id, token=token, ca=ca, timeout=retry or LAST, retry=retry)

    def begin(self, start: str | datetime, expire_after: int | None = None) -> Position:
        """Let the client go on at a place, or before it; return where that is. Raises SluiceError."""
        self._own = {_name(it) for it in self.moves()}
        with suppress(NotSubscribedError):
            if self.status()["acked"] != start:
                self._own.add(_name(self.unsubscribe()))
        wanted = EVERYTHING if self.config.shared_filter else self.config.filter_regex  # clients may change it
        self.subscribe(wanted, start, expire_after=expire_after)
        waited = threading.Event()
        for _ in range(round(BEGIN / 0.1)):
            status = self.status()
            if found := status["acked"] or status["position"]:
                return self.read(found)
            waited.wait(0.1)
        raise SourceError(f"{self.config.place} has not said within {BEGIN:g} s where it is")

    def check(self, batch: Batch) -> None:
        """Raise SourceError if somebody else has moved the client over changes before a batch.

        A batch need not begin where the one before ended: the client also moves on over what it does not want.
        """
        if batch.from_ != self._given:
            for it in self.moves():
                if it["reason"] in BY_HAND and _name(it) not in self._own:
                    raise SourceError(
                        f"client {self.client_id} of {self.config.place} was moved by {it['who']} over {it['text']}."
                        f" It goes back to where {self.config.destination} was, so that nothing is lost. Let nobody"
                        " else use that client. To leave changes out, seek the clients of this destination"
                    )
        self._given = batch.to

    def read(self, position: str) -> Position:
        """Read a place of the other destination. Raises SourceError for one of a group."""
        try:
            return Position.parse(position)
        except BadPositionError as error:
            raise SourceError(f"{self.config.place} has several sources, and cannot be processed: {error}") from None


def _name(jump: Mapping[str, Any]) -> tuple[str, int]:
    """Return what tells a jump of the client from its others."""
    return str(jump["reason"]), int(jump["time"])


@contextmanager
def _free(config: ProcessConfig, ids: Iterable[int], refusal: str) -> Iterator[int]:
    """Keep one of these ids of clients from others of this process. Raises SourceError if none is free."""
    name = f"{config.url} {config.feeder}"
    with _lock:
        client_id = next((it for it in ids if (name, it) not in _taken), 0)
        if not client_id:
            raise SourceError(f"{config.place}: {refusal}")
        _taken.add((name, client_id))
    try:
        yield client_id
    finally:
        with _lock:
            _taken.discard((name, client_id))


@contextmanager
def owned(config: ProcessConfig) -> Iterator[Feeder]:
    """Make the client by which a destination reads. Raises SourceError if another destination reads by it."""
    refusal = (
        f"another destination uses client {config.client_id}: give each numbers of its own"
        " (sluice.instance.process.clientId)"
    )
    with _free(config, [config.client_id], refusal) as client_id, Feeder(config, client_id) as client:
        yield client


@contextmanager
def borrowed(config: ProcessConfig) -> Iterator[Feeder]:
    """Make a client with an id that is free, for a while: for a catch-up reader, or a question."""
    ids = range(config.client_id + 1, config.client_id + config.catch_up_readers + 2)
    with _free(config, ids, f"all clients from {ids[0]} to {ids[-1]} are in use, try again") as client_id:
        try:
            with Feeder(config, client_id) as client:
                yield client
        finally:
            with suppress(SluiceError), Feeder(config, client_id, retry=0) as client:  # the other one may be closed
                client.unsubscribe()


class ProcessParser(FrameParser):
    """Reads another destination: see `sluice.instance.source.Parser`."""

    _config: ProcessConfig

    def __init__(self, config: ProcessConfig, ring: Ring, **given: Any) -> None:
        """See `sluice.instance.source.ParserFactory`."""
        super().__init__(config, ring, **given)
        self._config = config
        self._pool = Pool(config)
        self._quarantine = Quarantine(path_of(config.file_data_dir, config.destination))
        self._batches: deque[Batch] = deque()  # that are processed now
        self._client: Feeder | None = None
        self._shape = ""

    # --- what any thread may ask

    @property
    def status(self) -> ParserStatus:
        """How far it is."""
        return replace(super().status, quarantined=len(self._quarantine))

    def end(self) -> Position:
        """Ask the other destination for the end of its source. Raises SluiceError."""
        with Feeder(self._config, self._config.client_id) as client:
            return client.read(client.latest())

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`."""
        if isinstance(wanted, str):
            raise BadPositionError(f"not a position, nor a time: {wanted[:200]!r}")
        start = "oldest" if wanted is None else datetime.fromtimestamp(wanted / 1000, UTC)
        with borrowed(self._config) as client:
            return Cursor.at(client.begin(start, EXPIRY))

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Return the columns that the other destination has now, and those that the function may add.

        Raises UnknownTableError and SourceError.
        """
        if at is not None:
            raise UnknownTableError(f"{schema}.{table}: its columns in the past are not known")
        with Feeder(self._config, self._config.client_id) as client:
            columns = client.columns(f"{schema}.{table}")
        found = [SourceColumn(it.name, it.mysql_type, None, it.is_key) for it in columns]
        known = {it.name for it in found}
        added = read_columns(self._config.added).get((schema, table), {})
        return found + [SourceColumn(name, type_) for name, type_ in added.items() if name not in known]

    def tables(self) -> list[tuple[str, str]]:
        """Ask the other destination for its tables. Raises SluiceError."""
        with Feeder(self._config, self._config.client_id) as client:
            return [(schema, table) for schema, _, table in (it.partition(".") for it in client.tables())]

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`: it gives changes only."""
        raise NotConfiguredError(f"{self._config.source_title} has no tables that a snapshot could read")

    def announce(self, change: str) -> None:
        """See `sluice.instance.source.Parser.announce`."""
        self._shape = change

    def stop(self) -> None:
        """Tell the thread to end, and return at once."""
        super().stop()
        if self._client is not None:
            self._client.close()
        self._pool.stop()

    # --- the thread

    def _close(self) -> None:
        super()._close()
        self._pool.close()

    def _read(self) -> None:
        """Read until told to stop, or up to the stop position. Raises SluiceError."""
        self._pool.start()
        config = self._config
        with (borrowed if self._stop_at is not None else owned)(config) as self._client:
            self._batches.clear()
            self._pool.drop()
            try:
                self._read_client(self._client)
            except (NotSubscribedError, StaleSessionError) as error:
                raise SourceError(
                    f"client {self._client.client_id} of {config.place} was taken over or unsubscribed: if another"
                    " server reads by it, too, give each numbers of its own (sluice.instance.process.clientId)."
                    f" {config.destination} resumes where it was"
                ) from error

    def _read_client(self, client: Feeder) -> None:
        start = self._find_start(client)
        client.open_session()
        client.rollback()
        self._connections += 1
        if self._next is None:
            self._on_begin(start, None)
            self._next = start
            self._say_shape()
        limits = Limits(max_bytes=LARGEST)
        while not self._stopping.is_set() and not self._is_stop(self._next):
            batch = None
            if not self._pool.is_full:
                batch = client.get_without_ack(0 if self._pool.is_busy else WAIT, limits)
                self._set_state("running", "")
                self.failure = None
            if batch:
                self._add(client, batch)
            elif self._pool.is_busy:
                if not self._take(client):
                    return
            else:
                self._read_up_to_now()

    def _add(self, client: Feeder, batch: Batch) -> None:
        """Let a batch be processed."""
        client.check(batch)
        self._bytes += len(batch.data)
        client.read(batch.to)
        if occurs_in_header(batch.data, props.LATE.encode()) and batch.from_ == batch.to:
            while self._pool.is_busy:
                self._take(client)
            self._mark_late(client.read(batch.to), batch)
            client.ack(batch)
            return
        self._pool.add(batch.data)
        self._batches.append(batch)

    def _take(self, client: Feeder) -> bool:
        """Put the oldest batch when it is processed; False when it is to stop."""
        data, failures = self._pool.take()
        batch = self._batches.popleft()
        begin, end = client.read(batch.from_), client.read(batch.to)
        assert self._next is not None
        if self._is_stop(begin):
            return False
        if not self._is_put(end):
            if failures:
                self._list(failures, (begin, end))
            if data:
                if not self._put_frame(data, begin, end):
                    return False
            elif not self._skip(end):
                return False
            self._frames += 1
        if self._stager.is_done:
            return False
        client.ack(batch)
        return True

    def _skip(self, end: Position) -> bool:
        """Put the place after a batch of which nothing is left."""
        self._next = end
        if end.n == 0 and not self._is_stop(end):
            self._begin(b"", end, end)
            self._stager.advance(end.file, end.begin, end.n)
        return self._put()

    def _read_up_to_now(self) -> None:
        self._read_until = time.monotonic()
        self.on_caught_up(self._read_until)

    def _list(self, failures: Sequence[Failure], ends: tuple[Position, Position]) -> None:
        """List in the quarantine what markers stand for, before they are put. Raises SourceError."""
        files = {it.file: it for it in ends}
        for it in failures:
            place = replace(files.get(it.file, ends[0]), file=it.file, begin=it.place[0], n=it.place[1])
            logger.error("put into quarantine at %s: %s", place, it.reason)
            self._quarantine.add(
                Item(str(place), it.schema, it.table, it.type, it.ms // 1000, it.server_id, it.size, it.reason, "")
            )
        try:
            self._quarantine.sync()
        except OSError as error:
            raise SourceError(f"the quarantine cannot be written: {error}") from error

    def _mark_late(self, place: Position, batch: Batch) -> None:
        """Say that rows are missing which the other destination gives out of their order."""
        late = sorted({it.late for it in batch.changes() if it.late})
        text = f"rows of {', '.join(late)}, which {self._config.feeder} could not decode before, are not processed"
        logger.warning("%s", text)
        self._begin(b"", place, place)
        self._stager.mark(text, place.file, place.begin, place.n)
        self._put()

    def _say_shape(self) -> None:
        if self._shape and self._next is not None:
            self._begin(b"", self._next, self._next)
            self._stager.mark(self._shape, self._next.file, self._next.begin, self._next.n, props.SHAPE)
            self._shape = ""
            self._put()

    def _find_start(self, client: Feeder) -> Position:
        """Let the client begin at the first of the places that the other destination has. Raises SluiceError."""
        if self._next is not None:
            client.begin(str(self._next), self._expiry)
            return self._next
        refused: dict[Cursor, SluiceError] = {}
        for place in self._places:
            if place == OLDEST and not any(isinstance(it, PurgedError) for it in refused.values()):
                continue
            try:
                start = self._begin_at(client, place)
            except (PurgedError, SourceChangedError, BadPositionError) as error:
                if place is None:
                    raise
                refused[place] = error
            else:
                self.refused = refused
                return start
        self.refused = refused
        raise next(iter(refused.values()))

    def _begin_at(self, client: Feeder, place: Cursor | None) -> Position:
        if place is None:
            return client.begin(client.latest(), self._expiry)
        if place == OLDEST:
            return client.begin("oldest", self._expiry)
        if place.position is None:
            raise SourceChangedError(f"{place.journal} is not a place of {self._config.place}: name it as a position")
        client.begin(str(place.position), self._expiry)
        return place.position

    @property
    def _expiry(self) -> int:
        """Seconds after which the client is forgotten: 0 for never."""
        return EXPIRY if self._stop_at is not None else 0
