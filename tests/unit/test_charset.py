"""Texts of every character set become UTF-8; what is malformed becomes U+FFFD and harms nothing else."""
# ruff: noqa: RUF001 - letters of all scripts

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.values.charset import decode, encode
from sluice.protocol.errors import DecodeError

CODECS = {  # MySQL's name -> Python's codec of the same characters (differences below)
    "armscii8": "ascii",
    "ascii": "ascii",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp932": "cp932",
    "dec8": "ascii",
    "eucjpms": "ascii",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "geostd8": "ascii",
    "hp8": "hp_roman8",
    "keybcs2": "ascii",
    "koi8r": "koi8_r",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "tis620": "tis_620",
    "ucs2": "utf-16-be",
    "ujis": "euc_jp",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.mark.parametrize(("charset", "codec"), CODECS.items())
@given(text=texts)
def test_a_text_reads_back(charset: str, codec: str, text: str) -> None:
    if charset == "ucs2":
        text = "".join(character for character in text if character <= "\uffff")
    # Bytes that the codec can both write and read; MySQL reads FULLWIDTH REVERSE SOLIDUS of ujis as a backslash, and
    # its gb18030 has the letter M WITH ACUTE where Python has a private one.
    data = text.replace("\uff3c", "").replace("\ue7c7", "").replace("\u1e3f", "").encode(codec, "ignore")
    assert decode(data, charset) == data.decode(codec)


@pytest.mark.parametrize("charset", ["gbk", "gb2312", "big5", "euckr", "cp932", "ujis", "gb18030"])
def test_every_pair_of_bytes_that_python_knows_is_the_same_character(charset: str) -> None:
    different = {b"\xa1\xc0", b"\xa8\xbc"}  # a backslash in ujis, M WITH ACUTE in gb18030
    pairs = 0
    for lead in range(0x81, 0xFF):
        for trail in range(0x40, 0xFF):
            pair = bytes((lead, trail))
            try:
                expected = pair.decode(CODECS[charset])
            except UnicodeDecodeError:
                continue
            if len(expected) == 1 and pair not in different:
                assert decode(pair, charset) == expected, pair.hex()
                pairs += 1
    assert pairs > 6800


@pytest.mark.parametrize("charset", ["eucjpms", "ujis", "gb18030", "big5", "sjis"])
def test_a_character_that_python_writes_otherwise_is_written_as_it_is_read(charset: str) -> None:
    prefixes = (b"", b"\x8f") if charset in ("eucjpms", "ujis") else (b"",)
    pairs = (bytes((lead, trail)) for lead in range(0x81, 0xFF) for trail in range(0x40, 0xFF))
    texts = {decode(prefix + pair, charset) for pair in pairs for prefix in prefixes}
    characters = {text for text in texts if len(text) == 1 and text != "\ufffd"}
    assert len(characters) > 6800
    for character in characters:
        assert decode(encode(character, charset), charset) == character
    assert encode("a①ⅰ中", "eucjpms") == bytes.fromhex("61 ada1 8ff3f3 c3e6")


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("latin1", "80 81 8d 9d e9", "€\x81\x8d\x9dé"),  # cp1252, and its holes are controls
        ("armscii8", "a1 b2 b3 ff 41", "\u2741Աա'A"),
        ("dec8", "d7 f7 dd a8 a4", "ŒœŸ¤\ufffd"),
        ("geostd8", "80 c0 fd", "€ა№"),
        ("greek", "a1 a2 e1", "ʽʼα"),
        ("hebrew", "af e0", "‾א"),
        ("cp866", "fc fd 80", "ⁿ²А"),
        ("keybcs2", "80 87 ad ff", "Čč¡\xa0"),
        ("koi8u", "95 a4", "•є"),
        ("swe7", "40 5b 5c 5d 7b 7c 7d", "ÉÄÖÅäöå"),
        ("sjis", "81 5f 5c 7e b1 93 fa", "\\\\~ｱ日"),
        ("ujis", "a1 c0 8e b1 8f b0 a1 f5 a1 8f f5 a1", "\\ｱ丂\ue000\ue3ac"),
        ("eucjpms", "a1 c1 ad a1 8f f3 f3 8f f4 fe fe fe", "～①ⅰ黑\ue3ab"),
        ("big5", "f9 d6 f9 dc", "碁嫺"),
        ("euckr", "81 41", "갂"),
        ("gb18030", "81 30 81 30 d6 d0 94 39 da 33", "\x80中💩"),
        ("gb18030", "81 30 81 30 84 31 a4 39 90 30 81 30 e3 32 9a 35 61", "\x80\uffff\U00010000\U0010ffffa"),
        ("utf16", "d8 3d de 00 00 41", "😀A"),
        ("utf16le", "3d d8 00 de 41 00", "😀A"),
        ("utf32", "00 01 f6 00", "😀"),
        ("ucs2", "4e 2d", "中"),
    ],
)
def test_mysqls_own_characters(charset: str, data: str, text: str) -> None:
    assert decode(bytes.fromhex(data), charset) == text


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("utf8mb4", "41 ff 42", "A\ufffdB"),
        ("utf8mb4", "e2 82", "\ufffd"),
        ("utf8mb4", "c0 80", "\ufffd\ufffd"),
        ("utf8mb4", "ed a0 80", "\ufffd\ufffd\ufffd"),
        ("utf8mb4", "f4 90 80 80", "\ufffd\ufffd\ufffd\ufffd"),
        ("ascii", "41 e9", "A\ufffd"),
        ("gbk", "d6", "\ufffd"),
        ("gb18030", "84 31 a5 30 41", "\ufffd1\ufffd0A"),  # no character has these four bytes
        ("gb18030", "e3 32 9a 36 41", "\ufffd2\ufffd6A"),
        ("gbk", "ff 41", "\ufffdA"),
        ("sjis", "93 22", '\ufffd"'),
        ("ujis", "8f b0", "\ufffd"),
        ("utf16", "d8 3d 00 41", "\ufffdA"),
        ("utf16", "00 41 00", "A\ufffd"),
        ("ucs2", "d8 3d", "\ufffd"),
        ("utf32", "00 11 00 00", "\ufffd"),
    ],
)
def test_malformed_bytes_are_replaced(charset: str, data: str, text: str) -> None:
    assert decode(bytes.fromhex(data), charset) == text


