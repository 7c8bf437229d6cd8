"""Reads the tokens of a statement forward, one ahead."""

from collections.abc import Iterator
from itertools import chain

from .....protocol.errors import DecodeError
from .....protocol.lexer import END, Token, UnreadableError
from ....values.charset import encode

REPLACED = "\ufffd"
"""Stands for bytes that are not text: a name with it could be any."""


class Reader:
    """Reads forward; what is not as expected is an UnreadableError, and so is what the lexer cannot read."""

    def __init__(self, tokens: Iterator[Token], schema: str, charset: str | None = None) -> None:
        """Read `tokens`; unqualified tables are in `schema`, and strings pass through `charset`, if it is known."""
        self._tokens = tokens
        self._charset = charset
        self.schema = schema
        self._next = next(tokens, END)

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self._next is END

    def take(self) -> Token:
        """Take the next token."""
        token = self._next
        if token is END:
            raise UnreadableError("the statement ends too early")
        self._next = next(self._tokens, END)
        return token

    def finish(self) -> None:
        """Expect the end."""
        self.skip(";")
        if not self.ended:
            raise UnreadableError(f"{self._next.text!r} is not expected here")

    def word(self) -> str:
        """Take one token; its text in upper case when it is a word."""
        token = self.take()
        return token.upper if token.kind == "word" else ""

    def peek(self) -> str:
        """Return the next token in upper case if it is a word or a symbol, else ""."""
        return self._next.upper

    def peeks(self, first: str, second: str) -> bool:
        """Whether these two words come next."""
        if self.peek() != first:
            return False
        following = next(self._tokens, END)
        self._tokens = chain([following], self._tokens)
        return following.upper == second

    @property
    def at_string(self) -> bool:
        """Whether a string comes next."""
        return self._next.kind == "string"

    def skip(self, *words: str) -> bool:
        """Take the words if they come next in this order (the first decides); say whether they did."""
        if self.peek() != words[0]:
            return False
        for word in words:
            if self.peek() != word:
                raise UnreadableError(f"{self._next.text!r} instead of {word}")
            self.take()
        return True

    def skip_any(self, *words: str) -> list[str]:
        """Take all of these words that come next, in any order and number."""
        found = []
        while self.peek() in words:
            found.append(self.take().upper)
        return found

    def expect(self, *words: str) -> None:
        """Take the words, which must come next."""
        if not self.skip(*words):
            raise UnreadableError(f"{self._next.text!r} instead of {words[0]}")

    def name(self) -> str:
        """Take an identifier."""
        token = self.take()
        if token.kind not in ("word", "name") or not token.text or REPLACED in token.text:
            raise UnreadableError(f"{token.text!r} is not a name")
        return token.text

    def table(self) -> tuple[str, str]:
        """Take `table` or `schema.table`."""
        name = self.name()
        if self.skip("."):
            return name, self.name()
        if not self.schema:
            raise UnreadableError(f"{name} is in no schema")
        return self.schema, name

    def string(self) -> str:
        """Take one string."""
        token = self.take()
        if token.kind != "string" or self._next.kind == "string" or REPLACED in token.text:
            raise UnreadableError(f"{token.text!r} is not one string")
        if self._charset == "binary":  # its bytes are taken for those of any other character set
            raise UnreadableError(f"{token.text!r} is bytes")
        try:
            encode(token.text, self._charset or "utf8mb4")
        except DecodeError as error:  # the server writes question marks
            raise UnreadableError(str(error)) from error
        return token.text

    def strings(self) -> None:
        """Take a string that may be written in pieces."""
        if self._next.kind != "string":
            raise UnreadableError(f"{self._next.text!r} is not a string")
        while self._next.kind == "string":
            self.take()

    def value(self) -> str:
        """Take a word, a name, a number or a string."""
        token = self.take()
        if token.kind == "symbol" or token.upper == "DEFAULT":
            raise UnreadableError(f"{token.text!r} is not a value")
        return token.text

    def numbers(self, most: int) -> list[int]:
        """Take up to ``most`` whole numbers in parentheses, if they come next."""
        if not self.skip("("):
            return []
        found = [self._whole()]
        while self.skip(","):
            found.append(self._whole())
        self.expect(")")
        if len(found) > most:
            raise UnreadableError("too many numbers")
        return found

    def _whole(self) -> int:
        text = self.take().text
        if not (text.isascii() and text.isdigit()):
            raise UnreadableError(f"{text!r} is not a number")
        return int(text)

    def parentheses(self) -> None:
        """Take what stands in parentheses, and them."""
        self.expect("(")
        depth = 1
        while depth:
            text = self.take()
            if text.kind == "symbol":
                depth += (text.text == "(") - (text.text == ")")

    def item(self) -> None:
        """Take all up to the next comma or closing parenthesis outside parentheses, or to the end."""
        while not self.ended and self.peek() not in (",", ")", ";"):
            if self.peek() == "(":
                self.parentheses()
            else:
                self.take()

    def rest(self) -> None:
        """Take all that is left."""
        while not self.ended:
            self.take()
