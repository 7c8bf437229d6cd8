"""Random filters and names of tables, to compare matchers with."""

import random

ATOMS = [
    *("a", "b", "A", "_", "$", "-", "i", "I", "ß", "ö", "Ö", "я", "表", "0", "1", "٣", "^", "$", "."),
    *(r"\.", r"\.", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\$", r"\_", r"\-", r"\ ", r"\x61", r"\t"),
    *("[ab]", "[^a]", "[a-c]", "[A-C]", "[^a-z]", "[а-я]", "[-a]", "[a-]", "[]a]"),  # noqa: RUF001  Cyrillic
    *(r"[\w$]", r"[^\w]", r"[\d_]", r"[\S]", r"[^\s]", r"[\D]"),
]
QUANTIFIERS = ["*", "+", "?", "{1}", "{2}", "*?", "+?", "??"]
LETTERS = "aabbc_$-.1٣öÖяЯ表IißéµAB "


class Patterns:
    """Makes them, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def item(self) -> str:
        """One regular expression. Commas and braces that are not quantifiers are left out: they separate for some."""
        text = self._sequence(2)
        if self._chance(0.5):
            text = rf"{self._sequence(1)}\.{self._sequence(1)}"
        if self._chance(0.15):
            text = f"{self._random.choice(['', '^'])}(?!{self._sequence(1)}){text}"
        return f"^{text}$" if self._chance(0.1) else text

    def names(self, count: int) -> list[tuple[str, str]]:
        """Schemas and tables."""
        return [(self._name(), self._name()) for _ in range(count)]

    def _name(self) -> str:
        return "".join(self._random.choices(LETTERS, k=self._random.randint(1, 4)))

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _sequence(self, depth: int) -> str:
        parts = []
        for _ in range(self._random.randint(1, 4)):
            if depth and self._chance(0.3):
                begin = self._random.choice(["(", "(?:"])
                alternatives = [self._sequence(depth - 1) for _ in range(self._random.randint(1, 2))]
                part = f"{begin}{'|'.join(alternatives)})"
            else:
                part = self._random.choice(ATOMS)
            parts.append(part + (self._random.choice(QUANTIFIERS) if self._chance(0.3) else ""))
        return "".join(parts)
