"""Which format a caller gets, and what the binary bodies are."""

import dataclasses
import json
import re
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client_sdk.batch import Batch as SdkBatch
from sluice.protocol.canal.entry_pb2 import INSERT, ROWDATA, Column, Entry, Header, RowChange, RowData
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import BadParameterError
from sluice.protocol.formats import ARROW, FORMATS, JSON, NDJSON, PROTOBUF
from sluice.protocol.formats.format import Format
from sluice.server.embedded.calls import EMPTY
from sluice.server.http.errors import NotAcceptableError
from sluice.server.http.formats import SINGLE, STREAMED, negotiate
from sluice.store.batch import Batch
from sluice.store.ring import Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from tests.unit.entries import frame

MISSING = dataclasses.replace(ARROW, needs="sluice_lacks_this")


class TestNegotiation:
    @pytest.mark.parametrize("accept", [None, "", "*/*", "text/html, */*;q=0.1", "application/*"])
    def test_without_a_preference_the_first_is_used(self, accept: str | None) -> None:
        assert negotiate(accept, SINGLE) is JSON

    @pytest.mark.parametrize(
        ("accept", "expected"),
        [
            ("application/x-protobuf", PROTOBUF),
            ("application/vnd.apache.arrow.stream", ARROW),
            ("application/protobuf", PROTOBUF),
            ("application/x-ndjson", NDJSON),
            ("Application/JSON; charset=utf-8", JSON),
            ("application/json;q=0.5, application/x-protobuf", PROTOBUF),
            ("application/json;q=0, */*", NDJSON),
            ("application/x-ndjson;q=0.2, application/x-protobuf;q=0.8, text/plain", PROTOBUF),
        ],
    )
    def test_the_most_liked_format_wins(self, accept: str, expected: Format) -> None:
        assert negotiate(accept, SINGLE) is expected

    @pytest.mark.parametrize("accept", ["text/plain", "application/json;q=0", "application/json;q=much"])
    def test_what_is_not_offered_is_refused(self, accept: str) -> None:
        with pytest.raises(NotAcceptableError, match="application/json"):
            negotiate(accept, (JSON,))

    def test_what_a_format_needs_is_looked_for_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        monkeypatch.setattr("sluice.protocol.formats.format.find_spec", asked.append)
        for _ in range(3):
            assert negotiate(None, [JSON, dataclasses.replace(ARROW, needs="sluice_is_asked_once")]) is JSON
        assert asked == ["sluice_is_asked_once"]

    def test_a_format_is_refused_with_the_reason_where_what_it_needs_is_not_installed(self) -> None:
        offered = (JSON, MISSING)
        with pytest.raises(NotAcceptableError, match=r"lacks sluice_lacks_this: pip install 'sluice-cdc\[arrow\]'"):
            negotiate("application/vnd.apache.arrow.stream", offered)
        assert negotiate("application/vnd.apache.arrow.stream, */*;q=0.1", offered) is JSON


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
        body = Messages.FromString(b"".join(PROTOBUF.encode(batch(batch_id, 40), False)))
        assert (body.batch_id, body.from_position, body.to_position) == (batch_id, "here", "there")
        assert [Entry.FromString(it).storeValue for it in body.messages] == [b"%d" % n * 2000 for n in range(40)]

    def test_an_empty_batch_has_id_minus_one(self) -> None:
        body = Messages.FromString(b"".join(PROTOBUF.encode(EMPTY, False)))
        assert (body.batch_id, list(body.messages)) == (-1, [])

    def test_the_position_of_each_entry_comes_before_the_entries(self) -> None:
        body = Messages.FromString(b"".join(PROTOBUF.encode(batch(7, 40), False) + PROTOBUF.encode(batch(8, 2), False)))
        assert len(body.messages) == 42
        assert list(body.positions) == [it for n in (*range(40), 0, 1) for it in (4 + 300 * n, n % 3)]

    def test_entries_are_not_copied(self) -> None:
        it = batch(7, 40)
        assert len(it.slices) > 1
        assert all(part is slice_ for part, slice_ in zip(PROTOBUF.encode(it, False)[1:], it.slices, strict=True))

    def test_the_pieces_of_a_range_are_one_batch_with_its_places(self) -> None:
        assert PROTOBUF.pieces is not None
        head, between, tail = PROTOBUF.pieces.frame(batch(0, 0))
        first, second = (b"".join(PROTOBUF.pieces.encode(batch(0, count), False)) for count in (3, 2))
        body = Messages.FromString(head + first + between + second + tail)
        assert (len(body.messages), body.from_position, body.to_position) == (5, "here", "there")

    def test_in_a_stream_the_length_comes_before_and_positions_within(self) -> None:
        stream = b"".join(part for n in (7, 8) for part in STREAMED[PROTOBUF](batch(n, 3), False))
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


