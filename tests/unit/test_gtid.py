"""GTID sets of both families, against plain sets of numbers and against what servers print and write."""

from io import BytesIO
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.errors import BadPositionError, DecodeError
from sluice.protocol.gtid import (
    MariadbGtidSet,
    MysqlGtidSet,
    MysqlSource,
    Transactions,
    common,
    missing,
    parse_gtids,
)

A = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
B = "11111111-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
SOURCES: list[MysqlSource] = [(UUID(uuid).bytes, tag) for uuid in (A, B) for tag in ("", "tag", "_x9")]

runs = st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 40), st.integers(0, 8)))
Runs = list[tuple[MysqlSource, int, int]]


def build(items: Runs) -> tuple[MysqlGtidSet, set[tuple[MysqlSource, int]]]:
    """The set, and the same as a plain set of single transactions."""
    result = MysqlGtidSet()
    model = set()
    for source, first, more in items:
        result.add(source, first, first + more)
        model |= {(source, number) for number in range(first, first + more + 1)}
    return result, model


def elements(gtids: MysqlGtidSet) -> set[tuple[MysqlSource, int]]:
    return {(source, number) for source, first, last in gtids for number in range(first, last + 1)}


@given(runs)
def test_runs_are_merged(items: Runs) -> None:
    gtids, model = build(items)
    assert elements(gtids) == model
    parts = list(gtids)
    for (source, _, last), (next_source, first, _) in pairwise(parts):
        assert source < next_source or last + 1 < first
    assert all((gtid in gtids) == (gtid in model) for gtid in ((s, n) for s in SOURCES for n in range(1, 50)))


@given(runs, runs)
def test_operations_are_those_of_sets(items: Runs, others: Runs) -> None:
    (one, one_model), (other, other_model) = build(items), build(others)
    before = str(one)
    assert elements(one.subtract(other)) == one_model - other_model
    assert one.contains(other) == (one_model >= other_model)
    assert (one == other) == (one_model == other_model)
    assert bool(one) == bool(one_model)
    assert str(one) == before


def decoded(data: bytes) -> MysqlGtidSet:
    """What a server reads in the binary form, to its last byte."""
    rest = BytesIO(data)

    def number(size: int = 8) -> int:
        return int.from_bytes(rest.read(size), "little")

    result = MysqlGtidSet()
    tagged = data[7] == 1
    sources = number() >> 8 & 0xFFFF_FFFF_FFFF if tagged else number()
    for _ in range(sources):
        sid = rest.read(16)
        tag = rest.read(number(1) >> 1).decode() if tagged else ""
        for _ in range(number()):
            result.add((sid, tag), number(), number() - 1)
    assert rest.tell() == len(data)
    return result


@given(runs)
def test_text_and_bytes_round_trip(items: Runs) -> None:
    gtids, _ = build(items)
    assert MysqlGtidSet.parse(str(gtids)) == gtids
    assert decoded(gtids.encode()) == gtids
    assert MysqlGtidSet.decode(gtids.encode()) == gtids


@pytest.mark.parametrize(
    ("text", "printed"),
    [  # what SELECT GTID_SUBTRACT(text, '') of MySQL 9.7 answers, its line break left out
        (f"{A}:1-5:7,{A}:tag:1-3:5,{B}:x:1,{A}:abc:4:zz:1-2:1", f"{B}:x:1,{A}:1-5:7:abc:4:tag:1-3:5:zz:1-2"),
        (f"{A}:1-5:7:tag:1-3:5", f"{A}:1-5:7:tag:1-3:5"),
        (A, ""),
        ("", ""),
        (f"{A}:5-3", ""),
        (f"{A}:1-2:TAG:4", f"{A}:1-2:tag:4"),
        (f" {A} : 1 - 2 , , {A}:9", f"{A}:1-2:9"),
        (f"{A}:tag", ""),
        (f"{A}:9223372036854775806", f"{A}:9223372036854775806"),
        (f"{A}:_t:4", f"{A}:_t:4"),
        (A.replace("-", "") + ":4", f"{A}:4"),
        (f"{A.upper()}:007", f"{A}:7"),
        (f"{A}:1-3,\n{A}:4", f"{A}:1-4"),
    ],
)
def test_text_is_read_and_printed_as_by_mysql(text: str, printed: str) -> None:
    assert str(MysqlGtidSet.parse(text)) == printed


