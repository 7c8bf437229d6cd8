"""The character sets are those of the servers: every byte, and every pair of bytes, means what CONVERT makes of it."""

import pytest

from sluice.instance.values.charset import decode
from tests.servers import Server

WIDE = ("ucs2", "utf16", "utf16le", "utf32")
REPLACED = {"?", "\ufffd", ""}  # what servers write for a character that they have no Unicode for


def differences(server: Server, charset: str, *, prefix: bytes, pairs: bool) -> list[tuple[str, str, str]]:
    """Return what the server reads otherwise, of all bytes (or pairs of bytes whose first is not ASCII)."""
    digits = "SELECT 0 AS d" + "".join(f" UNION ALL SELECT {d}" for d in range(1, 16))
    one = f"(SELECT CHAR(a.d * 16 + b.d) AS b FROM ({digits}) a, ({digits}) b)"
    source = f"(SELECT CONCAT(x.b, y.b) AS b FROM {one} x, {one} y WHERE ORD(x.b) >= 128)" if pairs else one
    value = f"CONCAT(x'{prefix.hex()}', s.b)" if prefix else "s.b"
    found = []
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(
            f"SELECT HEX({value}), HEX(CONVERT(CONVERT({value} USING {charset}) USING utf8mb4)) FROM {source} s"
        )
        for data, text in cursor.fetchall():
            expected = bytes.fromhex(text or "").decode("utf-8", "replace")
            # An ASCII byte after what is malformed: servers differ in whether it is taken along.
            if REPLACED.isdisjoint(expected) and expected and (not pairs or len(expected) == 1):
                actual = decode(bytes.fromhex(data), charset)
                if actual != expected:
                    found.append((data, expected, actual))
    return found


@pytest.mark.parametrize("server", ["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
def test_single_bytes_and_pairs_are_the_servers(server: str, request: pytest.FixtureRequest) -> None:
    running: Server = request.getfixturevalue(server)
    with running.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT character_set_name, maxlen FROM information_schema.character_sets")
        charsets = dict(cursor.fetchall())
    for charset, longest in charsets.items():
        if charset == "binary" or charset in WIDE:
            continue
        assert differences(running, charset, prefix=b"", pairs=False) == [], charset
        if longest > 1 and not charset.startswith("utf8"):
            wrong = differences(running, charset, prefix=b"", pairs=True)
            # MySQL takes a halfwidth katakana and a malformed byte after it for one character.
            assert [
                it for it in wrong if not (charset in ("sjis", "cp932") and "a1" <= it[0][:2].lower() <= "df")
            ] == []
        if charset in ("ujis", "eucjpms"):
            assert differences(running, charset, prefix=b"\x8f", pairs=True) == [], charset
