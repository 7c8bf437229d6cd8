"""The words of statements, for a server that is known and for one that is not."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.lexer import (
    ANSI_QUOTES,
    NO_BACKSLASH_ESCAPES,
    Dialect,
    Token,
    UnreadableError,
    tokens,
)

NAMES = frozenset({"utf8mb4", "utf8", "latin1", "binary", "ucs2"})
MYSQL56 = Dialect((5, 6, 24), mariadb=False, charsets=NAMES)
MYSQL80 = Dialect((8, 0, 15), mariadb=False, charsets=NAMES)
MYSQL97 = Dialect((9, 7, 4), mariadb=False, charsets=NAMES)
MARIADB = Dialect((11, 8, 6), mariadb=True, charsets=NAMES)
PLAIN_MODES = (0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES, ANSI_QUOTES | NO_BACKSLASH_ESCAPES)
MODES = st.sampled_from(PLAIN_MODES)
DIALECTS = st.sampled_from([None, MYSQL56, MYSQL80, MYSQL97, MARIADB])
ESCAPES = {"\0": "\\0", "\n": "\\n", "\x1a": "\\Z", "'": "\\'", '"': '\\"', "\\": "\\\\"}
BMP = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("comment", "executed"),
    [
        ("/*! x */", [MYSQL56, MYSQL80, MYSQL97, MARIADB]),
        ("/*!50100x*/", [MYSQL56, MYSQL80, MYSQL97, MARIADB]),
        ("/*!50700 x */", [MYSQL80, MYSQL97]),
        ("/*!80023 x */", [MYSQL97]),
        ("/*!080000 x */", [MYSQL97]),
        ("/*!100100 x */", [MARIADB]),
        ("/*M! x */", [MARIADB]),
        ("/*M!100100 x */", [MARIADB]),
        ("/*M!999999 x */", []),
        ("/*!99999 y /* z */ y */", []),
        ("/*! /* z */ x */", [MYSQL56, MYSQL80, MYSQL97, MARIADB]),
        ("/* ! x */", []),
        ("-- x\n", []),
        ("# x", []),
        ("--x", [MYSQL56, MYSQL80, MYSQL97, MARIADB]),
    ],
)
def test_a_conditional_comment_is_code_for_the_servers_that_execute_it(comment: str, executed: list[Dialect]) -> None:
    six = comment.startswith(("/*!0", "/*!1"))  # an older MySQL reads five digits there, and finds an error
    for dialect in (MYSQL97, MARIADB) if six else (MYSQL56, MYSQL80, MYSQL97, MARIADB):
        found = [token.text for token in tokens(f"a {comment}", dialect, 0)]
        assert ("x" in found) == (dialect in executed), dialect


@pytest.mark.parametrize(
    ("sql", "mode", "expected"),
    [
        (r"""'it''s' "a""b" 'c\'d\n\%'""", 0, ["it's", 'a"b', "c'd\n\\%"]),
        (r"""'a\' 'b'""", NO_BACKSLASH_ESCAPES, ["a\\", "b"]),
        (r"""`a``b` "c\" 'd\'e'""", ANSI_QUOTES, ["a`b", "c\\", "d'e"]),
        ("1.5 .5 1e5 1e-5 a.1b 2x 0x1F `x😀`", 0, ["1.5", ".5", "1e5", "1e-5", "a", ".", "1b", "2x", "0x1F", "x?"]),
    ],
)
def test_quotes_are_read_as_the_sql_mode_says(sql: str, mode: int, expected: list[str]) -> None:
    assert [token.text for token in tokens(sql, MYSQL80, mode)] == expected


@pytest.mark.parametrize("sql", ["'", '"', "`", "/*", "/*!", "*/", "/*!99999", "/*! /*! x */ */"])
def test_what_does_not_end_is_not_read(sql: str) -> None:
    with pytest.raises(UnreadableError):
        list(tokens(sql, MYSQL80, 0))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a€b.é表", ["a€b", ".", "é表"]),
        ("t.1e5 .5 t.15 t.1.5", ["t", ".", "1e5", ".5", "t", ".", "15", "t", ".", "1", ".", "5"]),
        ("x'27' X'' b'01' 0x27 0b1", ["x", "27", "X", "", "b", "01", "0x27", "0b1"]),
        ("_utf8'a' n'b'", ["_utf8", "a", "n", "b"]),
        ("a;b\xa0 c\x85d\u3000 --\xa0e", ["a", ";", "b\xa0", "c\x85d\u3000", "-", "-", "\xa0e"]),
        ("a--b --\x01 c\n--\x7fd\n# e\nf --", ["a", "-", "-", "b", "f"]),
        ("'a' 'b''' '' '''' `\\`", ["a", "b'", "", "'", "\\"]),
    ],
)
def test_words_are_those_that_servers_see(sql: str, expected: list[str]) -> None:
    for dialect in (None, MYSQL80, MARIADB):
        assert [token.text for token in tokens(sql, dialect)] == expected


