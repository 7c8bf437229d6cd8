"""MySQL's binary JSON becomes the text that the server prints, or under strict_canal Canal's."""

import json
import math
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.values.json import decode
from sluice.protocol.errors import DecodeError
from tests.unit.entries import mutated


def length(size: int) -> bytes:
    """Write a length of 7 bits a byte."""
    data = bytearray()
    while size >= 0x80:
        data.append(size & 0x7F | 0x80)
        size >>= 7
    data.append(size)
    return bytes(data)


def value(it: Any, *, large: bool = False) -> tuple[int, bytes]:
    """Write a value as MySQL does: its type and its bytes. Objects and arrays take 4-byte numbers when large."""
    match it:
        case None | True | False:
            return 4, bytes([{None: 0, True: 1, False: 2}[it]])
        case int():
            for kind, code in ((5, "h"), (6, "H"), (7, "i"), (8, "I"), (9, "q"), (10, "Q")):
                try:
                    return kind, struct.pack("<" + code, it)
                except struct.error:
                    pass
            raise ValueError(it)
        case float():
            return 11, struct.pack("<d", it)
        case str():
            data = it.encode()
            return 12, length(len(data)) + data
        case list():
            return (3 if large else 2), container(None, it, large=large)
        case dict():
            keys = sorted((key.encode() for key in it), key=lambda key: (len(key), key))
            return (1 if large else 0), container(keys, [it[key.decode()] for key in keys], large=large)
        case (kind, data):  # opaque
            return 15, bytes([kind]) + length(len(data)) + data
    raise TypeError(it)


def container(keys: list[bytes] | None, values: list[Any], *, large: bool) -> bytes:
    width = 4 if large else 2

    def number(n: int) -> bytes:
        return n.to_bytes(width, "little")

    start = 2 * width + len(values) * (1 + width) + (len(keys) * (width + 2) if keys is not None else 0)
    tail = b""
    entries = b""
    for key in keys or []:
        entries += number(start + len(tail)) + len(key).to_bytes(2, "little")
        tail += key
    for it in values:
        kind, data = value(it, large=large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + number(start + len(tail))
            tail += data
    return number(len(values)) + number(start + len(tail)) + entries + tail


def document(it: Any, *, large: bool = False) -> bytes:
    kind, data = value(it, large=large)
    return bytes([kind]) + data


keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)


@pytest.mark.parametrize("strict", [False, True])
@given(it=values, large=st.booleans())
def test_a_document_reads_back_equal_to_the_bit(strict: bool, it: Any, large: bool) -> None:
    result = decode(document(it, large=large), strict_canal=strict)
    again = json.loads(result)
    assert again == it
    assert json.dumps(again, sort_keys=True) == json.dumps(it, sort_keys=True)


