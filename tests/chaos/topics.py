"""What outputs have sent to Kafka, and whether it is what was written."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from tests.servers.kafka import Brokers

Number: TypeAlias = tuple[int, str]
"""A number that was written, and the table."""


def wait_topic(brokers: Brokers, topic: str, written: Mapping[str, Sequence[int]], deadline: float) -> list[Number]:
    """Wait until a topic ends with the last number, at most until then; return what it has."""
    last = max((numbers[-1], table) for table, numbers in written.items() if numbers)
    while True:
        found = _read(brokers, topic)
        if last in found[-1:] or time.monotonic() > deadline:
            return found
        time.sleep(1.0)


def _read(brokers: Brokers, topic: str) -> list[Number]:
    """Return what a consumer that reads what is committed finds in a topic of one partition."""
    found: list[Number] = []
    for value in (value for values in brokers.read(topic) for value in values):
        message = json.loads(value)
        found += [(int(row["id"]), message["table"]) for row in message["data"] or ()]
    return found


def check_topic(written: Mapping[str, Sequence[int]], found: Iterable[Number]) -> tuple[list[str], int]:
    """Return what is wrong with the content of a topic, and how many numbers came again.

    It has every number in the order of writing. What comes again goes on without a gap from where it begins, up to what
    comes for the first time.
    """
    expected = sorted((number, table) for table, numbers in written.items() for number in numbers)
    places = {it: place for place, it in enumerate(expected)}
    problems: list[str] = []
    place, high, repeated = -1, -1, 0
    for it in found:
        if it not in places:
            problems.append(f"the topic has {it[0]} of {it[1]}, which was never written so")
            continue
        if places[it] > place + 1:
            problems.append(f"the topic goes on with {it[0]} of {it[1]}: {expected[place + 1][0]} is next")
        place = places[it]
        repeated += place <= high
        high = max(high, place)
    if place + 1 < len(expected):
        problems.append(f"the topic ends before {expected[place + 1][0]}, {len(expected)} are written")
    return problems, repeated
