"""How batches become records: by a compiled encoder, or by a form of another package."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import Buffer

from ....instance.skipped import Skipped
from ....protocol.canal.records import Encoder, Records
from ....protocol.canal.rows import decode_changes
from ....protocol.errors import MarkerError, RecordTooLargeError, RefusedError, SluiceError
from ....store.batch import Batch
from ..markers import cut, find_marker
from ..places import position_of
from ..routing import Router
from ..settings import OnMarker, OnRefused, OutputSettings
from . import api

KEY_TEXT: Final = 100
"""Characters of a key in a text."""
MOST_RECORDS: Final = 1 << 20
"""Records of a batch, as a form of another package makes them."""
MOST_TOPICS: Final = 10_000
"""Topics that such a form names."""
LONGEST_LINE: Final = 1000
"""Characters of an error of such a form that are shown."""


class FormError(SluiceError):
    """A form of another package has failed, or does not keep to its interface."""


@dataclass(slots=True)
class PluginRecords:
    """See `Records`; with headers."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    topics: "array[int]" = field(default_factory=lambda: array("i"))
    partitions: "array[int]" = field(default_factory=lambda: array("i"))
    rows: "array[int]" = field(default_factory=lambda: array("i"))
    entries: "array[int]" = field(default_factory=lambda: array("i"))
    headers: list[tuple[tuple[str, bytes], ...]] = field(default_factory=list)
    end: int = 0
    refused: RefusedError | None = None


class PluginEncoder:
    """Lays batches out by a form of another package; see `Encoder`."""

    state = ""

    def __init__(self, name: str, form: api.Form, router: Router, limit: int, *, markers: bool) -> None:
        """``markers``: a marker is a change like any other."""
        self._name, self._form, self._router, self._limit, self._markers = name, form, router, limit, markers

    def undo(self) -> None:
        """See `Encoder.undo`: a form remembers nothing."""

    def encode(
        self,
        slices: Iterable[Buffer],
        batch_id: int,
        *,
        begin: int = 0,
        ts: int | None = None,
        positions: bytes = b"",
    ) -> PluginRecords:
        """See `Encoder.encode`: the form is given the entries from ``begin`` to a marker. Raises FormError."""
        del batch_id, ts, positions
        data = b"".join(slices)
        refused: RefusedError | None = None if self._markers else find_marker(data, begin)
        if begin or refused is not None:
            data = cut(data, begin, None if refused is None else refused.entry)
        found = PluginRecords()
        try:
            for it in self._form.records(data):
                self._add(found, api.Record(*it), begin, data)
        except RefusedError as error:  # of a record, or of the form, which sees its own numbers
            count = len(decode_changes(data))
            if not 0 <= error.entry < count:
                text = f"form {self._name} refuses entry {error.entry} of a batch that has {count}"
                raise FormError(text) from error
            error.entry += begin
            refused = error
            while found.entries and found.entries[-1] >= error.entry:
                for column in (found.values, found.keys, found.topics, found.partitions, found.rows, found.entries):
                    column.pop()
                found.headers.pop()
        except FormError:
            raise
        except BaseException as error:  # it may even ask the process to end
            raise FormError(failure(f"form {self._name} has failed", error)) from error
        if refused is not None:
            found.refused, found.end = refused, refused.entry
        return found

    def _add(self, found: PluginRecords, record: api.Record, begin: int, data: bytes) -> None:
        """Add a record. Raises FormError, and RefusedError for one that is too large."""
        value, key, topic, partition, headers, entry = record
        wrong = (
            not isinstance(value, bytes)
            or not (key is None or isinstance(key, bytes))
            or not isinstance(topic, str)
            or not (isinstance(partition, int) and 0 <= partition < 1 << 31)
            or not all(isinstance(name, str) and isinstance(text, bytes) for name, text in headers)
        )
        if wrong:
            raise FormError(f"form {self._name} made what is no record: value, key and headers have to be bytes")
        last = found.entries[-1] - begin if found.entries else 0
        if not isinstance(entry, int) or entry < last or len(found.values) >= MOST_RECORDS:
            raise FormError(
                f"form {self._name} made a record of entry {entry} after one of entry {last}: entries never fall, and"
                f" there are at most {MOST_RECORDS} records"
            )
        size = len(value) + len(key or b"") + sum(len(name) + len(text) for name, text in headers)
        if size > self._limit:
            changes = decode_changes(data)
            change = changes[min(entry, len(changes) - 1)]
            shown = ascii(key or b"")[2:-1][:KEY_TEXT]
            raise RecordTooLargeError(entry, change.schema, change.table, shown, size, self._limit)
        found.values.append(value)
        found.keys.append(key)
        found.topics.append(self._router.number(topic))
        if len(self._router.topics) > MOST_TOPICS:
            raise FormError(f"form {self._name} names more than {MOST_TOPICS} topics")
        found.partitions.append(partition)
        found.rows.append(0)
        found.entries.append(begin + entry)
        found.headers.append(tuple(headers))


def failure(what: str, error: BaseException) -> str:
    """Say what has failed in the code of others, and why."""
    return f"{what}: {type(error).__name__}: {str(error)[:LONGEST_LINE]}"


AnyRecords = Records | PluginRecords
AnyEncoder = Encoder | PluginEncoder


def encode(encoder: AnyEncoder, batch: Batch, settings: OutputSettings) -> tuple[list[AnyRecords], Sequence[Skipped]]:
    """Return the records of a batch, in parts, and what is left out as configured.

    Raises RefusedError for what cannot be sent and is not to be left out.
    """
    parts: list[AnyRecords] = []
    skipped: list[Skipped] = []
    begin = 0
    while True:
        records = encoder.encode(batch.slices, batch.batch_id, begin=begin, positions=batch.positions)
        if (refused := records.refused) is not None and not may_skip(settings, refused):
            encoder.undo()
            raise refused
        parts.append(records)
        if refused is None:
            return parts, skipped
        skipped.append(Skipped(position_of(batch, records.end), str(refused)))
        begin = records.end + 1


def may_skip(settings: OutputSettings, refused: RefusedError) -> bool:
    """Return whether what cannot be sent is left out, as configured."""
    if isinstance(refused, MarkerError):
        return settings.on_marker is OnMarker.SKIP
    return settings.on_refused is OnRefused.SKIP
