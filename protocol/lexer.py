"""The words of a statement, as the server that ran it separates them.

No pattern goes back over what it has passed, so the time grows with the length of the text and no faster.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final

REAL_AS_FLOAT: Final = 1 << 0
ANSI_QUOTES: Final = 1 << 2
ORACLE: Final = 1 << 9
MAXDB: Final = 1 << 12
NO_BACKSLASH_ESCAPES: Final = 1 << 20


class UnreadableError(Exception):
    """A statement, or a part of it, is not understood with certainty."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the same text means on different servers."""

    version: tuple[int, ...]
    mariadb: bool
    charsets: frozenset[str]
    """The names of the character sets that the server has."""
    number: int = field(init=False)
    """The version as conditional comments write it: 80015 is 8.0.15."""

    def __post_init__(self) -> None:
        major, minor, patch = self.version[:3]
        object.__setattr__(self, "number", major * 10000 + minor * 100 + patch)

    def runs(self, number: int, *, mariadbs_own: bool) -> bool:
        """Whether the server executes a conditional comment with this number."""
        if not self.mariadb:
            return number <= self.number
        return number <= self.number and (mariadbs_own or not 50700 <= number <= 99999)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number or symbol (`text` as written), or a quoted name or a string (`text` is what they stand for).

    `kind` is "word", "number", "symbol", "name" or "string"; of a server that is not known also "quoted", which is a
    text in double quotes, a name or a string; "" after the last one.
    """

    kind: str
    text: str

    @property
    def upper(self) -> str:
        """The word in upper case, or the symbol; "" for all else."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""


END: Final = Token("", "")

MOST: Final = 1_000_000
"""Words, symbols, spaces and comments of a statement that is read: it takes some seconds at most."""
_WITH_NBSP: Final = frozenset(
    {
        "armscii8",
        "cp1250",
        "cp852",
        "cp866",
        "dec8",
        "geostd8",
        "greek",
        "hebrew",
        "keybcs2",
        "latin1",
        "latin2",
        "latin5",
        "latin7",
    }
)
"""Character sets of clients in which a no-break space separates words. In UTF-8 it is a letter, as all beyond ASCII."""
_BACKTICKED: Final = r"`(?:[^`]++|``)*+`"
_PLAIN: Final = r"""'(?:[^']++|'')*+'""", r""""(?:[^"]++|"")*+\""""
_ESCAPING: Final = r"""'(?:[^'\\]++|\\.|'')*+'""", r""""(?:[^"\\]++|\\.|"")*+\""""
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NOT_IN_NAMES: Final = re.compile("[\U00010000-\U0010ffff]")
"""MySQL keeps identifiers in utf8mb3 and puts a question mark in the place of any other character."""


@cache
def _pattern(sql_mode: int, *, nbsp: bool) -> re.Pattern[str]:
    space = r"\t-\r\x20\xa0" if nbsp else r"\t-\r\x20"
    beyond = r"\x80-\x9f\xa1-\U0010ffff" if nbsp else r"\x80-\U0010ffff"
    letter = rf"0-9A-Za-z_${beyond}"
    single, double = _PLAIN if sql_mode & NO_BACKSLASH_ESCAPES else _ESCAPING
    names, strings = _BACKTICKED, f"{single}|{double}"
    if sql_mode & ANSI_QUOTES:  # a backslash in a name is as any other character
        names, strings = f"{_BACKTICKED}|{_PLAIN[1]}", single
    return re.compile(
        rf"""
          (?P<space> [{space}]++ | --(?=[{space}\x00-\x1f\x7f]|\Z)[^\n]*+ | \#[^\n]*+ )
        | (?P<open> /\* (?P<code> (?P<own>M)?! (?P<version>\d{{5,6}})? )? )
        | (?P<close> \*/ )
        | (?P<name> {names} )
        | (?P<string> {strings} )
        | (?P<number>
            (?<! [{letter}] \. )  # there it is a name
            (?: \d+\.\d* (?:[eE][+-]?\d+)?+ | (?<! [{letter}] ) \.\d+ (?:[eE][+-]?\d+)?+ | \d+[eE][+-]?\d+ )
            (?! [{letter}] )
          )
        | (?P<word> [{letter}]++ )
        | (?P<symbol> [^`'"] )
        """,
        re.VERBOSE | re.DOTALL | re.ASCII,
    )


