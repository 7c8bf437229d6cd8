"""What a consumer of Kafka finds in a topic, as changes that can be compared with those that were written."""

import json
from collections.abc import Iterable, Iterator

from tests.faults.harness import Image, Op, Seen


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
