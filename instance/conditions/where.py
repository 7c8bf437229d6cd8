"""Conditions on rows: `shop.orders: status = 'paid' AND total > 10; shop.items: price IS NOT NULL`.

They are written in MySQL's SQL, as after WHERE. What is understood is small, so that each row is judged as the server
would judge it. All else is refused, with the table, the place and the reason. Which types a column may have is known
only when its table is: see `sluice.instance.conditions.program`.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator
from copy import copy
from decimal import Decimal
from typing import Final, Literal, NoReturn, Self

from sqlglot import exp, parse_one, tokenize
from sqlglot.errors import ParseError, SqlglotError

from ...protocol.errors import FilterError
from ..sink.patterns import check_characters
from .condition import And, Compare, Constant, In, IsNull, Like, Not, Or, Test, leaves
from .names import read_names

MAX_TEXT: Final = 1 << 16
"""Characters of all conditions together."""
MAX_CLIENT_TEXT: Final = 4096
"""Characters of all conditions of a client together: they are stored with its cursor ..."""
MAX_CLIENT_PATTERNS: Final = 256
"""... and of all their patterns of LIKE: in the worst case each is compared at each place of a text."""
MAX_TESTS: Final = 256
"""Tests of single columns in a condition."""
MAX_DEPTH: Final = 32
"""How deep AND, OR and NOT may be nested."""
MAX_CONSTANTS: Final = 1000
"""Constants in a list of IN."""
MAX_PATTERN: Final = 1000
"""Characters of a pattern of LIKE."""
MAX_DIGITS: Final = 65
"""Digits of a number: those of MySQL's largest DECIMAL."""