@pytest.mark.parametrize("charset", ["latin1", "greek", "cp866"])
def test_a_no_break_space_separates_words_in_old_character_sets(charset: str) -> None:
    found = [token.text for token in tokens("a\xa0b\u20ac, `c\xa0`.1e5 --\xa0d", None, 0, charset)]
    assert found == ["a", "b\u20ac", ",", "c\xa0", ".1e5"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a /*!99999 b */ /*M!999999 c */ /* d */ e", ["a", "b", "c", "e"]),
        ("a */ /*!50000 b", ["a", "b"]),
        ("a /* b", ["a"]),
        ("a `b c", ["a", "b c"]),
        ("a 'b c", ["a", "b c"]),
    ],
)
def test_of_a_server_that_is_not_known_all_comments_are_code_and_all_ends_are_missed(
    sql: str, expected: list[str]
) -> None:
    assert [token.text for token in tokens(sql)] == expected


@pytest.mark.parametrize(
    ("sql", "mode", "expected"),
    [
        (r'"a\"b" c', 0, [Token("quoted", r"a\"b"), Token("word", "c")]),
        (r'"a\" c', NO_BACKSLASH_ESCAPES, [Token("quoted", "a\\"), Token("word", "c")]),
        (r'"a\" c', ANSI_QUOTES, [Token("name", "a\\"), Token("word", "c")]),
        ('"a""b', 0, [Token("quoted", 'a""b')]),
    ],
)
def test_what_stands_in_double_quotes_may_be_a_name_if_the_server_is_not_known(
    sql: str, mode: int, expected: list[Token]
) -> None:
    assert list(tokens(sql, sql_mode=mode)) == expected


@given(st.lists(BMP), MODES, DIALECTS)
def test_a_quoted_text_stands_for_itself(texts: list[str], mode: int, dialect: Dialect | None) -> None:
    names = ["`" + text.replace("`", "``") + "`" for text in texts]
    assert list(tokens("/**/".join(names), dialect, mode)) == [Token("name", text) for text in texts]
    if mode & NO_BACKSLASH_ESCAPES:
        strings = ["'" + text.replace("'", "''") + "'" for text in texts]
    else:
        strings = ["'" + "".join(ESCAPES.get(it, it) for it in text) + "'" for text in texts]
    assert list(tokens("--\n".join(strings), dialect, mode)) == [Token("string", text) for text in texts]


@given(st.one_of(st.text(), st.text(st.sampled_from("aé1.e0'\"`\\/*!M5-# \n();\x00\xa0😀"))), MODES, DIALECTS)
def test_a_text_is_separated_or_unreadable(sql: str, mode: int, dialect: Dialect | None) -> None:
    try:
        found = list(tokens(sql, dialect, mode))
    except UnreadableError:
        assert dialect is not None
        return
    assert all(token.text or token.kind in ("name", "string", "quoted") for token in found)
    if "/*" not in sql and '"' not in sql:  # then it is the same for all servers
        assert found == list(tokens(sql, None, mode))


@pytest.mark.parametrize(
    "sql",
    [
        "/*" * 5_000_000,
        "/*!" * 100_000,
        "/*!99999 " + "/* */" * 100_000,
        "a/*" + "/*" * 5_000_000 + "*/" * 5_000_000,
        "'" * 10_000_001,
        "'" + "\\'" * 5_000_000,
        '"' + '\\"' * 5_000_000,
        "`" * 10_000_001,
        "1" * 5_000_000 + "." + "1" * 5_000_000 + "a",
        "1e" * 5_000_000,
        "1." * 10_000,
        "#\n" * 10_000,
        " " * 10_000_000 + "-" * 10_000,
    ],
    ids=lambda sql: f"{sql[:12]!r}",
)
@pytest.mark.parametrize("dialect", [None, MYSQL80])
def test_a_long_statement_ends(sql: str, dialect: Dialect | None) -> None:
    with contextlib.suppress(UnreadableError):
        assert len(list(tokens(sql, dialect))) <= 20_000


@pytest.mark.parametrize("dialect", [None, MYSQL80])
def test_a_statement_of_too_many_words_is_not_read(monkeypatch: pytest.MonkeyPatch, dialect: Dialect | None) -> None:
    monkeypatch.setattr("sluice.protocol.lexer.MOST", 1000)
    assert len(list(tokens("a " * 499, dialect))) == 499
    for sql in ("a " * 501, "/**/" * 1001, "#\n" * 1001):
        with pytest.raises(UnreadableError, match="more than 1000 words"):
            list(tokens(sql, dialect))
