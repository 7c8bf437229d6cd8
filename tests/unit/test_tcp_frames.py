"""Frames of Canal's protocol, byte by byte; the literals were recorded from Canal 1.1.7."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.canal.packet_pb2 import Messages, Packet
from sluice.protocol.wire import varint
from sluice.server.tcp import frames
from sluice.server.tcp.frames import FrameError, FrameReader, batch_parts
from sluice.store.batch import Batch
from tests.canal import frames as framed


def batch(batch_id: int, entries: list[bytes]) -> Batch:
    slices = [memoryview(b"\x12" + varint(len(entry)) + entry) for entry in entries]
    size = sum(map(len, slices))
    return Batch(batch_id, slices, "", "", entries=len(entries), rows=0, bytes=size, timestamp=0)


class TestWriting:
    def test_handshake(self) -> None:
        seed = bytes.fromhex("d370ac834355681f")
        assert frames.handshake(seed).hex() == "00000010100118012a0a1208d370ac834355681f"

    def test_success(self) -> None:
        assert frames.OK.hex() == "0000000410011803"

    def test_refusal(self) -> None:
        text = "61757468206661696c656420666f7220757365723a63616e616c"
        assert frames.refusal(400, "auth failed for user:canal").hex() == f"00000025100118032a1f089003121a{text}"

    def test_an_empty_batch(self) -> None:
        assert frames.EMPTY_BATCH.hex() == "00000011100118072a0b08ffffffffffffffffff01"
        assert batch_parts(batch(-1, [])) == [frames.EMPTY_BATCH]

    def test_a_batch(self) -> None:
        parts = batch_parts(batch(3, [b"ab", b"c"]))
        assert [bytes(part).hex() for part in parts] == ["0000000d18072a090803", "12026162", "120163"]

    @given(st.integers(1, (1 << 63) - 1), st.lists(st.binary(max_size=300), min_size=1))
    def test_a_batch_is_a_packet_of_messages_after_its_length(self, batch_id: int, entries: list[bytes]) -> None:
        data = b"".join(batch_parts(batch(batch_id, entries)))
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        packet = Packet.FromString(data[4:])
        assert packet.type == Packet.MESSAGES
        messages = Messages.FromString(packet.body)
        assert (messages.batch_id, list(messages.messages)) == (batch_id, entries)
        assert packet.SerializeToString() == data[4:]


class TestReading:
    @given(st.lists(st.binary(max_size=200)), st.lists(st.integers(0, 5000)))
    def test_however_the_bytes_arrive_the_frames_are_the_same(self, packets: list[bytes], cuts: list[int]) -> None:
        data = b"".join(framed(packets))
        reader = FrameReader(200)
        found = []
        places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        for begin, end in zip(places, [*places[1:], len(data)], strict=True):
            reader.feed(data[begin:end])
            while (frame := reader.take()) is not None:
                found.append(frame)
        assert found == packets
        assert len(reader) == 0

    @given(st.binary(max_size=64))
    def test_no_bytes_break_the_reader(self, data: bytes) -> None:
        reader = FrameReader(16)
        reader.feed(data)
        try:
            while (frame := reader.take()) is not None:
                assert len(frame) <= 16
        except FrameError:
            return
        assert len(reader) < 4 + 16

    @pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
    def test_an_impossible_length_is_noticed_before_the_frame_has_come(self, length: int) -> None:
        reader = FrameReader(100)
        reader.feed(length.to_bytes(4, "big", signed=True))
        with pytest.raises(FrameError, match=f"a frame of {length} bytes; up to 100 are taken"):
            reader.take()

    def test_a_request_of_http_is_told_as_such(self) -> None:
        reader = FrameReader(100)
        reader.feed(b"GET / HTTP/1.1\r\n")
        with pytest.raises(FrameError, match="this is HTTP, which has a port of its own"):
            reader.take()

    def test_the_limit_may_change_between_two_frames(self) -> None:
        reader = FrameReader(2)
        reader.feed(b"".join(framed([b"ab", b"abc"])))
        assert reader.take() == b"ab"
        reader.limit = 3
        assert reader.take() == b"abc"


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (-1, "ffffffffffffffffff01"), (1 << 63, "80" * 9 + "01")],
)
def test_varints(number: int, encoded: str) -> None:
    assert varint(number).hex() == encoded
