"""What a condition on rows is made of, after its text was read. `where` reads it; `program` compiles it.

A test of a column that is NULL is unknown, except `IsNull`. AND, OR and NOT know three values, as MySQL's. Texts
compare by the collation that a test names, in lower case, or by that of the column.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Constant = Decimal | float | str | bytes
"""A number as it was written; one with an exponent; a text; bytes (X'00ff')."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A column beside a constant."""

    column: str
    operator: Literal["=", "<", "<=", ">", ">="]
    constant: Constant
    collation: str = ""


@dataclass(frozen=True, slots=True)
class In:
    """A column equals one of several constants."""

    column: str
    constants: tuple[Constant, ...]
    collation: str = ""


@dataclass(frozen=True, slots=True)
class Like:
    """A text matches a pattern: `%` stands for any characters, `_` for one, a backslash makes them plain."""

    column: str
    pattern: str
    collation: str = ""


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column is NULL."""

    column: str


@dataclass(frozen=True, slots=True)
class And:
    """All hold."""

    parts: "tuple[Test, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """One holds."""

    parts: "tuple[Test, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    """Does not hold."""

    part: "Test"


Leaf = Compare | In | Like | IsNull
Test = Leaf | And | Or | Not


def leaves(test: Test) -> Iterator[Leaf]:
    """Give the tests of single columns, from left to right."""
    if isinstance(test, Not):
        yield from leaves(test.part)
    elif isinstance(test, And | Or):
        for part in test.parts:
            yield from leaves(part)
    else:
        yield test
