"""What a batch is made of: statements, and ends of transactions."""

import pytest

from sluice.instance.sources.api import framed
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.outline import outline
from sluice.protocol.errors import DecodeError
from sluice.server.conformance.changes import edge, entry, statement

BEGIN, END = edge(EntryType.TRANSACTIONBEGIN), edge(EntryType.TRANSACTIONEND)


def text(kind: "EventType.ValueType") -> Entry:
    """The text of a statement, without rows."""
    found = statement("DELETE FROM t")
    found.header.eventType = kind
    found.storeValue = RowChange(eventType=kind, sql="DELETE FROM t").SerializeToString()
    return found


def test_a_batch_is_known_up_to_its_last_whole_transaction() -> None:
    whole = framed([BEGIN, entry(1), entry(2), END, BEGIN, END])
    found = outline(whole + framed([BEGIN, entry(3)]))
    assert found.boundary == len(whole)
    assert found.is_open
    assert not outline(whole).is_open
    assert outline(b"") == ([], 0, False)


def test_statements_are_named_and_the_texts_of_rows_are_none() -> None:
    found = outline(framed([BEGIN, text(EventType.QUERY), entry(1), END, statement("ALTER"), text(EventType.DELETE)]))
    assert found.statements == [(4, True), (5, False)]


def test_bytes_that_are_no_entries_are_an_error() -> None:
    with pytest.raises(DecodeError):
        outline(framed([entry(1)])[:-1])
