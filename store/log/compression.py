"""Compressing the files of a log that are written no more."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from .files import (
    COMPRESSED_FORMAT,
    LENGTH,
    LONGEST_COMPRESSED,
    EntriesReader,
    create,
    frame,
    index_line,
    read_block,
    read_head,
    words_of,
    write_at,
)
from .zstd import compress

UNFINISHED: Final = ".tmp"


def compress_file(path: Path, target: Path, is_over: Callable[[], bool]) -> bool:
    """Write a file with the same blocks, compressed, and its index. It has its name when both are synced.

    Blocks that would not become shorter stay as they are. False as soon as ``is_over`` says so. Then, and after an
    error, a part of it is in `unfinished`. Raises LogError when the file is damaged, and OSError.
    """
    reader, lines = EntriesReader(), list[bytes]()
    with path.open("rb") as source, os.fdopen(create(unfinished(target)), "r+b") as file:
        fd, to = source.fileno(), file.fileno()
        head, offset = read_head(fd, path)
        size = write_at(to, frame(replace(head, format=max(head.format, COMPRESSED_FORMAT)).encode(), b"", 0, []), 0)
        while (block := read_block(fd, offset, path)) is not None:
            if is_over():
                return False
            words = words_of(block, path)
            with reader.read(fd, block, path) as entries:
                packed = compress(entries) if block.size <= LONGEST_COMPRESSED else None
                if packed is not None and len(packed) + LENGTH.size >= block.size:
                    packed = None
                end = write_at(to, frame(words.encode(), block.slots, block.count, [entries], packed), size)
            lines.append(index_line(size, end, words.from_, words.to))
            offset, size = block.end, end
        status = os.fstat(fd)
        os.utime(to, ns=(status.st_atime_ns, status.st_mtime_ns))  # by which it is known how old the changes are
        os.fsync(to)
    with os.fdopen(create(target.with_suffix(".index")), "r+b") as index:
        write_at(index.fileno(), lines, 0)
        os.fsync(index.fileno())
    unfinished(target).rename(target)
    return True


def unfinished(path: Path) -> Path:
    """Return where a compressed file is while it is written."""
    return path.with_suffix(UNFINISHED)
