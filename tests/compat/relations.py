"""How the texts of both relate where Canal is known to write another one: exactly, not just that they differ.

A ValueError says that a text is not even of its kind, for instance no JSON.
"""

import base64
import json
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.compat.comparing import Difference
from tests.compat.script import CHARSETS

Relation = Callable[[Difference], bool]

CODECS = {
    "latin1": "cp1252",
    "gbk": "gbk",
    "sjis": "shift_jis",
    "utf16": "utf-16-be",
    "ucs2": "utf-16-be",
    "utf32": "utf-32-be",
    "koi8r": "koi8-r",
    "cp1251": "cp1251",
}
"""Python's names of the charsets of the script."""


def is_decoded_as_utf8(found: Difference) -> bool:
    """Canal decodes the bytes of every column as the connection's charset, UTF-8; `c3` is the fourth column."""
    charset = re.search(r"CHARACTER SET (\w+)", list(CHARSETS)[int(found.column[1:])])
    assert charset is not None
    return bool(found.canal == found.sluice.encode(CODECS[charset[1]]).decode("utf-8", "replace"))


def is_without_last_zeros(found: Difference) -> bool:
    """Canal leaves out the last digits of a DECIMAL, those that fill no group of nine, when all of them are zero."""
    whole, _, fraction = found.sluice.partition(".")
    full = len(fraction) - len(fraction) % 9
    return int(fraction[full:] or 1) == 0 and found.canal == f"{whole}.{fraction[:full] or '0'}"


def is_the_same_float(found: Difference) -> bool:
    """Canal's Java writes more digits than are needed to read the same 32 bits back."""
    canal, sluice = (struct.pack("<f", float(text)) for text in (found.canal, found.sluice))
    return canal == sluice and len(found.canal) > len(found.sluice)


def is_without_width(found: Difference) -> bool:
    """The type is the same but for its display width."""
    return bool(found.sluice == re.sub(r"\(\d+\)", "", found.canal))


def is_the_same_json(found: Difference) -> bool:
    """Both are the same values, keys in the same order, with the texts in them as Canal writes them."""
    return _values(found.canal) == _values(found.sluice, _canals_text)


def is_json_cut_at_zero_bytes(found: Difference) -> bool:
    """Both are the same values, but that texts of Canal end before their first zero byte."""
    return _values(found.canal) == _values(found.sluice, lambda text: text.partition("\0")[0])


def _values(text: str, rewrite: Callable[[str], str] = str) -> object:
    """The values of a JSON text: numbers exact and apart from booleans, the texts in it rewritten."""

    def number(digits: str) -> Any:
        return "number", Decimal(digits)

    def as_object(pairs: list[tuple[str, Any]]) -> Any:
        return "object", [(key, rewritten(value)) for key, value in pairs]

    def rewritten(value: Any) -> Any:
        if isinstance(value, list):
            return [rewritten(each) for each in value]
        return rewrite(value) if isinstance(value, str) else value

    return rewritten(json.loads(text, parse_int=number, parse_float=number, object_pairs_hook=as_object))


def _canals_text(text: str) -> str:
    """What Canal writes for a text inside JSON of which `SELECT` shows this one."""
    if binary := re.fullmatch("base64:type[0-9]+:(.*)", text):
        return base64.b64decode(binary[1], validate=True).partition(b"\0")[0].decode()
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return f"{text} 00:00:00.000000"
    return {"100:00:00.000000": "00:00:00.000000", "00:00:00.000000": "00:00:00"}.get(text, text)
