r"""Regular expressions that come from outside, on RE2: matching takes time linear in the name, whatever the pattern.

The language is what Python's `re` and Canal's matcher (Jakarta ORO, Perl 5) both know and read alike, without what
linear-time engines lack. A pattern is translated for RE2 as it is read. So what RE2 reads differently keeps its meaning
(`\w`, `\d` and `\s` know all of Unicode) or is refused, with its place and, if possible, what to write instead.
"""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import re2

from ...protocol.errors import FilterError

MAX_WEIGHT: Final = 1 << 16
"""How heavy a list of patterns may be: a character weighs 1."""
HEAVY: Final = 1000
r"""What each `\w`, `\W` and leading `(?!` weighs: hundreds of ranges of characters, or two programs of their own."""
MEDIUM: Final = 100
r"""What each `\d`, `\D`, `\s` and `\S` weighs: tens of ranges."""
MAX_REPEATS: Final = 1000
"""The greatest number of repetitions that RE2 allows."""
MAX_DEPTH: Final = 100
"""How deep brackets may be nested."""
MAX_NAME: Final = 64
"""The length of a group's name."""
MAX_MEMORY: Final = 2 << 20
"""Bytes that a compiled pattern may use, including the states that matching makes."""
PART: Final = 8192
"""Characters that are compiled at a time."""
ASIDE: Final = 50e-6
"""Seconds for which a thread that compiles lets others have the interpreter's lock: the shortest that lets them in."""
_MEMORY_OF_INSTRUCTION: Final = 52
"""As RE2 gives room to programs by their memory: one that has more instructions than allowed is soon given up."""

