"""What each task of a mirror takes of a micro-batch."""

import pyarrow as pa
import pytest

from sluice.client_sdk.spark.shares import COLUMNS, Share, share
from sluice.protocol.canal.arrow import EnvelopeDecoder

ENVELOPE = EnvelopeDecoder().schema
OPERATIONS = ("INSERT", "UPDATE", "DELETE")


def changes(begin: int, count: int, table: str = "orders") -> pa.RecordBatch:
    """Changes of one place after the other, each with another key."""
    rows = []
    for number in range(begin, begin + count):
        op = OPERATIONS[number % 3]
        image = [("id", str(number)), ("v", "ä")]
        rows.append(
            {
                "_pos": {"member": None, "file": 1, "begin": number, "n": 0, "row": 0},
                "_schema": "shop",
                "_table": table,
                "_op": op,
                "_key": [str(number)],
                "before": None if op == "INSERT" else image,
                "after": None if op == "DELETE" else image,
            }
        )
    return pa.RecordBatch.from_pylist(rows, ENVELOPE)


@pytest.mark.parametrize("tasks", [1, 2, 5, 64])
def test_each_change_belongs_to_one_task_and_each_key_always_to_the_same(tasks: int) -> None:
    seen: list[int] = []
    for task in range(tasks):
        taken = Share(task, tasks, [])
        found = pa.Table.from_batches([taken.choose(changes(begin, 300)) for begin in (0, 300)])
        assert found.column_names == list(COLUMNS)
        begins = [place["begin"] for place in found["_pos"].to_pylist()]
        assert begins == sorted(begins)
        assert {bucket % tasks for bucket in found["_bucket"].to_pylist()} <= {task}
        for row, begin in zip(found.to_pylist(), begins, strict=True):
            (original,) = changes(begin, 1).to_pylist()
            assert row["after"] == original["after"]
            assert row["before"] == (original["before"] if row["_op"] == "DELETE" else None)
        seen += begins
    assert sorted(seen) == list(range(600))


def test_the_tables_of_the_progress_are_left_out() -> None:
    assert Share(0, 1, []).choose(changes(0, 7, "sluice_progress")).num_rows == 0


@pytest.mark.parametrize(("rows", "tasks", "shares"), [(0, 4, 1), (1, 4, 1), (3, 4, 3), (1000, 4, 4)])
def test_as_many_rows_stand_for_the_shares_as_there_are_changes(rows: int, tasks: int, shares: int) -> None:
    found = share([("a", "b")], rows, tasks)
    assert len(found) == shares
    assert sum(it.rows for it in found) == rows
    assert all(it.rows for it in found) == bool(rows)
    assert {(it.share.task, it.share.tasks) for it in found} == {(task, shares) for task in range(shares)}


def test_a_share_is_read_from_its_text() -> None:
    found = Share(1, 2, [("source/binlog.000001@1:4:0", "b"), ("b", "c")])
    assert Share.parse(str(found)) == found
