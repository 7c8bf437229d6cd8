"""The formats of batches, each in a file of its own: `FORMATS` is all of them. To add one, see docs/internals.md.

HTTP serves a format that has a media type and `encode`; a stream, one that has `in_stream`. `sluice tail` offers one
that has `lines`, and the SDK's `Batch.encode` one that has `encode`. The table of docs/http.md lists those with a media
type.
"""

from .arrow import ARROW
from .csv import CSV
from .flat import JSON, NDJSON
from .format import Format
from .messages import PROTOBUF
from .rows import ROWS

__all__ = ["ARROW", "CSV", "FORMATS", "JSON", "NDJSON", "PROTOBUF", "ROWS"]

FORMATS: tuple[Format, ...] = (JSON, NDJSON, PROTOBUF, ARROW, ROWS, CSV)
"""All formats. A caller that asks for none in particular gets the first one that fits."""