@pytest.mark.parametrize(
    "text",
    [
        "x",
        f"{A[:-1]}:1",
        f"{A}:",
        f"{A}:0",
        f"{A}:9223372036854775807",
        f"{A}:1tag:4",
        f"{A}:tag:",
        f"{A}:1-",
        "0-1-2",
        f"{A}:{'9' * 5000}",
        f"{A}:1-{'9' * 5000}",
    ],
    ids=lambda text: text[:48],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(BadPositionError):
        MysqlGtidSet.parse(text)


PREVIOUS_GTIDS = bytes.fromhex(  # body of the event as written by MySQL 9.7.4
    "01040000000000011111 1111aaaaaaaaaaaaaaaaaaaaaaaa0001000000000000000700000000000000080000000000"
    "0000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0002000000000000000100000000000000030000000000000005000000"
    "000000000600000000000000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa067461670100000000000000030000000000000"
    "00400000000000000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1e7461675f6c6f6e6765725f6e616d65010000000000000"
    "003000000000000000400000000000000"
)


def test_tagged_bytes_are_those_of_mysql() -> None:
    gtids = MysqlGtidSet.parse(f"{B}:7,{A}:1-2:5:tag:3:tag_longer_name:3")
    assert gtids.encode() == PREVIOUS_GTIDS
    assert MysqlGtidSet.decode(PREVIOUS_GTIDS) == gtids


@given(st.binary(max_size=80), st.integers(0, 200))
def test_any_bytes_are_a_set_or_an_error(data: bytes, size: int) -> None:
    for it in (data, PREVIOUS_GTIDS[:size], PREVIOUS_GTIDS[: size // 2] + data):
        try:
            found = MysqlGtidSet.decode(it)
        except DecodeError:
            continue
        assert MysqlGtidSet.decode(found.encode()) == found


def test_untagged_bytes_count_sources_in_eight_bytes() -> None:
    encoded = MysqlGtidSet.parse(f"{A}:1-5:7").encode()
    numbers = (2, 1, 6, 7, 8)
    assert encoded == (1).to_bytes(8, "little") + UUID(A).bytes + b"".join(n.to_bytes(8, "little") for n in numbers)


def test_a_copy_is_independent() -> None:
    gtids = MysqlGtidSet.parse(f"{A}:1")
    gtids.copy().add(SOURCES[0], 2)
    assert str(gtids) == f"{A}:1"


def test_mariadb_keeps_a_number_for_each_domain_and_server() -> None:
    gtids = MariadbGtidSet.parse("0-2-5,0-1-9,7-1-3")
    assert str(gtids) == "0-2-5,0-1-9,7-1-3"
    assert gtids.connect_state() == "0-1-9,7-1-3"
    gtids.add((0, 2), 10)
    assert str(gtids) == "0-1-9,0-2-10,7-1-3"
    assert gtids.connect_state() == "0-2-10,7-1-3"
    assert ((0, 1), 9) in gtids
    assert ((0, 1), 10) not in gtids


@pytest.mark.parametrize(
    "text",
    ["0-1", "0-1-x", "0-1-2-3", "4294967296-1-1", "0-1-18446744073709551616", f"{A}:1", f"0-1-{'9' * 5000}"],
    ids=lambda text: text[:24],
)
def test_malformed_mariadb_text_is_refused(text: str) -> None:
    with pytest.raises(BadPositionError):
        MariadbGtidSet.parse(text)


mariadb_sets = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 99)))


@given(mariadb_sets, mariadb_sets)
def test_mariadb_set_contains_what_is_nowhere_further(
    items: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    one, other = (MariadbGtidSet.parse(",".join("-".join(map(str, g)) for g in gtids)) for gtids in (items, others))
    assert MariadbGtidSet.parse(str(one)) == one
    ends = dict(one)
    assert one.contains(other) == all(number <= ends.get(source, -1) for source, number in other)


@pytest.mark.parametrize(
    ("wanted", "executed", "lost", "both"),
    [
        (f"{A}:1-5", f"{A}:1-3,{B}:1-9", f"{A}:4-5", f"{A}:1-3"),
        (f"{A}:1-5,{B}:1", f"{A}:1-5", f"{B}:1", f"{A}:1-5"),
        (f"{A}:1-5:tag:1-3", f"{A}:1-9:tag:1", f"{A}:tag:2-3", f"{A}:1-5:tag:1"),
        ("0-1-5", "0-1-3,0-2-9", "0-1-4-5", "0-1-3"),
        ("0-1-5,7-3-2", "0-1-5", "7-3-1-2", "0-1-5"),
        ("0-1-3", "0-1-5,0-2-6", "", "0-1-3"),
        # The newest of a domain is the greatest, also when another server was last and is cut back.
        ("0-2-7,0-1-8", "0-1-3,0-2-7", "0-1-4-8", "0-1-3,0-2-7"),
    ],
)
def test_what_one_set_has_and_another_lacks(wanted: str, executed: str, lost: str, both: str) -> None:
    one, other = parse_gtids(wanted), parse_gtids(executed)
    assert str(missing(one, other)) == lost
    assert str(common(one, other)) == both
    assert not missing(common(one, other), other)


def test_transactions_are_remembered_as_text_and_taken_away_again() -> None:
    lost = Transactions.parse(f"{A}:4-9,0-1-4-5,0-2-7-7")
    assert len(lost) == 6 + 2 + 1
    assert Transactions.parse(str(lost)).runs == lost.runs
    assert lost.without(Transactions.parse(f"{A}:1-5,0-1-1-4")).runs == [f"{A}:6-9", "0-1-5-5", "0-2-7-7"]
    assert not lost.without(lost)
    assert lost.without(Transactions()).runs == lost.runs
    assert str(Transactions.parse("0-1-4-5").with_(Transactions.parse("0-1-6-7"))) == "0-1-4-7"


@pytest.mark.parametrize("text", ["0-1-5", "0-1-7-4", "0-1-0-3", "x"])
def test_malformed_transactions_are_refused(text: str) -> None:
    with pytest.raises(BadPositionError):
        Transactions.parse(text)
