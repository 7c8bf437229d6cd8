from collections.abc import Sequence

import pyarrow as pa

class UnfitError(Exception): ...

def is_ascending(*columns: pa.Int64Array) -> bool: ...
def buckets(schemas: pa.StringArray, tables: pa.StringArray, keys: pa.ListArray, count: int) -> pa.Int32Array: ...
def ends_of_keys(
    schemas: pa.StringArray, tables: pa.StringArray, keys: pa.ListArray
) -> tuple[pa.Int64Array, pa.Int64Array] | None: ...
def key_digests(
    images: pa.MapArray, rows: pa.Int32Array, seed: int, columns: Sequence[tuple[int, bool]]
) -> bytes | None: ...
def kinds(images: pa.MapArray, rows: pa.Int32Array) -> list[tuple[list[str], pa.Int32Array]]: ...
def statements(
    head: bytes,
    terms: Sequence[tuple[bytes, pa.StringArray | None, pa.Int32Array | None, int, int]],
    separator: bytes,
    tail: bytes,
    count: int,
    most_rows: int,
    most_bytes: int,
) -> list[tuple[bytes, int]]: ...
