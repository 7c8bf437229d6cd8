"""What the Kafka target makes of a batch before anything is sent."""

import json
from array import array
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.instance.properties import Property
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.errors import MarkerError, RecordTooLargeError
from sluice.protocol.tidb.entries import commit_ts_of
from sluice.protocol.tidb.tags import LOGICAL_BITS
from sluice.protocol.wire import varint
from sluice.server.outputs.forms.registry import form_of
from sluice.server.outputs.forms.tidb import AHEAD
from sluice.server.outputs.kafka.positions import Positions
from sluice.server.outputs.kafka.settings import KafkaSettings
from sluice.server.outputs.kafka.target import KafkaTarget, left_over
from sluice.server.outputs.kafka.translation import BATCH
from sluice.server.outputs.kept import Kept
from sluice.server.outputs.places import positions_of
from sluice.server.outputs.registry import make
from sluice.server.outputs.settings import Output
from sluice.server.outputs.target import Prepared, Target
from sluice.store.batch import Batch
from tests.unit.entries import frame
from tests.unit.test_records import change, marker

HERE, THERE = "1/mysql-bin.000001@1700000000:4:0", "1/mysql-bin.000001@1700000000:304:0"


def target(**settings: Any) -> Target:
    library = {"bootstrap.servers": Property("127.0.0.1:1", "test"), "max.request.size": Property("1000", "test")}
    return make(
        Output("shop", "mq", KafkaSettings(**settings), shared=False, library=library, folder=Path()), lambda: ""
    )


def batch(*middle: Entry) -> Batch:
    """A row, what is in the middle, a row. Their places are 100 bytes apart."""
    row = change(EventType.INSERT, (None, {"id": "1"}))
    entries = [row, *middle, row]
    for it in entries:
        it.header.logfileName = "mysql-bin.000001"
    data = frame(entries)
    places = b"".join(varint(it) for number in range(len(middle) + 2) for it in (4 + 100 * number, 1))
    return Batch(5, [memoryview(data)], HERE, THERE, 3, 2, len(data), 0, positions=places)


def test_a_marker_stops_the_output_at_its_entry() -> None:
    with pytest.raises(MarkerError) as caught:
        target().prepare(batch(marker()))
    assert caught.value.entry == 1


@pytest.mark.parametrize(("on_marker", "records", "skipped"), [("skip", 2, 1), ("send", 3, 0)])
def test_a_marker_is_left_out_and_named_or_sent_as_configured(on_marker: str, records: int, skipped: int) -> None:
    prepared = target(on_marker=on_marker).prepare(batch(marker()))
    assert (prepared.records, len(prepared.skipped)) == (records, skipped)
    for it in prepared.skipped:
        assert it.position == "1/mysql-bin.000001@1700000000:104:1"
        assert it.reason.startswith("changes of shop.goods are missing here: ")


LARGE = change(EventType.INSERT, (None, {"id": "7", "name": "x" * 2000}))


@pytest.mark.parametrize("settings", [{}, {"on_marker": "skip"}])
def test_a_change_that_is_too_large_stops_the_output_unless_it_may_be_left_out(settings: dict[str, str]) -> None:
    with pytest.raises(RecordTooLargeError) as caught:
        target(**settings).prepare(batch(LARGE))
    assert caught.value.entry == 1


def test_changes_that_are_too_large_are_left_out_and_named_as_configured() -> None:
    prepared = target(on_refused="skip").prepare(batch(LARGE, LARGE))
    assert prepared.records == 2
    assert [it.position for it in prepared.skipped] == [f"1/mysql-bin.000001@1700000000:{it}:1" for it in (104, 204)]
    assert all(
        it.reason.startswith("the row id=7 of shop.goods is too large for a record: ") for it in prepared.skipped
    )


def test_a_marker_is_not_left_out_with_what_is_too_large() -> None:
    with pytest.raises(MarkerError):
        target(on_refused="skip").prepare(batch(LARGE, marker()))


def test_the_place_of_each_entry_is_in_its_own_file() -> None:
    row = change(EventType.INSERT, (None, {"id": "1"}))
    entries = [Entry.FromString(row.SerializeToString()) for _ in range(3)]
    for number, it in zip((1, 2, 9), entries, strict=True):
        it.header.logfileName = f"mysql-bin.00000{number}"
    data, places = frame(entries), b"".join(map(varint, (304, 0, 4, 1, 104, 0)))
    there = "1/mysql-bin.000002@1700000500:304:0"
    found = positions_of(Batch(5, [memoryview(data)], HERE, there, 3, 3, len(data), 0, positions=places))
    unknown = HERE
    assert list(found) == ["1/mysql-bin.000001@1700000000:304:0", "1/mysql-bin.000002@1700000500:4:1", unknown]


