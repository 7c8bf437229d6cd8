"""What parsers have in common whose source sends changes, and cannot be asked for anything else."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...protocol.errors import SourceChangedError
from ...protocol.position import Position
from ...store.cursor import Cursor
from ..config import InstanceConfig
from ..source import Expiry, Proof
from .thread import ParserThread

if TYPE_CHECKING:
    from ..conditions.where import Conditions


class UnaskedParser(ParserThread):
    """Answers what `sluice.instance.source.Parser` is asked, for a source that is not."""

    _config: InstanceConfig
    _read_until = 0.0
    """Monotonic time when all was read that the source had; 0 before that."""

    def _behind(self) -> float | None:
        """Return the seconds since all was read that the source had; None before that."""
        return max(0.0, time.monotonic() - self._read_until) if self._read_until else None

    def check_conditions(self, conditions: "Conditions") -> None:
        """See `sluice.instance.source.Parser.check_conditions`: the source is not asked."""

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """See `sluice.instance.source.Parser.expiries`: the source does not say."""
        return [None] * len(places)

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        """See `sluice.instance.source.Parser.distances`: the source does not say."""
        del to
        return [None] * len(places)

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """See `sluice.instance.source.Parser.prove`. Raises SourceChangedError."""
        del sample
        raise SourceChangedError(f"{self._config.source_title} cannot replace another source: {place.journal}")

    def probe(self) -> None:
        """See `sluice.instance.source.Parser.probe`."""
