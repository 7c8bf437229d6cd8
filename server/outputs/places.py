"""Where the entries of a batch stand in the stream."""

from collections.abc import Iterator
from itertools import chain, islice

from ...protocol import props
from ...protocol.canal.rows import decode_changes
from ...protocol.cut import ONE, Cut, parse_place, places_in
from ...protocol.position import Position
from ...store.batch import Batch


def position_of(batch: Batch, entry: int) -> str:
    """Return where an entry of a batch stands in the stream."""
    return next(islice(positions_of(batch), entry, None))


def positions_of(batch: Batch) -> Iterator[str]:
    """Give the place of each entry of a batch; of those that name none, the beginning of the batch.

    In a group that is a cut of the entry's member alone.
    """
    ends = {
        (member, it.canal_place[0]): it.parts
        for text in (batch.from_, batch.to)
        for member, it in places_in(parse_place(text)).items()
    }
    numbers = varints(batch.positions)
    for change in chain.from_iterable(map(decode_changes, batch.slices)):
        place = tuple(islice(numbers, 2))
        member = change.header_props.get(props.MEMBER, ONE)
        source, file, *_ = ends.get((member, change.logfile_name), ("", ("", 0)))
        # A batch with more than two files of a member, or one apart from the stream, says nothing of an entry.
        yield str(Cut({member: Position.of_parts(source, file, *place)})) if source and place else batch.from_


def ends_of(batch: Batch) -> list[int]:
    """Return after how many of its entries transactions of a batch end; those of statements that commit are none."""
    changes = chain.from_iterable(map(decode_changes, batch.slices))
    return [number for number, it in enumerate(changes, 1) if it.entry_type == "TRANSACTIONEND"]


def is_transaction(batch: Batch) -> bool:
    """Whether a batch is one whole transaction."""
    begin = parse_place(batch.from_)
    return begin == begin.transaction and ends_of(batch) == [batch.entries]


def varints(data: bytes) -> Iterator[int]:
    """Give the numbers of ``Batch.positions``: two for each entry."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
