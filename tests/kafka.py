"""Servers with an output to Kafka, and what a consumer finds in a topic, to be compared with what was written."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.faults.harness import Image, Load, Op, Seen, Sluice
from tests.servers import Server
from tests.servers.kafka import Brokers
from tests.waiting import eventually


def _image(row: dict[str, str | None]) -> Image:
    return {name: value if name == "v" else int(value or 0) for name, value in row.items()}


def ops(values: Iterable[bytes]) -> Iterator[Op]:
    """Changes of rows, in the order of flat messages."""
    for value in values:
        message = json.loads(value)
        if message["isDdl"] or message["type"] == "QUERY":
            continue
        olds = message["old"] or [None] * len(message["data"])
        for row, old in zip(message["data"], olds, strict=True):
            image = _image(row)
            before = image | _image(old) if old is not None else image if message["type"] == "DELETE" else None
            yield Op(message["table"], message["type"], before, None if message["type"] == "DELETE" else image)


def once(found: Iterable[Op]) -> list[Op]:
    """The changes without repetitions; each of those has to go on from where it begins, up to where it was before."""
    known: list[Op] = []
    places: dict[str, int] = {}
    cursor = 0
    for op in found:
        if cursor < len(known) and known[cursor] == op:
            cursor += 1
            continue
        place = places.setdefault(str(op), len(known))
        if place == len(known):
            assert cursor == len(known), f"{op} comes before what followed {known[cursor - 1]} the first time"
            known.append(op)
        cursor = place + 1
    assert cursor == len(known), "what is repeated at the end is repeated only in part"
    return known


def seen(found: Iterable[Op]) -> list[Seen]:
    """The changes as `Load.check` takes them."""
    return [Seen(("", 0, ""), "ROWDATA", (op,), "") for op in found]


def configure(
    sluice: Sluice,
    broker: Brokers,
    topic: str,
    source: Server,
    schema: str,
    main: Mapping[str, object] | None = None,
    **settings: object,
) -> None:
    """Configure a destination whose changes go to a topic."""
    sluice.settings = {
        "canal__serverMode": "kafka",
        "kafka__bootstrap__servers": broker.servers,
        "kafka__retries": 0,
        **(main or {}),
    }
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*", canal__mq__topic=topic, **settings)


def arrived(broker: Brokers, topic: str, *, committed: bool = True) -> list[bytes]:
    """Wait for the end of the load; return the records."""

    def read() -> list[bytes]:
        return [value for values in broker.read(topic, committed=committed) for value in values]

    eventually(lambda: any(b'"finished"' in value for value in read()), "the end in the topic")
    return read()


def check_keys(load: Load, partitions: Iterable[Iterable[bytes]]) -> None:
    """Check that the changes of each key, of the rows that it became, are in order in one partition, and no other."""
    wanted: dict[tuple[str, object], list[Op]] = defaultdict(list)
    for op in (op for writer in load.writers for transaction in writer.committed for op in transaction):
        wanted[op.table, op.image["id"]].append(op)
    found: dict[tuple[str, object], list[Op]] = {}
    for values in partitions:
        here: dict[tuple[str, object], list[Op]] = defaultdict(list)
        for op in once(ops(values)):
            here[op.table, op.image["id"]].append(op)
        assert not found.keys() & here.keys()
        found |= here
    assert {key: it for key, it in found.items() if key[0] != "finished"} == wanted