def prepared(*values: tuple[int, int]) -> Prepared:
    """What was made of a batch: the partition and the size of each record."""
    partitions = array("i", [partition for partition, _ in values])
    content: Any = SimpleNamespace(
        topics=array("i", [0] * len(values)), partitions=partitions, values=[bytes(size) for _, size in values]
    )
    return Prepared(batch(), [content], len(values), sum(size for _, size in values), [])


@pytest.mark.parametrize(
    ("batches", "count"),
    [
        ([[(0, 100), (0, 100)]], 2),  # less than a request
        ([[(0, BATCH // 2)] * 5], 2),
        ([[(0, BATCH // 2)] * 4, [(0, 10)]], 3),  # over the end of a batch
        ([[(0, 10)], [(1, BATCH // 2)] * 5], 3),  # the only one of its partition, and two of the other
        ([[(0, BATCH), (1, BATCH), (2, 5)] * 2], 4),
    ],
)
def test_it_is_known_how_many_records_are_not_in_full_requests(
    batches: list[list[tuple[int, int]]], count: int
) -> None:
    assert left_over([prepared(*it) for it in batches]) == count


def test_what_is_known_of_a_transaction_is_kept_with_the_cursor_and_not_changed_by_what_is_refused() -> None:
    made = target(form="tdsql")
    first = made.prepare(batch())
    assert json.loads(json.loads(made.memory_after(first))["state"])[0] == 104, (
        "where the last row's transaction begins"
    )
    with pytest.raises(MarkerError):
        made.prepare(batch(marker()))
    assert made.prepare(batch()).state == first.state


class TestCommitTs:
    """Of form tidb: what is kept with the cursor."""

    def opened(self, memory: str, moved: str = "", **settings: Any) -> str:
        """The state that counts when the output is opened with what it remembers, after a move by hand."""
        shape, limit = settings.pop("shape", ""), settings.pop("limit", 1000)
        progress = form_of("tidb").progress(KafkaSettings(**settings), shape, limit)
        progress.restore(json.loads(memory or "{}"), moved)
        return progress.confirmed

    def test_a_bound_of_what_is_sent_is_to_be_stored_before_it_now_and_then(self) -> None:
        made = target(form="tidb", cluster_id=7)
        parts = [entry for number in (1, 2) for entry in transaction(number)]
        first, second = (made.prepare(batch_of(parts)) for _ in range(2))
        kept = made.memory_before([first])
        assert kept is not None
        assert json.loads(kept)["sent"] == str(2 + AHEAD)
        assert made.memory_before([second]) is None
        assert self.opened(kept) == "", "all that is sent comes again"
        confirmed = made.memory_after(first)
        later = made.prepare(batch_of(transaction(3, time=20_000)))
        assert json.loads(made.memory_before([second, later]) or "")["state"] == "2"
        assert self.opened(confirmed) == "2", "what follows comes again, with the commit_ts that it had"

    @pytest.mark.parametrize(
        "change",
        [{"filter": r"shop\..*"}, {"where": "a.b: id > 1"}, {"on_refused": "skip"}, {"shape": "that of a destination"}],
    )
    def test_what_is_sent_after_another_choice_is_greater_than_all_that_may_have_been(
        self, change: dict[str, Any]
    ) -> None:
        made = target(form="tidb", cluster_id=7)
        kept = made.memory_before([made.prepare(batch_of(transaction(1)))])
        assert kept is not None
        assert self.opened(kept, **change) == str(1 + AHEAD)
        assert self.opened(kept, "5-ab") == str(1 + AHEAD)
        assert self.opened(kept, max_bytes=1 << 16) == ""

    def test_where_transactions_that_are_too_large_are_left_out_their_size_is_such_a_choice(self) -> None:
        made = target(form="tidb", cluster_id=7, on_refused="skip")
        kept = made.memory_before([made.prepare(batch_of(transaction(1)))])
        assert kept is not None
        assert self.opened(kept, on_refused="skip") == ""
        assert self.opened(kept, on_refused="skip", limit=2000) == str(1 + AHEAD)

    def test_what_another_server_gives_is_greater_than_all_that_may_have_been_sent(self) -> None:
        made = target(form="tidb", cluster_id=7)
        first, second = (made.prepare(batch_of(transaction(it))) for it in (1, 2))
        made.memory_after(first)
        kept = made.memory_before([second]) or ""
        for where, after in (
            (HERE, 1),
            (HERE.replace("1/", "2/", 1), 2 + AHEAD),
            (HERE.replace("1/", "2/", 1), 2 + AHEAD),
        ):
            again = target(form="tidb", cluster_id=7)
            assert isinstance(again, KafkaTarget)
            again.remember(kept, "")
            sent = again.prepare(replace(batch_of(transaction(3)), to=where))
            assert stamps(sent) == [after + 1]
            kept = again.memory_before([sent]) or ""

    def test_a_statement_in_a_transaction_that_goes_on_has_the_same_one_when_that_comes_again(self) -> None:
        made = target(form="tidb", cluster_id=7)
        begin, row, end = transaction(1)
        statement = Entry.FromString(row.SerializeToString())
        statement.storeValue = RowChange(eventType=EventType.CREATE, isDdl=True, sql="CREATE …").SerializeToString()
        statement.header.eventType = EventType.CREATE
        statement.header.executeTime = begin.header.executeTime = 5
        first = made.prepare(batch_of([begin, statement]))
        assert stamps(first) == [5 << LOGICAL_BITS]
        bound = json.loads(made.memory_before([first]) or "")["sent"]
        assert int(bound) > 5 << LOGICAL_BITS
        assert "state" not in json.loads(made.memory_after(first))
        assert stamps(made.prepare(batch_of([row, end]))) == [(5 << LOGICAL_BITS) + 1]

    def test_the_last_one_is_kept_with_the_cursor(self) -> None:
        made = target(form="tidb", cluster_id=7)
        parts = [entry for number in (1, 2) for entry in transaction(number)]
        first, second = (made.prepare(batch_of(parts)) for _ in range(2))
        assert stamps(first) + stamps(second) == [1, 2, 3, 4]
        assert [json.loads(made.memory_after(it))["state"] for it in (first, second)] == ["2", "4"]

    def test_it_goes_on_after_the_time_of_a_move_by_hand(self) -> None:
        memory = json.dumps({"topics": {}, "state": str(9 << LOGICAL_BITS)})
        for moved, time in (("5-ab", 9), ("12-ab", 12), ("ab", 9)):
            assert self.opened(memory, moved) == str(time << LOGICAL_BITS)
        assert self.opened("", "12-ab") == str(12 << LOGICAL_BITS)
        assert self.opened(memory) == str(9 << LOGICAL_BITS)

    @pytest.mark.parametrize("moved", ["ab", "12", "x-ab"])
    def test_a_move_that_does_not_say_when_it_was_made_counts_as_an_early_one(self, moved: str) -> None:
        assert self.opened("", moved) == "0"

    def test_of_other_forms_nothing_counts_after_a_move(self) -> None:
        progress = form_of("tdsql").progress(KafkaSettings(), "", 1000)
        progress.restore({"state": "[4]"}, "5-ab")
        assert progress.confirmed == ""


class TestMoveByHandOfAnEarlierVersion:
    """What that has stored is the same move here: what followed it is not sent once more."""

    def test_is_read_of_the_record_of_the_output(self) -> None:
        topics: Any = None
        value = b'{"position": "", "gtids": "", "epoch": 7, "moved": "moved 1767225600000-0123456789abcdef"}'
        record = Positions(topics, {}, "k", lambda: None)._record(value, 5)
        assert record == Kept(None, 7, "1767225600000-0123456789abcdef")

    def test_is_read_of_what_was_kept_with_the_cursor(self) -> None:
        made = target(form="tidb", cluster_id=7)
        assert isinstance(made, KafkaTarget)
        kept = '{"topics": {}, "moved": "moved 1767225600000-0123456789abcdef", "written": true}'
        assert made.remember(kept, "") == {"topics": {}, "moved": "1767225600000-0123456789abcdef", "written": True}


def stamps(prepared: Prepared) -> list[int]:
    """The commit_ts of its records."""
    return [commit_ts_of(value) for records in prepared.content for value in records.values]


def transaction(number: int, time: int = 0) -> list[Entry]:
    row = change(EventType.INSERT, (None, {"id": str(number)}))
    end = Entry(entryType=EntryType.TRANSACTIONEND)
    end.header.executeTime = time
    return [Entry(entryType=EntryType.TRANSACTIONBEGIN), row, end]


def batch_of(parts: list[Entry]) -> Batch:
    data = frame(parts)
    places = b"".join(varint(it) for number in range(len(parts)) for it in (4 + 100 * (number // 3), number % 3))
    return Batch(5, [memoryview(data)], HERE, THERE, len(parts), 2, len(data), 0, positions=places)