_Operator = Literal["=", "<", "<=", ">", ">="]
_OPERATORS: dict[type[exp.Expr], tuple[_Operator, _Operator]] = {
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""Each with what it is when its sides change places."""
_SUPPORTED = "supported are =, <>, <, <=, >, >=, <=>, IN, BETWEEN, LIKE, IS NULL, AND, OR and NOT"
_COLLATION = re.compile(r"[a-z0-9_]{1,64}")


class Conditions:
    """The conditions of some tables, one for each."""

    def __init__(self, text: str, longest: int = MAX_TEXT) -> None:
        """Read all of them; raises FilterError, also for more than ``longest`` characters."""
        self._tests: dict[str, Test] = {}
        self.tables: dict[tuple[str, str], Test] = {}
        """Schema and name of each table, in the case that they are written in, and its condition."""
        self._texts: dict[str, str] = {}
        if len(text) > longest:
            raise FilterError(f"the conditions have {len(text)} characters, more than {longest}")
        check_characters("the text of the conditions", text)
        for item in filter(None, (item.strip() for item in _split(text))):
            table, colon, condition = item.partition(":")
            table = table.strip()
            names = read_names(table) if colon else []
            if len(names) != 2 or not all(names):
                raise FilterError(f"'{item[:100]}' is not a condition of a table: write schema.table: condition")
            schema, name = names
            key = f"{schema}.{name}".upper()
            if key in self._tests:
                raise FilterError(f"{table} has two conditions: join them by AND or OR")
            try:
                test = self._tests[key] = parse_condition(condition)
            except FilterError as error:
                raise FilterError(f"{table}: {error}") from None
            self._texts[key] = condition.strip()
            self.tables[schema, name] = test

    def only(self, names: Collection[tuple[str, str]]) -> Self:
        """Return those of some of its `tables`."""
        found = copy(self)
        found.tables = {name: it for name, it in self.tables.items() if name in names}
        return found

    def of(self, schema: str, table: str) -> Test | None:
        """Return the condition of a table, if it has one."""
        return self._tests.get(f"{schema}.{table}".upper())

    def text_of(self, schema: str, table: str) -> str:
        """Return the condition of a table as it is written; empty if it has none."""
        return self._texts.get(f"{schema}.{table}".upper(), "")


def client_conditions(text: str) -> Conditions:
    """Read the conditions of a client, which have narrower limits. Raises FilterError."""
    found = Conditions(text, MAX_CLIENT_TEXT)
    tests = [leaf for test in found.tables.values() for leaf in leaves(test)]
    if (size := sum(len(it.pattern) for it in tests if isinstance(it, Like))) > MAX_CLIENT_PATTERNS:
        raise FilterError(f"the patterns of LIKE have {size} characters in all, more than {MAX_CLIENT_PATTERNS}")
    return found


def parse_condition(text: str) -> Test:
    """Read one condition. Raises FilterError."""
    if not text.strip():
        raise FilterError("the condition is empty: write one, such as total > 10")
    check_characters("the condition", text)
    try:
        if any(it.startswith(("!", "M!")) for token in tokenize(text, read="mysql") for it in token.comments):
            raise FilterError(
                "a comment that begins with /*! or /*M! is code for a server: write the condition without"
            )
        test = _test(parse_one(text, into=exp.Condition, dialect="mysql"))
        if sum(1 for _ in leaves(test)) > MAX_TESTS:
            raise FilterError(f"the condition has more than {MAX_TESTS} tests")
    except RecursionError:
        raise FilterError("the condition is nested too deeply") from None
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        place = f" at character {first['col']}, near '{first['highlight']}'" if first.get("col") else ""
        raise FilterError(f"'{text.strip()[:200]}' is not a condition of SQL{place}") from None
    except SqlglotError as error:
        raise FilterError(f"'{text.strip()[:200]}' is not a condition of SQL: {error}") from None
    if _depth(test) > MAX_DEPTH:
        raise FilterError(f"the condition is nested more than {MAX_DEPTH} deep")
    return test


def _split(text: str) -> Iterator[str]:
    """Split at the semicolons that are not in quotes."""
    quote, start, escaped = "", 0, False
    for i, char in enumerate(text):
        if escaped:
            escaped = False
        elif quote:
            escaped = char == "\\" and quote != "`"
            if char == quote:
                quote = ""
        elif char in "'\"`":
            quote = char
        elif char == ";":
            yield text[start:i]
            start = i + 1
    yield text[start:]


def _depth(test: Test) -> int:
    match test:
        case Not(part):
            return 1 + _depth(part)
        case And(parts) | Or(parts):
            return 1 + max(map(_depth, parts))
    return 1


def _refuse(node: exp.Expr, reason: str) -> NoReturn:
    raise FilterError(f"{node.sql('mysql', comments=False)[:200]}: {reason}")


def _check_form(node: exp.Expr, *names: str) -> None:
    """Refuse what has other parts than these."""
    if any(value for name, value in node.args.items() if name not in names):
        _refuse(node, _SUPPORTED)


def _test(node: exp.Expr) -> Test:
    if isinstance(node, exp.And | exp.Or):
        parts = tuple(map(_test, node.flatten(unnest=False)))
        return And(parts) if isinstance(node, exp.And) else Or(parts)
    if type(node) in _OPERATORS or isinstance(node, exp.NEQ | exp.NullSafeEQ):
        return _comparison(node)
    read = _TESTS.get(type(node))
    if read is not None:
        return read(node)
    if isinstance(node, exp.Column):
        _refuse(node, f"is not a test: write what it is compared with, such as {node.name} = 1")
    _refuse(node, _SUPPORTED)


def _comparison(node: exp.Expr) -> Test:
    left, right = node.args["this"], node.args["expression"]
    is_turned = not _is_subject(left)
    if is_turned:
        left, right = right, left
    if not _is_subject(left):
        _refuse(node, "compares two constants, or an expression; write a column and a constant")
    column, collation = _subject(left)
    if isinstance(node, exp.NullSafeEQ):
        if isinstance(right, exp.Null):
            return IsNull(column)
        return And((Not(IsNull(column)), Compare(column, "=", _constant(right), collation)))
    constant = _constant(right)
    if isinstance(node, exp.NEQ):
        return Not(Compare(column, "=", constant, collation))
    return Compare(column, _OPERATORS[type(node)][is_turned], constant, collation)


def _negation(node: exp.Expr) -> Test:
    return Not(_test(node.args["this"]))


def _brackets(node: exp.Expr) -> Test:
    return _test(node.args["this"])


def _is(node: exp.Expr) -> Test:
    if not isinstance(node.args["expression"], exp.Null):
        _refuse(node, "only IS NULL and IS NOT NULL are supported")
    return IsNull(_column(node.args["this"]))


def _in(node: exp.Expr) -> Test:
    _check_form(node, "this", "expressions", "negate")
    constants = tuple(map(_constant, node.args.get("expressions") or ()))
    if not 0 < len(constants) <= MAX_CONSTANTS:
        _refuse(node, f"a list has 1 to {MAX_CONSTANTS} constants")
    column, collation = _subject(node.args["this"])
    return In(column, constants, collation)


def _between(node: exp.Expr) -> Test:
    _check_form(node, "this", "low", "high", "negate")
    column, collation = _subject(node.args["this"])
    low, high = _constant(node.args["low"]), _constant(node.args["high"])
    return And((Compare(column, ">=", low, collation), Compare(column, "<=", high, collation)))


def _like(node: exp.Expr) -> Test:
    _check_form(node, "this", "expression", "negate")
    pattern = _constant(node.args["expression"])
    if not isinstance(pattern, str):
        _refuse(node, "a pattern is a text")
    if len(pattern) > MAX_PATTERN:
        _refuse(node, f"the pattern has more than {MAX_PATTERN} characters")
    column, collation = _subject(node.args["this"])
    return Like(column, pattern, collation)


def _maybe_negated(read: Callable[[exp.Expr], Test]) -> Callable[[exp.Expr], Test]:
    return lambda node: Not(read(node)) if node.args.get("negate") else read(node)


_TESTS: dict[type[exp.Expr], Callable[[exp.Expr], Test]] = {
    exp.Not: _negation,
    exp.Paren: _brackets,
    exp.Is: _maybe_negated(_is),
    exp.In: _maybe_negated(_in),
    exp.Between: _maybe_negated(_between),
    exp.Like: _maybe_negated(_like),
}


def _is_subject(node: exp.Expr) -> bool:
    return isinstance(node.args["this"] if isinstance(node, exp.Collate) else node, exp.Column)


def _subject(node: exp.Expr) -> tuple[str, str]:
    """Read a column and the collation that is named with it, if one is."""
    if not isinstance(node, exp.Collate):
        return _column(node), ""
    named = node.args["expression"]
    collation = named.name.lower() if isinstance(named, exp.Var | exp.Identifier | exp.Literal) else ""
    if not _COLLATION.fullmatch(collation):
        _refuse(node, "is not the name of a collation")
    return _column(node.args["this"]), collation


def _column(node: exp.Expr) -> str:
    if not isinstance(node, exp.Column):
        _refuse(node, "is not a column")
    if node.table:
        _refuse(node, f"write the column without its table: {node.name}")
    _check_form(node, "this")
    if not isinstance(node.this, exp.Identifier):
        _refuse(node, "is not a column")
    return node.name


def _constant(node: exp.Expr) -> Constant:
    """Read a constant."""
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(node, str(node.this))
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        number = _number(node, str(node.this.this))
        return number.copy_negate() if isinstance(number, Decimal) else -number  # minus would round a long Decimal
    if isinstance(node, exp.Boolean):
        return Decimal(int(node.this))
    if isinstance(node, exp.HexString):
        try:
            return bytes.fromhex(str(node.this))
        except ValueError:
            _refuse(node, "has an odd number of digits")
    if isinstance(node, exp.Collate):
        _refuse(node, "write COLLATE after the column")
    if isinstance(node, exp.Null):
        _refuse(node.parent or node, "a comparison with NULL is never true; write IS NULL or IS NOT NULL")
    _refuse(node, "is not a constant: write a number, a text or X'…'")


def _number(node: exp.Expr, text: str) -> Decimal | float:
    if "e" in text.lower():
        try:
            number = float(text)
        except ValueError:
            _refuse(node, "is not a number: write digits after the e, as in 1e6")
        if not math.isfinite(number):
            _refuse(node, "is too large for a DOUBLE")
        return number
    if sum(map(str.isdigit, text)) > MAX_DIGITS:
        _refuse(node, f"has more than {MAX_DIGITS} digits")
    return Decimal(text)
