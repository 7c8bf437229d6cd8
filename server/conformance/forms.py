"""Tries a form as an output would use it: each batch stands for itself, and comes again."""

from functools import partial

from ...instance.sources.api import framed
from ...protocol.canal.entry_pb2 import EntryType, EventType
from ..outputs.forms.api import API, FormKind
from ..outputs.forms.encoding import PluginEncoder, PluginRecords
from ..outputs.routing import Router, Rules
from .changes import edge, entry, statement
from .faults import BrokenError, Fault, bounded, broken

BEGIN, END = EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND
INSERT, UPDATE, DELETE = EventType.INSERT, EventType.UPDATE, EventType.DELETE
MANY = 5000
"""Rows of a large batch."""
LIMIT = 64 << 20
"""Bytes of a record."""


def form_faults(kind: FormKind) -> list[Fault]:
    """Try a form, the class that an entry point names; return what is wrong, nothing if all is well."""
    version = getattr(kind, "api", None)
    if version != API:
        return [Fault("api", f"it is written for version {version!r} of the interface, and this is version {API}")]
    faults: list[Fault] = []
    trials = {
        "entries": _try_entries,
        "deterministic": _try_again,
        "keys": _try_keys,
        "large": _try_large,
    }
    for promise, run in trials.items():
        faults += broken(promise, partial(bounded, partial(run, kind)))
    return faults


def _try_entries(kind: FormKind) -> None:
    """It takes entries of all kinds, and none at all, and its records name entries of the batch."""
    batches = [b"", framed([edge(BEGIN)]), framed([statement("ALTER TABLE changes ADD c int")])]
    batches += [framed([edge(BEGIN), *(entry(1, kind=it) for it in (INSERT, UPDATE, DELETE)), edge(END)])]
    for count, data in zip((0, 1, 1, 5), batches, strict=True):
        last = max([-1, *_records(kind, data).entries])
        if last >= count:
            raise BrokenError(f"a record is of entry {last}, and the batch has {count}")


def _try_again(kind: FormKind) -> None:
    """The same batch gives the same records, whatever came before, and of another process, too."""
    first, second = framed([entry(1), entry(2, kind=UPDATE)]), framed([entry(3), entry(1, kind=DELETE)])
    encoder = _encoder(kind)
    seen = [_encode(encoder, it) for it in (first, second, second, first)]
    fresh = [_records(kind, it) for it in (second, first)]
    for one, other in ((0, 3), (1, 2)):
        if seen[one] != seen[other]:
            raise BrokenError("a batch that comes again gives other records")
    if [seen[1], seen[0]] != fresh:
        raise BrokenError("a batch gives other records after another one than at first")


def _try_keys(kind: FormKind) -> None:
    """All changes of a row go to one partition of one topic, and have one key."""
    found = _records(kind, framed(entry(7, size, it) for size, it in ((1, INSERT), (2, UPDATE), (3, DELETE))))
    places = set(zip(found.topics, found.partitions, found.keys, strict=True))
    if len(places) > 1:
        raise BrokenError("changes of one row go to several places, or have several keys: their order is lost")


def _try_large(kind: FormKind) -> None:
    """A large batch has its rows in their order."""
    found = _records(kind, framed(entry(number, 100) for number in range(MANY)))
    rows = _records(kind, framed([entry(1)]))
    if len(found.values) < len(rows.values):
        raise BrokenError(f"a batch of {MANY} rows has {len(found.values)} records, and one of a row has more")


def _encoder(kind: FormKind) -> PluginEncoder:
    return PluginEncoder("of the trial", kind(), Router(Rules("conformance")), LIMIT, markers=True)


def _encode(encoder: PluginEncoder, data: bytes) -> PluginRecords:
    return encoder.encode([data], 1)


def _records(kind: FormKind, data: bytes) -> PluginRecords:
    return _encode(_encoder(kind), data)