def rows_of(count: int) -> bytes:
    """A ``Messages`` of inserts of one row each."""
    return frame(
        [
            Entry(
                header=Header(schemaName="shop", tableName="items", eventType=INSERT),
                entryType=ROWDATA,
                storeValue=RowChange(
                    eventType=INSERT,
                    rowDatas=[RowData(afterColumns=[Column(name="id", mysqlType="int", sqlType=4, value=str(number))])],
                ).SerializeToString(),
            )
            for number in range(count)
        ]
    )


class TestRegistry:
    """Each format is one file and one line in `FORMATS`: where it appears follows from what it can do."""

    def test_the_table_of_the_documentation_is_that_of_the_registry(self) -> None:
        page = Path("docs/http.md").read_text()
        table = "".join(f"| `{it.media_type}` | {it.text} |\n" for it in FORMATS if it.media_type)
        assert f"| Accept | a batch is |\n| --- | --- |\n{table}\n" in page

    def test_names_media_types_and_flags_are_unique(self) -> None:
        for names in (
            [it.name for it in FORMATS],
            [name for it in FORMATS if it.media_type for name in (it.media_type, *it.aliases)],
            [it.lines.flag for it in FORMATS if it.lines],
        ):
            assert len(set(names)) == len(names)

    @pytest.mark.parametrize("form", [it for it in SINGLE if it.pieces], ids=lambda it: str(it.name))
    def test_a_range_that_is_written_in_pieces_is_what_it_is_in_one(self, form: Format) -> None:
        assert form.pieces is not None
        whole = SdkBatch(0, "here", "there", rows_of(5))
        parts = [SdkBatch(0, "here", "there", rows_of(5)[start:stop]) for start, stop in halves(rows_of(5))]
        head, between, tail = form.pieces.frame(whole)
        written = [b"".join(form.pieces.encode(part, False)) for part in parts]
        joined = head + between.join(written) + tail
        read = Messages.FromString if form is PROTOBUF else without_time
        assert read(joined) == read(b"".join(form.encode(whole, False)))


class TestBatchOfTheSdk:
    """`Batch.encode` writes what was received in another format."""

    BATCH = SdkBatch(7, "here", "there", rows_of(2))

    def test_flat_messages_are_those_of_the_server(self) -> None:
        found = json.loads(self.BATCH.encode("json"))
        assert (found["batchId"], found["from"], found["to"]) == (7, "here", "there")
        assert [message["data"] for message in found["entries"]] == [[{"id": "0"}], [{"id": "1"}]]
        *messages, last = [json.loads(line) for line in self.BATCH.encode("ndjson").splitlines()]
        assert [message["data"] for message in messages] == [[{"id": "0"}], [{"id": "1"}]]
        assert last == {"batchId": 7, "from": "here", "to": "there"}

    def test_rows_are_lines_of_json_or_csv(self) -> None:
        rows = [json.loads(line) for line in self.BATCH.encode("rows").splitlines()]
        assert [(row["type"], row["after"]) for row in rows] == [("INSERT", {"id": 0}), ("INSERT", {"id": 1})]
        header, *lines = self.BATCH.encode("csv").decode().splitlines()
        assert header == '"time","type","schema","table","id"'
        assert [line.rpartition(",")[2] for line in lines] == ["0", "1"]

    def test_protobuf_is_what_was_received(self) -> None:
        assert self.BATCH.encode("protobuf") == self.BATCH.data

    def test_arrow_says_which_batch_it_was(self) -> None:
        table = pa.ipc.open_stream(self.BATCH.encode("arrow")).read_all()
        assert table.num_rows == 2
        assert table.schema.metadata == {b"batchId": b"7", b"from": b"here", b"to": b"there"}

    def test_an_unknown_format_is_refused_with_the_names_there_are(self) -> None:
        with pytest.raises(BadParameterError, match="'xml' is not a format: use one of json, ndjson"):
            self.BATCH.encode("xml")


def halves(data: bytes) -> list[tuple[int, int]]:
    """Cut a ``Messages`` after its second entry."""
    cut = len(rows_of(2))
    return [(0, cut), (cut, len(data))]


def without_time(text: bytes) -> bytes:
    """FlatMessages without the time of building, which each says."""
    return re.sub(rb'"ts": ?[0-9]+', b"", text)
