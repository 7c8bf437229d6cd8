"""Canal's FlatMessages: as one JSON object per batch, or as lines."""

from collections.abc import Iterator

from ..canal.flat import flat_json, flat_ndjson
from ..content import Content
from .format import BytesLike, Encodable, Format, Lines, Pieces, summary


def _json(batch: Encodable, strict: bool) -> list[BytesLike]:
    head = summary(batch).encode().removesuffix(b"}")
    return [head + b', "entries": ', flat_json(batch.slices, batch.batch_id, strict=strict), b"}"]


def _json_piece(piece: Encodable, strict: bool) -> list[BytesLike]:
    return [flat_json(piece.slices, piece.batch_id, strict=strict)[1:-1]]


def _json_frame(whole: Encodable) -> tuple[bytes, bytes, bytes]:
    return summary(whole).encode().removesuffix(b"}") + b', "entries": [', b",", b"]}"


def _ndjson(batch: Encodable, strict: bool) -> list[BytesLike]:
    return [*_ndjson_piece(batch, strict), summary(batch).encode() + b"\n"]


def _ndjson_piece(piece: Encodable, strict: bool) -> list[BytesLike]:
    return [flat_ndjson(piece.slices, piece.batch_id, strict=strict)]


def _ndjson_frame(whole: Encodable) -> tuple[bytes, bytes, bytes]:
    return b"", b"", summary(whole).encode() + b"\n"


def _messages(body: bytes) -> Iterator[list[str]]:
    for line in body.decode().split("\n")[:-2]:  # the last line says which batch it was
        yield [line]


JSON = Format(
    name="json",
    text='`{"batchId", "from", "to", "entries": [FlatMessage…]}`',
    media_type="application/json",
    content=Content.CHANGES,
    encode=_json,
    pieces=Pieces(_json_piece, _json_frame),
)
NDJSON = Format(
    name="ndjson",
    text='a FlatMessage per line, then a line `{"batchId", "from", "to"}`',
    media_type="application/x-ndjson",
    aliases=("application/ndjson",),
    content=Content.CHANGES,
    encode=_ndjson,
    in_stream=_ndjson,
    pieces=Pieces(_ndjson_piece, _ndjson_frame),
    lines=Lines(
        flag="json",
        help="one JSON object (Canal's FlatMessage) per entry",
        media_type="application/x-ndjson",
        open=lambda: _messages,
    ),
)
