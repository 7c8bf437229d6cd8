"""Which format a caller gets, and what the binary bodies are."""

import struct

import pytest

from sluice.protocol.entry_pb2 import Entry
from sluice.protocol.errors import NotAcceptableError
from sluice.protocol.packet_pb2 import Messages
from sluice.server.embedded import EMPTY
from sluice.server.http import formats
from sluice.server.http.formats import Format, framed_protobuf, negotiate, protobuf
from sluice.store.batch import Batch
from sluice.store.ring import Kind, Ring, Staging
from sluice.store.segment import SegmentWriter

ALL = (Format.JSON, Format.NDJSON, Format.PROTOBUF, Format.ARROW)


class TestNegotiation:
    @pytest.mark.parametrize("accept", [None, "", "*/*", "text/html, */*;q=0.1", "application/*"])
    def test_who_does_not_care_gets_the_first(self, accept: str | None) -> None:
        assert negotiate(accept, ALL) is Format.JSON

    @pytest.mark.parametrize(
        ("accept", "expected"),
        [
            ("application/x-protobuf", Format.PROTOBUF),
            ("application/vnd.apache.arrow.stream", Format.ARROW),
            ("application/protobuf", Format.PROTOBUF),
            ("application/x-ndjson", Format.NDJSON),
            ("Application/JSON; charset=utf-8", Format.JSON),
            ("application/json;q=0.5, application/x-protobuf", Format.PROTOBUF),
            ("application/json;q=0, */*", Format.NDJSON),
            ("application/x-ndjson;q=0.2, application/x-protobuf;q=0.8, text/plain", Format.PROTOBUF),
        ],
    )
    def test_the_most_liked_format_wins(self, accept: str, expected: Format) -> None:
        assert negotiate(accept, ALL) is expected

    @pytest.mark.parametrize("accept", ["text/plain", "application/json;q=0", "application/json;q=much"])
    def test_what_is_not_offered_is_refused(self, accept: str) -> None:
        with pytest.raises(NotAcceptableError, match="application/json"):
            negotiate(accept, (Format.JSON,))

    def test_arrow_is_refused_with_the_reason_where_pyarrow_is_not_installed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "HAS_ARROW", False)
        with pytest.raises(NotAcceptableError, match="lacks pyarrow"):
            negotiate("application/vnd.apache.arrow.stream", ALL)
        assert negotiate("application/vnd.apache.arrow.stream, */*;q=0.1", ALL) is Format.JSON


def batch(batch_id: int, count: int, *, segment_size: int = 32768) -> Batch:
    """A batch whose entries say 0, 1, 2 … in their value; small segments make several slices of it."""
    ring = Ring(64, 1 << 20, segment_size)
    staging, writer = Staging(), SegmentWriter(ring.pool)
    for number in range(count):
        writer.write_framed(Entry(storeValue=b"%d" % number * 2000).SerializeToString())
        staging.add_entry(writer, Kind.ROW_DATA, rows=1, begin=4 + 300 * number, n=number % 3)
    ring.put(staging)
    got = ring.collect(0)
    return Batch(batch_id, got.slices, "here", "there", got.entries, got.rows, got.bytes, got.execute_ms, got.positions)


class TestProtobuf:
    @pytest.mark.parametrize("batch_id", [0, 1, 127, 128, 3_000_000_007, (1 << 63) - 1])
    def test_a_body_is_canals_messages(self, batch_id: int) -> None:
        body = Messages.FromString(b"".join(protobuf(batch(batch_id, 40))))
        assert body.batch_id == batch_id
        assert [Entry.FromString(it).storeValue for it in body.messages] == [b"%d" % n * 2000 for n in range(40)]

    def test_an_empty_batch_has_id_minus_one(self) -> None:
        body = Messages.FromString(b"".join(protobuf(EMPTY)))
        assert (body.batch_id, list(body.messages)) == (-1, [])

    def test_the_position_of_each_entry_comes_before_the_entries(self) -> None:
        body = Messages.FromString(b"".join(protobuf(batch(7, 40)) + protobuf(batch(8, 2))))
        assert len(body.messages) == 42
        assert list(body.positions) == [it for n in (*range(40), 0, 1) for it in (4 + 300 * n, n % 3)]

    def test_entries_are_not_copied(self) -> None:
        it = batch(7, 40)
        assert len(it.slices) > 1
        assert all(part is slice_ for part, slice_ in zip(protobuf(it)[1:], it.slices, strict=True))

    def test_in_a_stream_the_length_comes_before_and_positions_within(self) -> None:
        stream = b"".join(part for n in (7, 8) for part in framed_protobuf(batch(n, 3)))
        found = []
        while stream:
            (length,) = struct.unpack_from(">I", stream)
            found.append(Messages.FromString(stream[4 : 4 + length]))
            stream = stream[4 + length :]
        assert [(it.batch_id, it.from_position, it.to_position) for it in found] == [
            (7, "here", "there"),
            (8, "here", "there"),
        ]
        assert all(len(it.messages) == 3 for it in found)
        assert all(list(it.positions) == [4, 0, 304, 1, 604, 2] for it in found)
