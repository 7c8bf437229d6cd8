"""Events of a file are framed as in a dump."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.sources.files.framing import EventFramer
from sluice.protocol.errors import DecodeError
from tests.packets import PacketWriter

LONGEST = 0xFFFFFF
"""Bytes of a payload that goes on in another packet."""


def event(size: int, fill: int = 1) -> bytes:
    return bytes(9) + size.to_bytes(4, "little") + bytes([fill]) * (size - 13)


def framed(data: bytes, *, end: int | None = None, piece: int = 1 << 20, room: int = 1 << 20) -> bytes:
    """Frame all, given `piece` bytes at a time and `room` bytes of room."""
    framer = EventFramer(1 << 30)
    framer.end = len(data) if end is None else end
    found, rest = b"", memoryview(b"")
    left = memoryview(data)
    while True:
        space = bytearray(room)
        taken, written = framer.frame(rest, memoryview(space))
        rest = rest[taken:]
        found += space[:written]
        if not written:
            if not left:
                return found
            rest, left = memoryview(bytes(rest) + left[:piece]), left[piece:]


def expected(sizes: list[int]) -> bytes:
    writer = PacketWriter()
    return b"".join(b"".join(writer.event(event(size, size & 0xFF))) for size in sizes)


@given(st.lists(st.integers(19, 300), max_size=300), st.integers(1, 700), st.integers(5, 700))
def test_any_pieces_and_any_room_give_the_same_packets(sizes: list[int], piece: int, room: int) -> None:
    data = b"".join(event(size, size & 0xFF) for size in sizes)
    assert framed(data, piece=piece, room=room) == expected(sizes)


@pytest.mark.parametrize("size", [LONGEST - 2, LONGEST - 1, LONGEST, 2 * LONGEST - 1, 2 * LONGEST])
def test_an_event_that_is_longer_than_a_packet_goes_on_in_the_next(size: int) -> None:
    assert framed(event(size, size & 0xFF) + event(20, 20), room=random.Random(size).randrange(5, 1 << 20)) == expected(
        [size, 20]
    )


def test_an_event_begins_only_if_the_file_has_all_of_it() -> None:
    data = event(20) + event(30)
    assert framed(data, end=49) == framed(event(20))
    assert framed(data, end=50) != framed(event(20))


def test_it_knows_where_in_the_file_it_is() -> None:
    framer = EventFramer(1 << 30)
    framer.end = 100
    data = event(20) + event(50)
    assert framer.frame(data, memoryview(bytearray(40))) == (20 + 40 - 30, 40)
    assert (framer.place, framer.is_inside) == (30, True)
    framer.frame(data[30:], memoryview(bytearray(100)))
    assert (framer.place, framer.is_inside) == (70, False)


@pytest.mark.parametrize(("size", "text"), [(0, "of 0 bytes, which is less than a header"), (1001, "more than 1000")])
def test_a_size_that_cannot_be_is_refused(size: int, text: str) -> None:
    framer = EventFramer(1000)
    framer.end = 1 << 40
    with pytest.raises(DecodeError, match=text):
        framer.frame(bytes(9) + size.to_bytes(4, "little") + bytes(100), memoryview(bytearray(100)))


def test_what_comes_before_such_a_size_is_given_first() -> None:
    framer = EventFramer(1000)
    framer.end = 1 << 40
    data, space = event(20, 20) + event(30, 30) + bytes(9) + bytes(100), memoryview(bytearray(1000))
    taken, written = framer.frame(data, space)
    assert (taken, bytes(space[:written])) == (50, expected([20, 30]))
    with pytest.raises(DecodeError, match="of 0 bytes"):
        framer.frame(data[taken:], space)


def test_a_dump_ends_by_a_packet_of_its_own() -> None:
    framer = EventFramer(1000)
    assert [framer.eof()[:5] for _ in range(300)][255:258] == [
        b"\5\0\0\0\xfe",
        b"\5\0\0\1\xfe",
        b"\5\0\0\2\xfe",
    ]