@pytest.mark.parametrize(
    ("it", "text"),
    [
        ({"a": 1, "bb": [1, 2, {"c": None}], "c": {}}, '{"a": 1, "c": {}, "bb": [1, 2, {"c": null}]}'),
        ([True, False, None, "", []], '[true, false, null, "", []]'),
        ([-32769, 65536, 2**63, -(2**63)], "[-32769, 65536, 9223372036854775808, -9223372036854775808]"),
        ('q"\\\b\f\n\r\t\x01/\x7f\xa0é😀', '"q\\"\\\\\\b\\f\\n\\r\\t\\u0001/\x7f\xa0é😀"'),
        ((246, bytes.fromhex("04028132")), "1.50"),
        ((10, (((2020 * 13 + 1) << 5 | 2) << 41).to_bytes(8, "little")), '"2020-01-02"'),
        (
            (12, ((((2020 * 13 + 1) << 5 | 2) << 17 | 3 << 12 | 4 << 6 | 5) << 24 | 678000).to_bytes(8, "little")),
            '"2020-01-02 03:04:05.678000"',
        ),
        ((11, (-((12 << 12 | 34 << 6 | 56) << 24 | 500000)).to_bytes(8, "little", signed=True)), '"-12:34:56.500000"'),
        ((11, bytes(8)), '"00:00:00.000000"'),
        ((15, b"Hello"), '"base64:type15:SGVsbG8="'),
        ((15, b"A" * 58), '"base64:type15:' + "QUFB" * 19 + '\\nQQ=="'),
        ((16, b"\x05"), '"base64:type16:BQ=="'),
    ],
)
def test_a_document_is_what_select_shows(it: Any, text: str) -> None:
    assert decode(document(it)) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1.5, "1.5"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (2065594985630696.2, "2065594985630696.2"),
        (1e20, "1e20"),
        (1e-5, "0.00001"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (123456789012345680.0, "1.2345678901234568e17"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)
def test_a_double_is_what_mysql_prints(number: float, text: str) -> None:
    assert decode(document(number)) == text


@pytest.mark.parametrize(
    ("it", "text"),
    [
        (1e20, "1.0E20"),
        ((246, bytes.fromhex("04028100")), "1.0"),
        ((10, (((2020 * 13 + 1) << 5 | 2) << 41).to_bytes(8, "little")), '"2020-01-02 00:00:00.000000"'),
        ((12, bytes(8)), '"0000-00-00 00:00:00"'),
        ((11, bytes(8)), '"00:00:00"'),
        ((11, (100 << 36).to_bytes(8, "little")), '"00:00:00.000000"'),
        ((15, b"Hello"), '"Hello"'),
        ("\b\x7f\x9f\xa0¡", '"\\u0008\\u007f\\u009f\\u00a0¡"'),
    ],
)
def test_strict_canal_is_what_canal_writes(it: Any, text: str) -> None:
    assert decode(document(it), strict_canal=True) == text


def test_mysql_5_7_shows_doubles_without_a_fraction_as_integers() -> None:
    numbers = [1.0, -0.0, 10.0, 1e14, 1e20, 1.5, 0.05, 7]
    assert decode(document(numbers), whole_doubles=True) == "[1, -0, 10, 100000000000000, 1e20, 1.5, 0.05, 7]"


def test_a_value_of_no_bytes_is_an_empty_text() -> None:
    assert decode(b"") == ""


def test_text_that_is_not_utf8_is_replaced() -> None:
    assert decode(b"\x0c\x03a\xffb") == '"a\ufffdb"'


@pytest.mark.parametrize(
    "data",
    [
        b"\x04\x03",
        b"\x0d",
        b"\x05\x01",
        b"\x0c\x05abc",
        b"\x0c\xff\xff\xff\xff\xff\x01",
        b"\x0b" + struct.pack("<d", math.inf),
        b"\x02\x01\x00\x04\x00",
        b"\x02\x01\x00\x08\x00\x0c\xff\xff\x00",
        b"\x00\x01\x00\x0b\x00\xff\x00\x01\x00\x04\x01\x00",
        b"\x0f\xf6\x03\x60\x02\x81",
        document([[]]).replace(b"\x02\x07\x00", b"\x02\x00\x00"),  # an array that contains itself
    ],
)
def test_broken_documents_are_errors(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not a JSON value"):
        decode(data)


def test_a_document_whose_parts_overlap_does_not_grow_without_bound() -> None:
    data = value("a")[1]
    for _ in range(60):  # each array has the one before it twenty times
        start = 4 + 20 * 3
        kind = 2 if len(data) > 2 else 12
        entry = bytes([kind]) + start.to_bytes(2, "little")
        data = (20).to_bytes(2, "little") + (start + len(data)).to_bytes(2, "little") + entry * 20 + data
    with pytest.raises(DecodeError, match="not a JSON value"):
        decode(b"\x02" + data)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(
    st.binary(max_size=80)
    | st.tuples(st.integers(0, 15), st.binary(max_size=80)).map(lambda it: bytes([it[0]]) + it[1])
)
def test_any_bytes_are_a_text_or_an_error(data: bytes) -> None:
    for strict in (False, True):
        with suppress(DecodeError):
            assert is_json(decode(data, strict_canal=strict)) or not data


@given(values, st.data())
def test_a_mutated_document_is_a_text_or_an_error(it: Any, data: st.DataObject) -> None:
    with suppress(DecodeError):
        assert is_json(decode(mutated(data, document(it), 3)))
