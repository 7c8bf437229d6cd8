"""Arrow IPC streams of one record batch, whose schema's metadata says which batch it was."""

from ..canal.arrow import EnvelopeDecoder
from ..content import Content
from .format import BytesLike, Encodable, Format
from .messages import PROTOBUF


def _encode(batch: Encodable, strict: bool) -> list[BytesLike]:
    import pyarrow as pa  # noqa: PLC0415  not always installed

    # The copy that joins the slices costs little beside decoding them.
    rows = EnvelopeDecoder().decode(b"".join(PROTOBUF.encode(batch, strict)))
    rows = rows.replace_schema_metadata({"batchId": str(batch.batch_id), "from": batch.from_, "to": batch.to})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return [memoryview(sink.getvalue())]


ARROW = Format(
    name="arrow",
    text="an Arrow IPC stream of the [rows](arrow-types.md) without a table, each with its key, an UPDATE of a key as"
    " DELETE and INSERT; where the server has pyarrow; not for `stream`",
    media_type="application/vnd.apache.arrow.stream",
    needs="pyarrow",
    extra="arrow",
    content=Content.ROWS,
    encode=_encode,
)