def same_as_python(data: bytes) -> bool:
    return decode(data, "utf8mb4") == data.decode("utf-8", "replace")


CONTEXTS = ("a", "я", "中", "😀", "aя中😀")


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("sequence", ["80", "c3", "e2 82", "f0 9f 98", "c0 80", "ed a0 80", "f4 90 80 80", "ff"])
def test_what_is_malformed_is_found_at_every_place_of_a_text_of_every_size(context: str, sequence: str) -> None:
    around = context.encode() * 100
    for before in range(90):
        for after in (0, 1, 2, 3, 13, 16, 19, 48, 67):
            data = around[len(around) - before :] + bytes.fromhex(sequence) + around[:after]
            assert same_as_python(data), data.hex()


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_text_may_be_cut_anywhere(context: str) -> None:
    text = context.encode() * 40
    for start in range(12):
        for stop in range(start, len(text)):
            assert same_as_python(text[start:stop])


@given(st.lists(st.binary(max_size=8) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_malformed_utf8_is_replaced_as_unicode_recommends(pieces: list[bytes]) -> None:
    assert same_as_python(b"".join(pieces))


@pytest.mark.parametrize("charset", [*CODECS, "cp866", "greek", "hebrew", "koi8u", "sjis", "swe7"])
@given(data=st.binary(max_size=60))
def test_any_bytes_become_some_text(charset: str, data: bytes) -> None:
    text = decode(data, charset)
    assert bool(text) == bool(data)
    assert len(text.encode()) >= len(text)  # it has no half of a surrogate pair


def test_an_unknown_character_set_is_named() -> None:
    with pytest.raises(DecodeError, match="klingon"):
        decode(b"", "klingon")
