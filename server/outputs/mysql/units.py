"""What an output applies at a time: transactions that follow one another, a part of one, or rows of a snapshot."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ....protocol.canal.arrow import EnvelopeDecoder
from ....protocol.canal.outline import outline
from ....protocol.canal.rows import decode_changes
from ....protocol.canal.transactions import Transactions
from ....store.batch import Batch
from ..target import server_of
from .loops import LoopGuard
from .progress import Progress

SIZE = 64 << 10
"""Bytes of the transactions that are applied as one, unless one alone has more."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Changes of rows that are applied together."""

    changes: pa.RecordBatch
    data: memoryview
    """The entries that they are decoded from."""
    is_begun: bool
    """They begin with a transaction; else one that came in part before goes on."""
    is_whole: bool
    """They end with a transaction; else it goes on."""
    server: str = ""
    """Which their transactions were read from ..."""
    names: str = ""
    """... and how these are called, see `Transactions`; empty of a snapshot, and in the middle of a transaction."""
    emptied: tuple[str, str] | None = None
    """A table that has no other rows than these, which are of a snapshot."""

    @property
    def is_free(self) -> bool:
        """Whether others may be applied at the same time, as far as they do not depend on one another."""
        return self.is_begun and self.is_whole

    @property
    def is_empty(self) -> bool:
        """Whether they are whole transactions without rows: nothing is applied."""
        return self.is_free and not self.changes.num_rows


def snapshot_of(batch: Batch, decoder: EnvelopeDecoder, guard: LoopGuard) -> Unit:
    """Return the rows of a batch of a snapshot."""
    data, emptied = b"".join(batch.slices), None
    if outline(data).statements:  # the only one is a TRUNCATE
        first = decode_changes(data)[0]
        emptied = first.schema, first.table
    changes = guard.without_own(decoder.decode(data))
    return Unit(changes, memoryview(data), is_begun=False, is_whole=True, emptied=emptied)


def units_of(batch: Batch, data: bytes, decoder: EnvelopeDecoder, guard: LoopGuard) -> Iterator[Unit]:
    """Give the changes of a batch in their order, without what is left out. Raises DecodeError.

    Also transactions without rows: with others they may be noted as applied.
    """
    made, view, server = outline(data), memoryview(data), server_of(batch)
    transactions = Transactions(data, batch.positions, guard.mark, batch.gtids)
    begin = first = 0
    for last, is_begun, is_marked in transactions.groups(SIZE):
        end = transactions.end(last - 1)
        if is_marked or (guard.drops_open and not is_begun):
            guard.returned += 1
        else:
            changes = guard.without_own(decoder.decode(view[begin:end]))
            names = transactions.names(first, last)
            yield Unit(changes, view[begin:end], is_begun, is_whole=True, server=server, names=names)
        begin, first = end, last
    rest, name = view[made.boundary :], transactions.names(first, first + 1)
    guard.drops_open = made.is_open and (transactions.is_open_marked or (guard.drops_open and not name and not first))
    if made.is_open and not guard.drops_open:
        changes = guard.without_own(decoder.decode(rest))
        yield Unit(changes, rest, is_begun=bool(name), is_whole=False, server=server, names=name)


def left_of(units: Iterable[Unit], progress: Progress, decoder: EnvelopeDecoder) -> Iterator[Unit]:
    """Give what of units has rows and is not applied yet. Raises RejectedError where that is not known."""
    for unit in units:
        if not unit.is_whole:
            if not progress.has_open(unit.server, unit.names):
                yield unit
        elif unit.names and (left := progress.pass_over(unit.server, unit.names)) is not None:
            yield from _some_of(unit, left, decoder)
        elif not unit.is_empty:
            yield unit


def _some_of(unit: Unit, numbers: Sequence[int], decoder: EnvelopeDecoder) -> Iterator[Unit]:
    """Give some of the transactions of a unit, each by itself."""
    transactions, names = Transactions(unit.data), unit.names.splitlines(keepends=True)
    for number in numbers:
        data = unit.data[transactions.end(number - 1) if number else 0 : transactions.end(number)]
        changes = decoder.decode(data)
        yield replace(unit, changes=changes, data=data, names=names[number])
