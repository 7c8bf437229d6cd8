"""What outputs have sent to Kafka, and whether it is what was written."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from sluice.protocol.tidb import secondary_pb2 as secondary
from tests.servers.kafka import Brokers

Number: TypeAlias = tuple[int, str]
"""A number that was written, and the table."""
Stamped: TypeAlias = tuple[int, list[Number]]
"""What a record has, and its commit_ts; 0 where records have none."""


def wait_topic(brokers: Brokers, topic: str, written: Mapping[str, Sequence[int]], deadline: float) -> list[Stamped]:
    """Wait until a topic ends with the last number, at most until then; return what it has."""
    last = max((numbers[-1], table) for table, numbers in written.items() if numbers)
    read = _read_tidb if topic.endswith("-tidb") else _read_flat
    while True:
        found = [it for values in brokers.read(topic) for it in map(read, values) if it[1]]
        if (found and found[-1][1][-1] == last) or time.monotonic() > deadline:
            return found
        time.sleep(1.0)


def _read_flat(value: bytes) -> Stamped:
    message = json.loads(value)
    return 0, [_number(row["id"], row["v"], message["table"]) for row in message["data"] or ()]


def _read_tidb(value: bytes) -> Stamped:
    binlog = secondary.Binlog.FromString(value)
    found = []
    for table in binlog.dml_data.tables:
        names = [column.name for column in table.column_info]
        for mutation in table.mutations:
            row = dict(zip(names, mutation.row.columns, strict=True))
            found.append(_number(row["id"].int64_value, row["v"].string_value, table.table_name))
    return binlog.commit_ts, found


def _number(number: int | str, text: str, table: str) -> Number:
    assert text == f"number {number}", (number, text, table)
    return int(number), table


def check_topic(
    written: Mapping[str, Sequence[int]],
    found: Iterable[Number],
    *,
    gone: Mapping[str, int] = MappingProxyType({}),
    former: bool = False,
) -> tuple[list[str], int]:
    """Return what is wrong with the content of a topic, and how many numbers came again.

    It has every number in the order of writing. What comes again goes on without a gap from where it begins, up to what
    comes for the first time. With ``former``, a server that has lost the destination may write among that what it had
    in hand. ``gone``: up to which number of each table it may lack some.
    """
    expected = sorted((number, table) for table, numbers in written.items() for number in numbers)
    places = {it: place for place, it in enumerate(expected)}
    problems: list[str] = []
    place, high, repeated = -1, -1, 0
    for it in found:
        if it not in places:
            problems.append(f"the topic has {it[0]} of {it[1]}, which was never written so")
            continue
        following = (high if former else place) + 1
        if any(number > gone.get(table, 0) for number, table in expected[following : places[it]]):
            problems.append(f"the topic goes on with {it[0]} of {it[1]}: {expected[following][0]} is next")
        place = places[it]
        repeated += place <= high
        high = max(high, place)
    end = high if former else place
    if end + 1 < len(expected):
        problems.append(f"the topic ends before {expected[end + 1][0]}, {len(expected)} are written")
    return problems, repeated


def check_stamps(records: Iterable[Stamped]) -> tuple[list[str], list[Number], int]:
    """Return what is wrong with the commit_ts of a topic, what readers of it take, and how many numbers they drop.

    They drop what has no greater commit_ts than a record before. It has to be what that commit_ts stood for before.
    """
    known: dict[int, list[Number]] = {}
    problems: list[str] = []
    taken: list[Number] = []
    high, dropped = 0, 0
    for stamp, numbers in records:
        if stamp > high:
            known[stamp], high = numbers, stamp
            taken += numbers
            continue
        dropped += len(numbers)
        if known.get(stamp) != numbers:
            problems.append(f"{numbers[0][0]} comes with commit_ts {stamp}, which stood for {known.get(stamp)}")
    return problems, taken, dropped
