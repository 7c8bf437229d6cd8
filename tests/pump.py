"""What TiDB gives to a pump: transactions, and rows in TiDB's encoding."""

import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from sluice.instance.sources.pump.definitions import Definitions
from sluice.instance.sources.pump.rows import TransactionEncoder
from tests.tidb import history

INSERT, UPDATE, DELETE = 0, 1, 4


def encoder(found: bytes | None = None, time_zone: str = "UTC") -> TransactionEncoder:
    """Return an encoder with a history of jobs, that of the capture if none is given."""
    return TransactionEncoder("7.tso.0", Definitions(history() if found is None else found), time_zone=time_zone)


# --- rows, as TiDB encodes them --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Return an unsigned varint."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def zigzag(number: int) -> bytes:
    """Return a signed varint."""
    return varint((number << 1 ^ number >> 63) & (1 << 64) - 1)


def null() -> bytes:
    return b"\x00"


def integer(number: int) -> bytes:
    return b"\x08" + zigzag(number)


def unsigned(number: int) -> bytes:
    return b"\x09" + varint(number)


def text(content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return b"\x02" + zigzag(len(content)) + content


def double(number: float) -> bytes:
    bits = int.from_bytes(struct.pack(">d", number), "big")
    return b"\x05" + (bits ^ (1 << 63) if not bits >> 63 else bits ^ (1 << 64) - 1).to_bytes(8, "big")


def decimal(number: Decimal, precision: int, scale: int) -> bytes:
    """Return a decimal, packed as in MySQL."""
    whole, _, fraction = f"{number.copy_abs():.{scale}f}".partition(".")
    whole = whole.zfill(precision - scale)[-(precision - scale) :] if precision > scale else ""
    first = len(whole) % 9
    groups = [whole[:first], *(whole[i : i + 9] for i in range(first, len(whole), 9))]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    packed = bytearray(
        b"".join(int(it).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(it)], "big") for it in groups if it)
    )
    packed[0] ^= 0x80
    if number < 0:
        packed = bytearray(it ^ 0xFF for it in packed)
    return bytes([6, precision, scale]) + packed


def moment(year: int, month: int, day: int, clock: Sequence[int] = (0, 0, 0, 0)) -> bytes:
    """Return a date, with hour, minute, second and microsecond."""
    hour, minute, second, micro = clock
    date = (year * 13 + month) << 5 | day
    return unsigned((date << 17 | hour << 12 | minute << 6 | second) << 24 | micro)


def document(value: Any) -> bytes:
    """Return a document in binary JSON."""
    return b"\x0a" + _json(value)


def _json(value: Any) -> bytes:
    literals = {None: 0, True: 1, False: 2}
    if value is None or isinstance(value, bool):
        return bytes([4, literals[value]])
    if isinstance(value, int):
        return b"\x09" + struct.pack("<q", value) if value < 1 << 63 else b"\x0a" + struct.pack("<Q", value)
    if isinstance(value, float):
        return b"\x0b" + struct.pack("<d", value)
    if isinstance(value, str):
        return b"\x0c" + varint(len(value.encode())) + value.encode()
    items = sorted(value.items(), key=lambda it: (len(it[0].encode()), it[0])) if isinstance(value, dict) else value
    names = [name.encode() for name, _ in items] if isinstance(value, dict) else []
    values = [it for _, it in items] if isinstance(value, dict) else items
    at = 8 + 6 * len(names) + 5 * len(values)
    head = b""
    for name in names:
        head += struct.pack("<IH", at, len(name))
        at += len(name)
    tail = b"".join(names)
    for it in values:
        encoded = _json(it)
        if encoded[0] == 4:
            head += encoded + bytes(3)
            continue
        head += encoded[:1] + struct.pack("<I", at)
        at += len(encoded) - 1
        tail += encoded[1:]
    kind = 1 if isinstance(value, dict) else 3
    return bytes([kind]) + struct.pack("<II", len(values), 8 + len(head) + len(tail)) + head + tail


def pairs(values: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the values of a row, each behind the id of its column."""
    return b"".join(integer(column) + value for column, value in values)


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of protobuf."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def mutation(table: int, changes: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the changes of a table in their order, each with its kind."""
    changes = list(changes)
    numbers = {INSERT: 2, UPDATE: 3, DELETE: 6}
    rows = b"".join(field(numbers[kind], row) for wanted in numbers for kind, row in changes if kind == wanted)
    return field(1, table) + rows + b"".join(field(7, kind) for kind, _ in changes)


def transaction(commit_ts: int, *mutations: bytes, version: int = 1) -> bytes:
    """Return a transaction as a pump gives it."""
    value = field(1, version) + b"".join(field(2, it) for it in mutations)
    return field(1, 1) + field(2, commit_ts - 1) + field(3, commit_ts) + field(4, b"k") + field(5, value)
