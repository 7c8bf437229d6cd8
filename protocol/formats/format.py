"""What a format is: how a batch is written in it, and what else can be done with it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from ..canal.rows import Change

Part = bytes | memoryview
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
    def slices(self) -> Sequence[Part]:
        """The entries, framed as in Canal's ``Messages``; fields of other numbers between them are passed over."""

    @property
    def positions(self) -> bytes:
        """Where each entry stands, as in ``Messages.positions`` of packet.proto; empty when not known."""


Encode = Callable[[Encodable, bool], list[Part]]
"""Writes a batch; told whether exactly as Canal does (``strictCanal``). Raises DecodeError."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """How a range is written piece by piece, while it is read."""

    encode: Encode
    """Writes a piece."""
    frame: Callable[[Encodable], tuple[bytes, bytes, bytes]]
    """Gives what stands before, between and after the pieces of a range; its entries are not looked at."""


@dataclass(frozen=True, slots=True)
class Lines:
    """How a batch becomes lines of text, a few for each entry: what `sluice tail` shows."""

    flag: str
    """The option of `sluice tail` that asks for them, without its dashes ..."""
    help: str
    """... and what its help says."""
    media_type: str
    """What they are made of: the media type in which the batch is asked for."""
    open: Callable[[], Callable[[bytes], Iterator[Sequence[str]]]]
    """Makes what turns the body of one batch after the other into lines. It may remember what it has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of batches. What it cannot do is None."""

    name: str
    """What the SDK calls it."""
    text: str
    """What a batch is in it, in Markdown, for docs."""
    media_type: str = ""
    """What ``Accept`` calls it; empty when the server does not write it."""
    aliases: tuple[str, ...] = ()
    """Other names of its media type."""
    needs: str = ""
    """The module that it needs ..."""
    extra: str = ""
    """... and the extra of the package that brings it."""
    moves: bool = False
    """It moves entries as they are, which takes no time; others are written by a thread."""
    encode: Encode
    """Writes a batch."""
    in_stream: Encode | None = None
    """Writes a batch of a stream, which has no headers to say its positions."""
    pieces: Pieces | None = None
    lines: Lines | None = None
    decode: Callable[[bytes], list[Change]] | None = None
    """Reads what `encode` wrote."""

    @property
    def is_installed(self) -> bool:
        """Whether what it needs is there."""
        return not self.needs or find_spec(self.needs) is not None


def summary(batch: Encodable) -> str:
    """Write the members of a batch besides its entries, as a JSON object."""
    return json.dumps({"batchId": batch.batch_id, "from": batch.from_, "to": batch.to}, ensure_ascii=False)
