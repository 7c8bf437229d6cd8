"""What is configured of an output to files."""

from enum import StrEnum

from ....instance.settings import AnyFolder, setting
from ..settings import OutputSettings


class FileFormat(StrEnum):
    """What a file has."""

    JSON = "json"
    PB = "pb"
    PARQUET = "parquet"


class Compression(StrEnum):
    """How whole files are compressed."""

    NONE = "none"
    ZSTD = "zstd"


class FileSettings(OutputSettings):
    """The configuration of an output to files."""

    folder: AnyFolder = setting("sluice.output.<name>.folder")
    """Folder for the files, or the URL of one in an [object store](howto/file-outputs.md#an-object-store):
    `s3://bucket/shop?region=eu-central-1`. Sluice creates the folder if it is missing. Each output needs a folder of
    its own."""
    form: FileFormat = setting("sluice.output.<name>.format", FileFormat.JSON)
    """Content of a file. `json`: a line of JSON for each change (Canal's FlatMessage). `pb`: batches in
    protobuf, with all that Canal's entries have and their positions. A destination can [read](howto/file-outputs.md)
    them, and `sluice replay` applies them to a server. `parquet`: the
    [rows](arrow-types.md) in Parquet, without statements; it needs the extra `arrow`."""
    compression: Compression = setting("sluice.output.<name>.compression", Compression.NONE)
    """Whether to compress a file once it is whole. `zstd` adds `.zst` to its name; a Parquet file has it
    inside."""
    file_bytes: int = setting("sluice.output.<name>.fileBytes", 512 << 20, ge=1 << 16, le=1 << 40, unit="bytes")
    """Size at which a file is whole and the next one begins. A file ends at the end of a transaction, unless it is
    twice as large then. The size counts before compression."""
    file_seconds: int = setting("sluice.output.<name>.fileSeconds", 3600, ge=1, le=31_536_000, unit="s")
    """Time after which a file is whole, counted from its first change. An empty file is never written."""
    max_age: int = setting("sluice.output.<name>.maxAge", 0, ge=0, le=876_000, unit="h")
    """How long to keep a file after it was whole. Sluice then deletes it, but never the newest one. 0 keeps all files
    forever."""
