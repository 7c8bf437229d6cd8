"""Whole files of changes as they are read: which there are, and frames of bytes that cannot be compressed."""

import os
from pathlib import Path

import pytest

from sluice.protocol.errors import DecodeError
from sluice.protocol.frames import frame
from sluice.store.archive import PIECE, Index, read_file, read_indexes
from sluice.store.log.zstd import compress


def index(file: str, size: int = 0) -> Index:
    return Index(file, "pb", "", "", "", "", 0, 1, size)


def test_all_files_are_read_from_the_first_one_on_unless_it_is_said_after_which(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        (tmp_path / f"{number:010}-1.index").write_text(str(index(f"{number:010}-1.pb")))
    (tmp_path / "0000000002-3.index").write_text(str(index("0000000002-3.pb")))
    names = ["0000000001-1.pb", "0000000002-3.pb", "0000000010-1.pb"]
    assert [it.file for it in read_indexes(tmp_path)] == names
    assert [it.file for it in read_indexes(tmp_path, 1)] == names[1:]


def test_a_frame_that_became_larger_by_its_compression_is_read(tmp_path: Path) -> None:
    payload = os.urandom(PIECE - 100)
    plain = frame(payload)
    data = compress(plain[:PIECE])
    assert len(data) > len(plain)
    known = index("0000000001-1.pb.zst", len(plain))
    (tmp_path / known.file).write_bytes(data)
    assert [bytes(it) for it in read_file(tmp_path, known)] == [payload]


def test_a_file_that_is_not_as_long_as_its_index_says_is_an_error(tmp_path: Path) -> None:
    known = index("0000000001-1.pb", 7)
    (tmp_path / known.file).write_bytes(b"")
    with pytest.raises(DecodeError, match="it has 0 bytes before compression, and its index says 7"):
        list(read_file(tmp_path, known))