def tokens(sql: str, dialect: Dialect | None = None, sql_mode: int = 0, charset: str | None = None) -> Iterator[Token]:
    """Separate a statement; only as much text is read as is asked for. Raises UnreadableError.

    The character set is that of the client that sent it; without one it is UTF-8.

    Without a dialect the server is not known: every conditional comment is code, and what does not end goes to the end
    of the text. Then only a statement of too many words is unreadable.
    """
    pattern = _pattern(sql_mode & (NO_BACKSLASH_ESCAPES | ANSI_QUOTES), nbsp=charset in _WITH_NBSP)
    at = 0
    in_code = False
    for _ in range(MOST):
        if at >= len(sql):
            if in_code:
                raise UnreadableError("a conditional comment without end")
            return
        match = pattern.match(sql, at)
        if match is None:
            if dialect is not None:
                raise UnreadableError(f"no end of {sql[at : at + 20]!r}")
            kind = {"'": "string", '"': "name" if sql_mode & ANSI_QUOTES else "quoted"}.get(sql[at], "name")
            yield Token(kind, sql[at + 1 :])
            return
        kind, text, at = match.lastgroup or "", match[0], match.end()
        if match["open"]:
            at, opens = _opened(match, sql, dialect)
            if opens and in_code:
                raise UnreadableError("a conditional comment in another")
            in_code = in_code or (opens and dialect is not None)
        elif kind == "close":
            if not in_code and dialect is not None:
                raise UnreadableError("the end of a comment that did not begin")
            in_code = False
        elif kind != "space":
            yield _token(kind, text, sql_mode, quotes_known=dialect is not None)
    raise UnreadableError(f"more than {MOST} words, symbols, spaces and comments")


def _token(kind: str, text: str, sql_mode: int, *, quotes_known: bool) -> Token:
    if kind == "string":
        if text[0] == "'" or quotes_known:
            return Token(kind, _value(text, escapes=not sql_mode & NO_BACKSLASH_ESCAPES))
        kind = "quoted"
    if kind in ("name", "quoted"):
        text = _value(text, escapes=False)
    return Token(kind, _NOT_IN_NAMES.sub("?", text) if kind in ("word", "name", "quoted") else text)


def _opened(match: re.Match[str], sql: str, dialect: Dialect | None) -> tuple[int, bool]:
    """Return where to go on after the beginning of a comment, and whether what it holds is executed."""
    at = match.end()
    if dialect is None:
        end = sql.find("*/", at) + 2 if match["code"] is None else at
        return (end if end > 1 else len(sql)), match["code"] is not None
    is_own = match["own"] is not None
    if match["code"] is None or (is_own and not dialect.mariadb):
        return _after(sql, at, nested=False), False
    number = match["version"] or "0"
    if len(number) == len("080015") and not dialect.mariadb and dialect.version < (8,):
        number, at = number[:-1], at - 1
    if dialect.runs(int(number), mariadbs_own=is_own):
        return at, True
    return _after(sql, at, nested=True), False


def _value(text: str, *, escapes: bool) -> str:
    """Return what a quoted text stands for."""
    quote = text[0]
    if not escapes or "\\" not in text:
        return text[1:-1].replace(quote * 2, quote)
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda it: quote if it[1] is None else _ESCAPED.get(it[1], it[1]),
        text[1:-1],
        flags=re.DOTALL,
    )


def _after(sql: str, at: int, *, nested: bool) -> int:
    """Return the place after a comment; one that is not executed may hold others, one level deep."""
    while True:
        end = sql.find("*/", at)
        if end < 0:
            raise UnreadableError("a comment without end")
        begin = sql.find("/*", at, end) if nested else -1
        if begin < 0:
            return end + 2
        at = _after(sql, begin + 2, nested=False)
