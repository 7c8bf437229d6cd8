"""The GTID set of the headers: its text is in the order of the sources, with intervals joined."""

import pytest

from sluice.instance.sources.mysql.decode.executed import ExecutedSet
from sluice.protocol.errors import BadPositionError

A = "aaaaaaaa-0000-0000-0000-000000000001"
B = "bbbbbbbb-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (f"{A}:1-3:4-6", f"{A}:1-6"),
        (f"{A}:7-9:1-3:5", f"{A}:1-3:5:7-9"),
        (f"{A}:1-9:3-4", f"{A}:1-9"),
        (f"{A}:5:4:3", f"{A}:3-5"),
        (f"{B}:1,\n{A}:2", f"{A}:2,{B}:1"),
        (f"{A.upper()}:1:Tag:1-3:2:other:4", f"{A}:1:other:4:tag:1-3"),
        ("1-1-9,0-1-5", "0-1-5,1-1-9"),
        ("0-1-5,0-2-7", "0-2-7"),
        ("16909060-1-9,255-1-5", "255-1-5,16909060-1-9"),
        ("0-1-18446744073709551615", "0-1-18446744073709551615"),
    ],
)
def test_texts_are_read_and_written(text: str, canonical: str) -> None:
    assert str(ExecutedSet(text)) == canonical


@pytest.mark.parametrize("text", ["x", "1-2", f"{A[:-1]}:1", f"{A}:x-y", f"{A}:1-", "0-1-5-6"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadPositionError, match=r"not a (GTID set|MariaDB GTID)"):
        ExecutedSet(text)