# As Python has them in texts. RE2 would fold cases into a class, and so U+0345 into the letters.
_WORD = r"\p{L}\p{N}_"
_DIGIT = r"\p{Nd}"
_SPACE = r"\t-\r\x1c- \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_SHORTHANDS = {
    "w": f"(?-i:[{_WORD}])",
    "W": f"(?-i:[^{_WORD}])",
    "d": _DIGIT,
    "D": r"\P{Nd}",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
}
_NOT_SPACE = (
    r"\x{0}-\x{8}\x{e}-\x{1b}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_IN_CLASS = {"w": _WORD, "d": _DIGIT, "D": r"\P{Nd}", "s": _SPACE, "S": _NOT_SPACE}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_IN_BOUNDS = frozenset("0123456789,")
_HEX = {"x": 2, "u": 4, "U": 8}
_LOOKAROUND = {"?=": "lookahead", "?!": "lookahead", "?<=": "lookbehind", "?<!": "lookbehind"}
_DOTTED, _DOTLESS = "\u0130", "\u0131"
_FOLDED = {ord(_DOTTED): "i", ord(_DOTLESS): "i"}  # ignoring case, Python takes them for an i, RE2 does not


class TooLargeError(FilterError):
    """A list of patterns takes too much to be compiled or matched."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One alternative of an item: what a whole name has to match, and what it must not begin with."""

    pattern: str
    """For RE2."""
    without: tuple[str, ...] = ()
    """For RE2: the content of its leading `(?!…)`."""


@dataclass(frozen=True, slots=True)
class Item:
    """One regular expression, translated."""

    text: str
    """As it was written."""
    alternatives: tuple[Alternative, ...]
    weight: int
    """See `MAX_WEIGHT`."""


class Matcher:
    """Tells whether a name as a whole matches one of several items, whatever the case of its letters."""

    def __init__(self, items: Sequence[Item], most: int | None = None) -> None:
        """Compile the items to at most ``most`` instructions; raises FilterError when they are too large."""
        memory = MAX_MEMORY if most is None else min(MAX_MEMORY, most * _MEMORY_OF_INSTRUCTION)
        alternatives = [alternative for item in items for alternative in item.alternatives]
        plain = [alternative.pattern for alternative in alternatives if not alternative.without]
        # RE2 compiles under the interpreter's lock: what is not the operator's is compiled in parts.
        parts = [plain] if most is None else _parts(plain)
        memory = min(memory, 2 * memory // max(1, len(parts)))
        self.size = 0
        """Instructions of the programs of RE2: matching takes as many steps for a character at the worst."""

        def compiled(pattern: str) -> Any:
            if most is not None:
                give_way()
            made = _compile(pattern, memory)
            self.size += made.programsize
            if most is not None and self.size > most:
                raise TooLargeError(f"the filter is too large: its programs have more than {most} instructions")
            return made

        self._plain = [compiled("|".join(part)) for part in parts if part]
        self._guarded = [
            (compiled("|".join(alternative.without)), compiled(alternative.pattern))
            for alternative in alternatives
            if alternative.without
        ]

    def matches(self, name: str) -> bool:
        """Whether the name matches."""
        folded = name if name.isascii() else name.translate(_FOLDED)
        encoded = folded.encode(errors="replace")
        if any(pattern.fullmatch(encoded) for pattern in self._plain):
            return True
        return any(pattern.fullmatch(encoded) and not without.match(encoded) for without, pattern in self._guarded)


def give_way() -> None:
    """Let the event loop go on, which gets the lock of a thread that computes only every 5 ms."""
    time.sleep(ASIDE)


def check_text(text: str) -> None:
    """Raise FilterError if a list of patterns is not text, or too long to be read in a moment."""
    if len(text) > MAX_WEIGHT:
        raise FilterError(f"the filter is too long: it has {len(text)} characters of {MAX_WEIGHT}")
    check_characters("the filter", text)


def check_characters(what: str, text: str) -> None:
    """Raise FilterError if a text holds half a character, which JSON can: it could be neither stored nor shown."""
    half = re.search("[\ud800-\udfff]", text)
    if half is not None:
        raise FilterError(f"{what} is not a text: character {half.start() + 1} is half of one, a lone surrogate")


def check_weight(items: Iterable[Item]) -> None:
    """Raise TooLargeError if the items are together too heavy to be compiled and matched in a moment."""
    weight = sum(item.weight for item in items)
    if weight > MAX_WEIGHT:
        raise TooLargeError(
            f"the filter is too large: it weighs {weight} of {MAX_WEIGHT}. A character weighs 1, each \\w, \\W and"
            f" leading (?! {HEAVY}, each \\d and \\s {MEDIUM}: write [a-z0-9_] for \\w, or fewer items that match more"
        )


def translate(text: str) -> Item:
    """Translate a regular expression for RE2. Raises FilterError if it is invalid, or has what RE2 lacks."""
    return _Translation(text).item()


def _parts(patterns: Sequence[str]) -> list[list[str]]:
    """Divide patterns among lists of at most `PART` characters; a longer pattern is alone in its list."""
    parts: list[list[str]] = [[]]
    size = 0
    for pattern in patterns:
        if parts[-1] and size + len(pattern) > PART:
            parts.append([])
            size = 0
        parts[-1].append(pattern)
        size += len(pattern)
    return parts


def _compile(pattern: str, memory: int) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    options.never_capture = True
    options.max_mem = memory
    try:
        return re2.compile(pattern, options)
    except re2.error as error:  # its form has been checked: it is too large
        raise TooLargeError(
            f"the filter is too large ({error.args[0].decode()}): write smaller repetitions, or [a-z0-9_] for \\w"
        ) from None
    finally:
        re2.purge()  # else the last 128 are kept, of any filter


@dataclass(slots=True)
class _Group:
    at: int
    parts: list[str]
    alternatives: list[Alternative]
    without: list[str]
    """What the leading lookaheads of this alternative hold."""
    is_lookahead: bool = False


class _Translation:
    """Reads a pattern once from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._weight = len(text)
        self._groups = [_Group(0, [], [], [])]
        self._repeatable = False  # whether a quantifier may follow

    def item(self) -> Item:
        text = self._text
        while self._at < len(text):
            self._read()
        if len(self._groups) > 1:
            self._refuse("it is not closed", self._groups[-1].at, 1)
        self._end_alternative()
        return Item(text, tuple(self._groups[0].alternatives), self._weight)

    # --- tokens ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        char = self._text[self._at]
        if char == "\\":
            self._escape()
        elif char == "(":
            self._open()
        elif char == ")":
            self._close()
        elif char == "[":
            self._class()
        elif char in "*+?{" and self._quantifier():
            pass
        elif char == "|":
            self._at += 1
            self._end_alternative()
            self._repeatable = False
        elif char in "^$":
            self._emit(r"\A" if char == "^" else r"\z", 1, repeatable=False)
        else:
            self._emit("." if char == "." else _literal(char), 1)

    def _emit(self, pattern: str, size: int, *, repeatable: bool = True) -> None:
        self._groups[-1].parts.append(pattern)
        self._at += size
        self._repeatable = repeatable

    def _escape(self) -> None:
        char = self._escaped()
        if char in _SHORTHANDS:
            self._weight += HEAVY if char in "wW" else MEDIUM
            self._emit(_SHORTHANDS[char], 2)
        elif char == "A":
            self._emit(r"\A", 2, repeatable=False)
        elif char in "Zz":
            self._refuse("an item matches the name to its end anyway", self._at, 2, "")
        elif char in "bB":
            self._refuse("boundaries of words are not supported: write what may stand there, as in (_.*)?", self._at, 2)
        elif char in "123456789":
            self._refuse("references to groups are not supported: write the text out", self._at, 2)
        else:
            literal, size = self._character(char)
            self._emit(_literal(literal), size)

    def _escaped(self) -> str:
        """Return the character after a backslash."""
        if self._at + 1 == len(self._text):
            self._refuse("nothing follows it", self._at, 1)
        char = self._text[self._at + 1]
        if char == "\\":
            self._refuse(
                "it asks for a backslash in the name: only .properties files double the backslash", self._at, 2
            )
        return char

    def _character(self, char: str) -> tuple[str, int]:
        """Return the one character that an escape stands for, and the length of the escape."""
        if char in _CONTROLS:
            return _CONTROLS[char], 2
        if char in _HEX:
            digits = self._text[self._at + 2 : self._at + 2 + _HEX[char]]
            number = int(digits, 16) if len(digits) == _HEX[char] and _is_hex(digits) else -1
            if char == "x" and number >= 0:
                return chr(number), 4
            if 0 <= number < 0x110000 and not 0xD800 <= number < 0xE000:
                self._refuse("this escape is not supported", self._at, 2 + len(digits), chr(number))
            self._refuse("it is not a character", self._at, 2)
        if char.isascii() and char.isalnum():
            self._refuse("this escape is not supported: write the character itself", self._at, 2)
        return char, 2

    # --- groups ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        text, at = self._text, self._at
        group = _Group(at, [], [], [])
        begin = 1
        if len(self._groups) > MAX_DEPTH:
            self._refuse(f"brackets may be nested {MAX_DEPTH} deep", at, 1)
        if text.startswith("(?#", at):
            end = text.find(")", at)
            if end < 0:
                self._refuse("it is not closed", at, 3)
            self._at = end + 1
            return
        if text.startswith("(?i)", at) and at == 0:  # every letter's case is ignored
            self._at += 4
            return
        if text.startswith(("(?:", "(?i:"), at):
            begin = text.index(":", at) + 1 - at
        elif text.startswith("(?P<", at):
            name, bracket, _ = text[at + 4 : at + 4 + MAX_NAME].partition(">")
            if not bracket or not name.isidentifier():
                self._refuse("no name of a group follows it", at, 4)
            begin = len(name) + 5
        elif text.startswith("(?!", at) and len(self._groups) == 1 and not set(self._groups[0].parts) - {r"\A"}:
            group.is_lookahead = True
            self._weight += HEAVY
            begin = 3
        elif text.startswith("(?", at):
            self._refuse_group(at)
        self._groups.append(group)
        self._at += begin
        self._repeatable = False

    def _refuse_group(self, at: int) -> NoReturn:
        begin = self._text[at + 1 : at + 4]
        for mark, what in _LOOKAROUND.items():
            if begin.startswith(mark):
                where = "works only at the beginning of an item" if mark == "?!" else "is not supported"
                self._refuse(
                    f"{what} {where}: leave tables out by canal.instance.filter.black.regex", at, len(mark) + 1
                )
        if begin.startswith("?>"):
            self._refuse("atomic groups are not supported", at, 3, "(?:")
        if begin.startswith("?P="):
            self._refuse("references to groups are not supported: write the text out", at, 4)
        if begin.startswith("?("):
            self._refuse("conditions are not supported: write both alternatives, with | between them", at, 3)
        self._refuse("this kind of group is not supported, and no flag but a leading (?i)", at, 3)

    def _close(self) -> None:
        if len(self._groups) == 1:
            self._refuse("it closes nothing", self._at, 1)
        self._end_alternative()
        group = self._groups.pop()
        pattern = "|".join(alternative.pattern for alternative in group.alternatives)
        if group.is_lookahead:
            self._groups[-1].without.append(f"(?:{pattern})")
            self._at += 1
            self._repeatable = False
        else:
            self._emit(f"(?:{pattern})", 1)

    def _end_alternative(self) -> None:
        group = self._groups[-1]
        group.alternatives.append(Alternative("".join(group.parts), tuple(group.without)))
        group.parts, group.without = [], []

    # --- repetitions -------------------------------------------------------------------------------------------------

    def _quantifier(self) -> bool:
        """Read a quantifier; return False for a bracket that does not begin one, which is then a character."""
        text, at = self._text, self._at
        if text[at] == "{":
            low, high, size = self._bounds()
            if not size:
                return False
            quantifier = f"{{{low}}}" if high == low else f"{{{low},{high}}}"
        else:
            quantifier, size = text[at], 1
        if not self._repeatable:
            self._refuse("nothing that can be repeated precedes it", at, size)
        behind = text[at + size : at + size + 1]
        if behind == "+":
            self._refuse("possessive repetitions are not supported", at + size, 1, "")
        if behind == "?":  # lazy, which makes no difference to whether a whole name matches
            size += 1
        self._emit(quantifier, size, repeatable=False)
        return True

    def _bounds(self) -> tuple[str, str, int]:
        """Return the numbers of a quantifier in brackets, and its length; 0 if it is not one."""
        text, at = self._text, self._at
        end = at + 1
        while text[end : end + 1] in _IN_BOUNDS:
            end += 1
        inside = text[at + 1 : end]
        low, comma, high = inside.partition(",")
        if not text.startswith("}", end) or not inside or "," in high:
            return "", "", 0
        size = len(inside) + 2
        if not low:
            self._refuse("Canal takes this for characters, and others for a repetition", at, size, f"{{0,{high}}}")
        if any(len(number) > 4 or int(number) > MAX_REPEATS for number in (low, high) if number):
            self._refuse(f"nothing may be repeated more than {MAX_REPEATS} times", at, size)
        if high and int(high) < int(low):
            self._refuse("it ends before it begins", at, size)
        return low, high if comma else low, size

    # --- classes -----------------------------------------------------------------------------------------------------

    def _class(self) -> None:
        text, begin = self._text, self._at
        self._at += 1
        negated = text.startswith("^", self._at)
        self._at += negated
        first, parts, has_word = self._at, [], False
        while not (text.startswith("]", self._at) and self._at > first):
            if self._at >= len(text):
                self._refuse("it is not closed", begin, 1)
            shorthand, low = self._class_item()
            if shorthand:
                has_word |= shorthand == _WORD
                self._weight += HEAVY if shorthand == _WORD else MEDIUM
                parts.append(shorthand)
            elif text.startswith("-", self._at) and text[self._at + 1 : self._at + 2] not in ("", "]"):
                at = self._at
                self._at += 1
                shorthand, high = self._class_item()
                if shorthand or high < low:
                    self._refuse("the range ends before it begins, or at a class", at, 2)
                ends = _literal(low, folded=False), _literal(high, folded=False)
                parts.append("-".join(ends) + "i" * (low <= _DOTLESS and high >= _DOTTED))
            else:
                parts.append(_literal(low))
        pattern = f"[{'^' if negated else ''}{''.join(parts)}]"
        if has_word:  # letters of both cases are in it
            pattern = f"(?-i:{pattern})"
        self._emit(pattern, 1)

    def _class_item(self) -> tuple[str, str]:
        """Return a class within a class, or else a character."""
        text, at = self._text, self._at
        if text.startswith(("[:", "[.", "[="), at):
            self._refuse("named classes are not supported: write the characters, as in [a-z]", at, 2)
        if text[at] != "\\":
            self._at += 1
            return "", text[at]
        char = self._escaped()
        if char in _IN_CLASS:
            self._at += 2
            return _IN_CLASS[char], ""
        if char == "W":
            self._refuse("it is not supported inside a class: write the class the other way round, with [^\\w", at, 2)
        literal, size = self._character(char)
        self._at += size
        return "", literal

    # --- refusing ----------------------------------------------------------------------------------------------------

    def _refuse(self, reason: str, at: int, size: int, instead: str | None = None) -> NoReturn:
        """Refuse ``size`` characters; ``instead`` is what can be written in their place."""
        text = self._text
        advice = "" if instead is None else f": write '{text[:at]}{instead}{text[at + size :]}'"
        raise FilterError(
            f"'{text}' cannot be a filter: '{text[at : at + size]}' at character {at + 1}: {reason}{advice}"
        )


def _literal(char: str, *, folded: bool = True) -> str:
    """Return a character as RE2 takes it anywhere."""
    char = _FOLDED.get(ord(char), char) if folded else char
    return char if char.isalnum() or char == "_" else f"\\x{{{ord(char):x}}}"


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)
