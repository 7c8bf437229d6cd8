"""What a format is: how a batch is written in it, and what else can be done with it."""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from ..content import Content

BytesLike = bytes | memoryview
"""A piece of what is written; all pieces, in order, are the whole."""


class Encodable(Protocol):
    """A batch as a format sees it: the server's and the SDK's both are."""

    @property
    def batch_id(self) -> int:
        """Its mark; -1 for an empty batch."""

    @property
    def from_(self) -> str:
        """Position of the first entry."""

    @property
    def to(self) -> str:
        """Position after the last entry."""

    @property
    def slices(self) -> Sequence[BytesLike]:
        """The entries, framed as in Canal's ``Messages``; fields of other numbers between them are passed over."""

    @property
    def positions(self) -> bytes:
        """The place of each entry, as in ``Messages.positions`` of packet.proto; empty if unknown."""


Encode = Callable[[Encodable, bool], list[BytesLike]]
"""Writes a batch; the flag says whether exactly as Canal does (``strictCanal``). Raises DecodeError."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """How a range is written piece by piece, while it is read."""

    encode: Encode
    """Writes a piece."""
    frame: Callable[[Encodable], tuple[bytes, bytes, bytes]]
    """Gives what comes before, between and after the pieces of a range; the entries are not looked at."""


@dataclass(frozen=True, slots=True)
class Lines:
    """How a batch becomes lines of text, a few for each entry, for `sluice tail`. A heading belongs to a line."""

    flag: str
    """The option of `sluice tail` that asks for the lines, without its dashes ..."""
    help: str
    """... and its help text."""
    media_type: str
    """What the lines are made of: the media type in which the batch is asked for."""
    open: Callable[[], Callable[[bytes], Iterator[Sequence[str]]]]
    """Makes the function that turns the body of one batch after the other into lines. It may remember what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of batches. A field is None if the format cannot do that."""

    name: str
    """Its name in the SDK."""
    text: str
    """What a batch looks like in it, in Markdown, for the docs."""
    media_type: str = ""
    """Its media type, for ``Accept``; empty if the server does not write it."""
    aliases: tuple[str, ...] = ()
    """Other names of its media type."""
    needs: str = ""
    """The module that it needs ..."""
    extra: str = ""
    """... and the extra of the package that brings it."""
    content: Content = Content.ENTRIES
    """What it shows: a batch that is asked for in it has at least one entry of that."""
    moves: bool = False
    """It moves entries unchanged, which takes no time. Other formats are written by a thread."""
    encode: Encode
    """Writes a batch."""
    in_stream: Encode | None = None
    """Writes a batch of a stream, in which headers cannot say the positions."""
    pieces: Pieces | None = None
    lines: Lines | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the module that it needs is installed."""
        return not self.needs or _is_found(self.needs)


@functools.cache
def _is_found(module: str) -> bool:
    """Whether a module can be imported. The search reads folders, and every call over HTTP asks."""
    return find_spec(module) is not None


def summary(batch: Encodable) -> str:
    """Write the fields of a batch besides its entries, as a JSON object."""
    return json.dumps({"batchId": batch.batch_id, "from": batch.from_, "to": batch.to}, ensure_ascii=False)
