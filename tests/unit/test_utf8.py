"""Vectors find the same texts well-formed as Python: those of this processor, and those of every processor."""

import ctypes
import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

HEADER = Path(__file__).parents[2] / "protocol" / "utf8.h"
BEFORE = 3
LEAST = 19
"""Bytes that a check asks for: before it, and in all."""
BOUNDARIES = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
"""Where the table of well-formed sequences changes."""
PROCESSOR = pytest.param("-UUTF8_PORTABLE", id="processor")
PORTABLE = pytest.param("-DUTF8_PORTABLE", id="portable", marks=pytest.mark.extended)
CONTEXTS = ("a", "я", "中", "😀", "aя中😀")

Check = Callable[[bytes], bool]


@pytest.fixture(scope="module", params=[PROCESSOR, PORTABLE])
def agrees(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Whether the vectors say of bytes, each beginning after some of ASCII, what Python says."""
    folder = tmp_path_factory.mktemp("utf8")
    library = folder / "utf8.so"
    source = folder / "utf8.cpp"
    source.write_text(
        f'#include "{HEADER}"\nextern "C" bool check(const uint8_t *text, size_t before, size_t size)'
        " { return utf8::is_rest_valid(text + before, text + size); }\n"
    )
    command = ["g++", "-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", request.param]
    subprocess.run([*command, source, "-o", library], check=True)
    check = ctypes.CDLL(str(library)).check
    check.argtypes = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t
    check.restype = ctypes.c_bool

    def agrees(data: bytes) -> bool:
        text = b"a" * max(BEFORE, LEAST - len(data)) + data
        return bool(check(text, BEFORE, len(text))) == is_utf8(data)

    return agrees


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("continued", [b"", b"\x80", b"\x80\x80"])
def test_all_pairs_of_bytes(agrees: Check, continued: bytes) -> None:
    around = "中文".encode() * 8
    for pair in itertools.product(range(256), repeat=2):
        assert agrees(around + bytes(pair) + continued + around), pair


def test_all_sequences_of_four_bytes_at_which_the_rules_change(agrees: Check) -> None:
    around = "中文".encode() * 12
    for turn, sequence in enumerate(itertools.product(BOUNDARIES, repeat=4)):
        assert agrees(around[: 3 * (turn % 11)] + bytes(sequence) + around[: 3 * (turn % 13)]), bytes(sequence).hex()


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_fault_at_every_place_of_texts_of_many_sizes(agrees: Check, context: str) -> None:
    around = context.encode() * 100
    for fault in ("80", "c3", "e2 82", "f0 9f 98", "c0 80", "ed a0 80", "f4 90 80 80", "ff"):
        for before, after in itertools.product(range(70), (*range(20), 31, 32, 33, 34, 63, 64, 65)):
            data = around[:before] + bytes.fromhex(fault) + around[:after]
            assert agrees(data), data.hex()


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_text_cut_at_every_place(agrees: Check, context: str) -> None:
    text = context.encode() * 40
    for start, stop in itertools.combinations(range(min(len(text), 150)), 2):
        assert agrees(text[start:stop]), (start, stop)


@given(st.lists(st.binary(max_size=8) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_bytes(agrees: Check, pieces: list[bytes]) -> None:
    assert agrees(b"".join(pieces))
