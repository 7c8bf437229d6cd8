"""The transactions of a batch are told apart, and known again by their names."""

import pytest

from sluice.instance.sources.api import framed
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, RowChange
from sluice.protocol.canal.transactions import Transactions
from sluice.protocol.errors import DecodeError
from sluice.protocol.props import GTID, MEMBER
from sluice.protocol.wire import varint
from sluice.server.conformance.changes import edge, entry

BEGIN, END = edge(EntryType.TRANSACTIONBEGIN), edge(EntryType.TRANSACTIONEND)
FILE = BEGIN.header.logfileName


def read(*entries: Entry, begins: list[int] | None = None) -> Transactions:
    places = enumerate(begins or [7] * len(entries))
    return Transactions(framed(entries), b"".join(varint(begin) + varint(n) for n, begin in places))


def of(kind: Entry, **props: str) -> Entry:
    found = Entry.FromString(kind.SerializeToString())
    for key, value in props.items():
        found.header.props.add(key={"gtid": GTID, "member": MEMBER}[key], value=value)
    return found


def test_each_has_its_end_and_its_file_and_begin_as_name() -> None:
    found = read(BEGIN, entry(1), END, BEGIN, END, begins=[4, 4, 4, 90, 90])
    assert len(found) == 2
    assert found.end(0) == len(framed([BEGIN, entry(1), END]))
    assert found.names(0, 2) == f" {FILE}@4\n {FILE}@90\n"
    assert found.names(1, 2) == f" {FILE}@90\n"


def test_a_gtid_is_named_too_and_a_member_has_names_of_its_own() -> None:
    one, two = {"gtid": "0-1-5"}, {"gtid": "0-1-5", "member": "east"}
    found = read(of(BEGIN, **one), of(END, **one), of(BEGIN, **two), of(END, **two))
    assert found.names(0, 2) == f" {FILE}@7 0-1-5\neast {FILE}@7 0-1-5\n"


def test_gtids_that_the_entries_do_not_have_are_named_where_they_are_known() -> None:
    gtids = {f" {FILE}@4": "0-1-6", f"east {FILE}@4": "0-1-7", f" {FILE}@9": "0-1-8"}
    data = framed([BEGIN, END, of(BEGIN, member="east"), END, of(BEGIN, gtid="0-1-5"), END, BEGIN, END])
    places = b"".join(varint(begin) + varint(0) for begin in (4, 4, 4, 4, 9, 9, 20, 20))
    lines = Transactions(data, places, None, gtids).names(0, 4).splitlines()
    assert lines == [f" {FILE}@4 0-1-6", f"east {FILE}@4 0-1-7", f" {FILE}@9 0-1-5", f" {FILE}@20"]


def test_one_that_does_not_end_has_the_last_name_and_one_that_goes_on_is_a_group_by_itself() -> None:
    found = read(entry(1), END, BEGIN, END, BEGIN, entry(2), begins=[1, 1, 2, 2, 3, 3])
    assert found.groups(1 << 20) == [(1, False, False), (2, True, False)]
    assert found.names(0, 1) == f" {FILE}@1\n"
    assert found.names(2, 3) == f" {FILE}@3\n"
    assert read(entry(1)).names(0, 1) == ""


def test_groups_have_so_many_bytes_unless_one_transaction_has_more() -> None:
    size = len(framed([BEGIN, END]))
    found = read(*[BEGIN, END] * 5)
    assert found.groups(2 * size) == [(2, True, False), (4, True, False), (5, True, False)]
    assert found.groups(1) == [(number, True, False) for number in range(1, 6)]
    assert found.groups(5 * size) == [(5, True, False)]


def write(schema: str, table: str, channel: str) -> Entry:
    found = entry(1)
    found.header.schemaName, found.header.tableName = schema, table
    change = RowChange.FromString(found.storeValue)
    change.rowDatas[0].afterColumns.add(name="channel_id", value=channel)
    found.storeValue = change.SerializeToString()
    return found


MARK = [b"retl", b"mark", b"channel_id", b"7", b"-12-"]


def test_transactions_with_a_row_of_the_mark_or_a_gtid_of_its_server_are_groups_of_their_own() -> None:
    marked, other, like = write("retl", "mark", "7"), write("retl", "mark", "8"), write("shop", "mark", "7")
    gtid = of(BEGIN, gtid="0-12-5")
    entries = [BEGIN, marked, entry(1), END, BEGIN, other, END, BEGIN, like, END, gtid, END, gtid, END, BEGIN, marked]
    found = Transactions(framed(entries), None, MARK)
    assert found.groups(1 << 20) == [(1, True, True), (3, True, False), (5, True, True)]
    assert found.is_open_marked
    assert not Transactions(framed([BEGIN, other]), None, MARK).is_open_marked
    assert read(BEGIN, marked, END).groups(1) == [(1, True, False)]


def test_positions_that_do_not_fit_the_entries_are_an_error() -> None:
    with pytest.raises(DecodeError, match="fewer positions than entries"):
        Transactions(framed([BEGIN, END]), varint(1) + varint(0))
