"""Says of a record which change it holds, for the text of an error."""

from collections.abc import Iterable
from typing import NamedTuple

from ....store.batch import Batch
from ..forms.encoding import AnyRecords
from ..forms.form import Form
from ..places import position_of
from ..target import Prepared


class SentRecord(NamedTuple):
    """A record among those that are sent."""

    batch: Batch
    records: AnyRecords
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
