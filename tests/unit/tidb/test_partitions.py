"""Partitions of a topic of TiCDC: what watermarks release, and what counts as a repetition."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.sources.ticdc.partitions import Partitions
from sluice.protocol.canal.rows import Change, decode_changes
from sluice.protocol.errors import DecodeError, SourceError
from sluice.protocol.tidb.canal_json import MessageEncoder
from tests.ticdc import change, insert, statement, watermark

ENOUGH = 1 << 20


def shown(records: Iterable[tuple[int, bytes]]) -> list[tuple[int, list[str]]]:
    """Return the commit_ts and the changes of each transaction."""
    encoder = MessageEncoder("cdc.0")
    found = []
    for offset, value in records:
        it = encoder.encode(value, offset)
        changes = decode_changes(b"".join(entry.data for entry in it.entries))
        found.append((it.commit_ts, [text for each in changes for text in _texts(each)]))
    return found


def _texts(it: Change) -> list[str]:
    return [it.sql] if it.is_ddl else [f"{it.table}{(row.after or row.before or {})['id']}" for row in it.rows()]


def read(partitions: Partitions, *values: bytes, number: int = 0) -> list[tuple[int, list[str]]]:
    partitions.receive(number, list(enumerate(values)))
    return shown(partitions.release())


def test_a_transaction_is_released_when_a_watermark_has_passed_it() -> None:
    partitions = Partitions(1, ENOUGH)
    assert read(partitions, insert(20, 2), insert(10, 1), insert(20, 3, "shop.items")) == []
    assert read(partitions, watermark(20)) == [(10, ["orders1"])]
    assert read(partitions, insert(30, 4), watermark(21)) == [(20, ["orders2", "items3"])]
    assert read(partitions, watermark(20), watermark(31)) == [(30, ["orders4"])]
    assert partitions.watermark == 31


def test_a_transaction_has_the_offset_of_its_first_message() -> None:
    partitions = Partitions(1, ENOUGH)
    partitions.receive(0, [(7, insert(20, 1)), (8, insert(10, 2)), (9, insert(20, 3)), (10, watermark(99))])
    assert [offset for offset, _ in partitions.release()] == [8, 7]


def test_repetitions_are_dropped() -> None:
    partitions = Partitions(1, ENOUGH)
    first = [insert(10, 1), insert(10, 2), change(10, {"id": "1"}, {"id": "1"})]
    assert read(partitions, *first, *first, watermark(20), *first) == [(10, ["orders1", "orders2", "orders1"])]
    assert partitions.repeated == 6


def test_changes_that_differ_in_table_key_type_or_time_are_not_repetitions() -> None:
    partitions = Partitions(1, ENOUGH)
    pair = {"id": "1", "k": "x"}
    values = [
        insert(10, 1),
        insert(11, 1),
        insert(10, 1, "shop.items"),
        insert(10, 1, "other.orders"),
        change(10, {"id": "1"}, None),
        change(10, None, pair, keys=("id", "k")),
        change(10, None, pair | {"k": "y"}, keys=("id", "k")),
    ]
    found = read(partitions, *values, watermark(20))
    assert sum(len(rows) for _, rows in found) == len(values)
    assert partitions.repeated == 0


def test_rows_without_a_key_are_kept_since_nothing_tells_them_from_repetitions() -> None:
    partitions = Partitions(1, ENOUGH)
    same = change(10, None, {"id": "1"}, keys=None)
    assert read(partitions, same, same, watermark(20), same) == [(10, ["orders1", "orders1"])]


def test_a_statement_counts_once_and_in_the_first_partition() -> None:
    values = [insert(9, 1), statement(10, "DROP TABLE a"), statement(10, "DROP TABLE a"), statement(10, "DROP TABLE b")]
    expected = [(9, ["orders1"]), (10, ["DROP TABLE a", "DROP TABLE b"])]
    assert read(Partitions(1, ENOUGH), *values, watermark(20)) == expected
    partitions = Partitions(2, ENOUGH)
    assert read(partitions, *values[1:], watermark(20)) == []
    assert read(partitions, *values, watermark(20), number=1) == expected


def test_what_is_at_or_before_the_start_is_left_out() -> None:
    partitions = Partitions(1, ENOUGH)
    partitions.receive(0, [(0, insert(15, 1))])
    partitions.begin(20)
    assert read(partitions, insert(19, 1), insert(20, 2), insert(21, 3), watermark(30)) == [(21, ["orders3"])]


def test_memory_is_what_waits_for_a_watermark_and_is_limited() -> None:
    partitions = Partitions(1, ENOUGH)
    for number in range(3000):
        partitions.receive(0, [(number, insert(10 + number, number)), (number, watermark(10 + number))])
        partitions.release()
    assert 0 < partitions.size < 2000
    partitions.receive(0, [(0, watermark(9999))])
    partitions.release()
    assert partitions.size == 0
    with pytest.raises(
        SourceError, match=r"more than 1 MiB .* up to offset \d+\. .* raise sluice\.instance\.ticdc\.memory"
    ):
        partitions.receive(0, [(number, insert(10_000, number)) for number in range(10_000)])


def test_a_transaction_waits_for_the_watermarks_of_all_partitions_and_is_one() -> None:
    partitions = Partitions(3, ENOUGH)
    assert read(partitions, insert(10, 1), watermark(20), number=2) == []
    assert read(partitions, insert(10, 2), insert(15, 3), watermark(30)) == []
    assert partitions.last == [1]
    assert read(partitions, watermark(12), number=1) == [(10, ["orders2", "orders1"])]
    assert partitions.watermark == 12
    assert read(partitions, insert(15, 4), watermark(16), number=1) == [(15, ["orders3", "orders4"])]
    assert partitions.last == [1]


def test_a_repetition_in_another_partition_is_dropped() -> None:
    partitions = Partitions(2, ENOUGH)
    assert read(partitions, insert(10, 1)) == []
    assert read(partitions, insert(10, 1), watermark(20), number=1) == []
    assert read(partitions, watermark(20)) == [(10, ["orders1"])]
    assert read(partitions, insert(10, 1), watermark(30), number=1) == []
    assert partitions.repeated == 2


def test_an_error_names_the_offset_and_what_came_before_it_counts() -> None:
    partitions = Partitions(1, ENOUGH)
    with pytest.raises(DecodeError, match="offset 7: not a message"):
        partitions.receive(0, [(5, insert(10, 1)), (6, watermark(11)), (7, b"x"), (8, watermark(20))])
    assert shown(partitions.release()) == [(10, ["orders1"])]
    with pytest.raises(DecodeError, match="partition 1, offset 3: not a message"):
        Partitions(2, ENOUGH).receive(1, [(3, b"x")])


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.integers(0, 3))
def test_partitions_are_merged_to_the_transactions_of_the_cluster(seed: int, partitions: int, restarts: int) -> None:
    """Rows are spread over partitions; TiCDC restarts, and sends again what followed its last checkpoint."""
    chance = random.Random(seed)
    sent: list[tuple[int, int, bytes]] = []
    for commit_ts in range(100, 200, 10):
        rows = [insert(commit_ts, number) for number in range(chance.randrange(4))]
        sent += [(commit_ts, chance.randrange(partitions), it) for it in rows]
        if chance.random() < 0.2:
            sent.append((commit_ts + 5, 0, statement(commit_ts + 5, f"DROP TABLE t{commit_ts}")))
    topic: list[list[bytes]] = [[] for _ in range(partitions)]
    checkpoint, goal = 1, 300
    for life in range(restarts + 1):
        last = life == restarts
        end = goal if last else chance.randrange(checkpoint, 250)
        order = [it for it in sent if checkpoint <= it[0] < end + 30]
        chance.shuffle(order)
        for limit in sorted({chance.randrange(checkpoint, end + 1) for _ in range(4)} | {end}):
            for it in [it for it in order if it[0] < limit or chance.random() < 0.3]:
                order.remove(it)
                for number in range(partitions) if it[2].count(b'"isDdl":true') else (it[1],):
                    topic[number].append(it[2])
            for number in range(partitions):
                if last or chance.random() < 0.8:
                    topic[number].append(watermark(limit))
            checkpoint = limit if limit == end else checkpoint
        checkpoint = chance.randrange(max(checkpoint - 40, 1), checkpoint + 1)
    source = Partitions(partitions, ENOUGH)
    merged: list[tuple[int, list[str]]] = []
    while any(topic):
        number = chance.choice([it for it, values in enumerate(topic) if values])
        size = chance.randint(1, 5)
        merged += read(source, *topic[number][:size], number=number)
        del topic[number][:size]
    stamps_of = [commit_ts for commit_ts, _ in merged]
    assert stamps_of == sorted(set(stamps_of))
    changes = sorted((commit_ts, text) for commit_ts, texts in merged for text in texts)
    assert changes == sorted(each for it in sent for each in _expected(it))


def _expected(it: tuple[int, int, bytes]) -> list[tuple[int, str]]:
    commit_ts, _, value = it
    ((_, texts),) = shown([(0, value)])
    return [(commit_ts, text) for text in texts]
