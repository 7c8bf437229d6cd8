"""Where a stream begins, of several places that it could begin at."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...protocol.errors import PurgedError, SluiceError, SourceChangedError
from ...store.cursor import OLDEST, Cursor

S = TypeVar("S")


def find_first(
    places: Sequence[Cursor | None], find: Callable[[Cursor | None], S], oldest: Callable[[], S]
) -> tuple[S | None, dict[Cursor | None, SluiceError]]:
    """Find the start for the first of some places that the source has; also say why it lacks others.

    All are asked for: the stream may never reach a place of another history, and its client is to be told. None is the
    place that the configuration says, and counts only if no other is left; so does `OLDEST` where one was purged.
    ``find`` raises PurgedError and SourceChangedError.
    """
    start: S | None = None
    refused: dict[Cursor | None, SluiceError] = {}
    for place in places:
        if place is None and start is not None:
            continue
        if place == OLDEST:
            if start is None and any(isinstance(it, PurgedError) for it in refused.values()):
                start = oldest()
            continue
        try:
            found = find(place)
        except (PurgedError, SourceChangedError) as error:
            refused[place] = error
        else:
            start = found if start is None else start
    return start, refused
