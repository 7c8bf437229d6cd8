"""The position: the durable, public name of a boundary in the stream of a source."""

import re
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import quote, unquote

from .errors import BadPositionError, SourceChangedError

_NUMBER = "(0|[1-9][0-9]{0,18})"
_TEXT = re.compile(rf"([^/\s]+)/([^/\s]+\.[0-9]{{1,18}})@{_NUMBER}:{_NUMBER}:{_NUMBER}")
_FILE_NUMBER = re.compile(r"\.([0-9]{1,18})\Z")
_PLAIN = "!\"#$&'()*+,:;<=>?@[\\]^`{|}"  # with letters, digits and _.-~: printable ASCII without blank, % and /
_UINT32 = 1 << 32
_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Position:
    """The place before the n-th event of the transaction that starts at ``begin``: ``source/file@created:begin:n``.

    The text is ASCII: other characters of a file's name, blanks, ``%`` and ``/`` are percent-encoded (UTF-8).
    Acking a position acks everything before it; in a range the first position is inclusive, the last one exclusive.
    Positions are ordered within one history of one source: ``<`` between two sources, or two histories where that
    shows (the files differ in base name, or the same file was created at two times), raises `SourceChangedError`.

    Only what reads a binlog takes it apart by its fields. All else compares it, asks its methods, stores its text and
    passes it on, so that a source of another kind may have positions of another kind.
    """

    source: str
    """server_uuid, or for MariaDB the server_id."""
    file: str
    """Name of the binlog file; its numeric suffix gives the order."""
    created: int
    """Header timestamp of the file's format description event, seconds since 1970."""
    begin: int
    """Offset in the file of the first event of the transaction."""
    n: int
    """Events of the transaction before this place."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form. Raises `BadPositionError`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise BadPositionError(f"not a position (source/file.number@created:begin:n): {text[:200]!r}")
        source, file, *numbers = match.groups()
        created, begin, n = map(int, numbers)
        try:
            file = unquote(file, errors="strict")
        except UnicodeDecodeError:
            raise BadPositionError(f"the file's name is not percent-encoded UTF-8: {text[:200]!r}") from None
        if created >= _UINT32 or begin >= _INT64 or n >= _UINT32:
            raise BadPositionError(f"a number of the position is out of range: {text[:200]!r}")
        return cls(source, file, created, begin, n)

    def __str__(self) -> str:
        return f"{self.source}/{quote(self.file, _PLAIN)}@{self.created}:{self.begin}:{self.n}"

    @classmethod
    def of_parts(cls, source: str, file: tuple[str, int], begin: int, n: int) -> Self:
        """Return the position that has these ``parts``."""
        return cls(source, *file, begin, n)

    @property
    def parts(self) -> tuple[str, tuple[str, int], int, int]:
        """What a ring keeps: the source and the file, which repeat, and two numbers that order places in the file."""
        return self.source, self.file_key, self.begin, self.n

    @property
    def file_key(self) -> tuple[str, int]:
        """What tells its file from all others of its source."""
        return self.file, self.created

    @property
    def canal_place(self) -> tuple[str, int]:
        """How Canal names it: file and offset."""
        return self.file, self.begin

    @property
    def transaction(self) -> Self:
        """The place before its transaction."""
        return replace(self, n=0)

    @property
    def file_number(self) -> int:
        """The numeric suffix of the file's name."""
        return file_number(self.file)

    @property
    def order(self) -> tuple[int, int, int]:
        """Its rank among the places of its history."""
        return self.file_number, self.begin, self.n

    @property
    def earliest_ms(self) -> int:
        """A time in ms since 1970 that is not after what comes next."""
        return self.created * 1000

    def is_of(self, source: str) -> bool:
        """Whether it is a place in the stream of a source: its server_uuid, or for MariaDB its server_id."""
        return self.source == source

    def is_reached_by(self, file: str, offset: int) -> bool:
        """Whether a binlog that ends at this place, of the same history, holds all transactions before the position."""
        return (file_number(file), offset) >= (self.file_number, self.begin)

    def same_source(self, other: "Position") -> bool:
        """Whether both are of one source, which may have several histories."""
        return self.source == other.source

    def same_history(self, other: "Position") -> bool:
        """Whether nothing shows that the two belong to different sources or histories."""
        if not self.same_source(other) or self.file.rpartition(".")[0] != other.file.rpartition(".")[0]:
            return False
        return self.file_number != other.file_number or self.created == other.created

    def is_comparable(self, other: "Position") -> bool:
        """Whether both are of one history, as `same_history`, and a later file was created later, too."""
        if not self.same_history(other):
            return False
        earlier, later = sorted((self, other), key=lambda it: it.file_number)
        return earlier.created <= later.created

    def _order(self, other: "Position") -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        if not self.same_history(other):
            raise SourceChangedError(f"{self} and {other} have no order: another source or another history")
        return self.order, other.order

    def precedes(self, other: "Position") -> bool:
        """Whether nothing before it comes after another place. Raises `SourceChangedError` as ``<`` does.

        That is asked where a place may be one of a merged stream, whose places have a partial order.
        """
        return self <= other

    def meet(self, other: "Position") -> "Position":
        """Return the place that precedes both, and is furthest."""
        return self if self.precedes(other) else other

    def join(self, other: "Position") -> "Position":
        """Return the place that both precede, and is least far."""
        return other if self.precedes(other) else self

    @property
    def is_merged(self) -> bool:
        """Whether it is a place in a merged stream."""
        return False

    def __lt__(self, other: "Position") -> bool:
        mine, theirs = self._order(other)
        return mine < theirs

    def __le__(self, other: "Position") -> bool:
        mine, theirs = self._order(other)
        return mine <= theirs

    def __gt__(self, other: "Position") -> bool:
        mine, theirs = self._order(other)
        return mine > theirs

    def __ge__(self, other: "Position") -> bool:
        mine, theirs = self._order(other)
        return mine >= theirs


def file_number(file: str) -> int:
    """Return the number at the end of a binlog file's name; 0 for a name without one, which servers never give."""
    match = _FILE_NUMBER.search(file)
    return int(match[1]) if match is not None else 0
