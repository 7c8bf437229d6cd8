"""Says of a record which change it holds, for the text of an error."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from ....protocol.canal.records import Records
from ....protocol.canal.rows import decode_changes
from ....protocol.position import Position
from ....store.batch import Batch
from ..forms.form import Form
from ..target import Prepared


class SentRecord(NamedTuple):
    """A record among those that are sent."""

    batch: Batch
    records: Records
    number: int


def find(batches: Iterable[Prepared], value: bytes) -> SentRecord | None:
    """Find the first record of this value."""
    for prepared in batches:
        for records in prepared.content:
            if value in records.values:
                return SentRecord(prepared.batch, records, records.values.index(value))
    return None


def describe(place: SentRecord, form: Form) -> str:
    """Say whose rows a record has: ``a record of shop.goods, 2 rows from id=7 on, 30000 bytes``."""
    records, number = place.records, place.number
    value = records.values[number]
    schema, table, key = form.subject(value)
    rows = records.rows[number]
    parts = [f"a record of {schema}.{table}" if table else "a record"]
    if rows:
        parts.append(f"{rows} row{'s' * (rows > 1)}{f' from {key} on' if rows > 1 and key else f' {key}'}".rstrip())
    return ", ".join([*parts, f"{len(value)} bytes"])


def position(place: SentRecord) -> str:
    """Return where the (first) entry of a record stands in the stream."""
    return position_of(place.batch, place.records.entries[place.number])


def position_of(batch: Batch, entry: int) -> str:
    """Return where an entry of a batch stands in the stream."""
    return next(islice(positions_of(batch), entry, None))


def positions_of(batch: Batch) -> Iterator[str]:
    """Give the place of each entry of a batch; of those that name none, the beginning of the batch."""
    ends = {it.canal_place[0]: it.parts for it in map(Position.parse, (batch.from_, batch.to))}
    numbers = _varints(batch.positions)
    for change in chain.from_iterable(map(decode_changes, batch.slices)):
        place = tuple(islice(numbers, 2))
        source, file, *_ = ends.get(change.logfile_name, ("", ("", 0)))
        # A batch with more than two files, or one apart from the stream, says nothing of an entry.
        yield str(Position.of_parts(source, file, *place)) if source and place else batch.from_


def _varints(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
