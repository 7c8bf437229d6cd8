"""The formats of batches, each in a file of its own: `FORMATS` is all of them. To add one, see docs/internals.md.

Over HTTP is what has a media type and `encode`, in a stream what has `in_stream`, in `sluice tail` what has `lines`, in
the SDK's `Batch.encode` what has `encode`, in the table of docs/http.md what has a media type.
"""

from .arrow import ARROW
from .csv import CSV
from .flat import JSON, NDJSON
from .format import Format
from .messages import PROTOBUF
from .rows import ROWS

__all__ = ["ARROW", "CSV", "FORMATS", "JSON", "NDJSON", "PROTOBUF", "ROWS"]

FORMATS: tuple[Format, ...] = (JSON, NDJSON, PROTOBUF, ARROW, ROWS, CSV)
"""All formats; the first one that fits is what a caller gets who has no wish."""
