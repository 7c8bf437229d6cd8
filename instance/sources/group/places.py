"""The places of the members that a cut has."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from ....protocol.cut import Cut, parse_executed, places_in
from ....protocol.errors import SourceChangedError
from ....store.cursor import OLDEST, Cursor, earliest, member_of, starts


def check_places(places: Sequence[Cursor | None]) -> None:
    """Raise SourceChangedError for places of a single source."""
    for it in places:
        if it not in (None, OLDEST) and it is not None and not isinstance(it.position, Cut):
            raise SourceChangedError(
                f"{it.position or it.journal} is a place of a single source, and the destination is a group: remove the"
                " client, or make a destination of another name for the group"
            )


def starts_of_others(kept: Cut, places: Sequence[Cursor | None]) -> dict[str, Cursor]:
    """Return where the members begin that only some cuts have, so that the stream begins without them.

    Those are the members that joined while a client was not served. None of the clients that have one may lose what
    follows their places, so it begins at the first of these.
    """
    cuts = [it for it in places if it is not None and isinstance(it.position, Cut)]
    names = {name for it in cuts for name in places_in(it.position or kept)} - kept.places.keys()
    found = {name: earliest([own for it in cuts if (own := member_of(it, name)) is not None]) for name in names}
    return {name: it for name, it in found.items() if it is not None}


def places_of(name: str, places: Sequence[Cursor | None]) -> list[Cursor | None]:
    """Return where a member may begin, of cuts: where the configuration says if it is not in them.

    That is first where the first cut says, then in the order of the stream.
    """
    found: list[Cursor | None] = []
    for it in places:
        if it is None or it == OLDEST:
            found.append(it)
        elif isinstance(it.position, Cut):
            place = it.position.places.get(name)
            gtids = parse_executed(it.gtid).get(name, "")
            restart = it.restart.places.get(name) if isinstance(it.restart, Cut) else None
            found.append(None if place is None else replace(Cursor.at(place, str(gtids)), restart=restart))
    if not found:
        return []
    first, *rest = found
    runs = itertools.groupby(rest, lambda it: it is None or it == OLDEST)
    sorted_ = [it for is_any, run in runs for it in (run if is_any else starts([*run], None))]
    return [*dict.fromkeys([first, *sorted_])]
