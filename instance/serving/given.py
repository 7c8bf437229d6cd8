"""What was read of a source and given to clients: another server has to have it, if that is to be read instead."""

from collections.abc import Mapping
from dataclasses import replace

from ...protocol.cut import ONE, Cut
from ...protocol.errors import SwitchRefusedError
from ...protocol.gtid import parse_gtids
from ...store.cursor import Cursor, member_of
from ...store.cursors import Cursors
from ..source import Parser


class Given:
    """Of a single source."""

    _member = ONE

    def __init__(self, cursors: Cursors) -> None:
        """``cursors``: those of the destination, with its views."""
        self._cursors = cursors

    def boundary(self) -> Cursor | None:
        """Return the place after the last whole transaction in the ring; None before the stream has begun."""
        place = self._cursors.track.last_boundary()
        return None if place is None else self._of(place)

    def sample(self) -> bytes:
        """Return the last entries before that, by which servers without GTIDs are compared."""
        return self._cursors.track.sample()

    def ahead(self) -> Mapping[Cursor, int]:
        """Return the places with GTIDs of the clients that got more, in an earlier life, than the ring has."""
        ahead = [
            (client_id, place) for it in self._cursors.with_views for client_id, place in it.places.ahead().items()
        ]
        found = [(self._of(place), client_id) for client_id, place in ahead]
        return {place: client_id for place, client_id in found if place is not None and place.is_portable}

    def places(self) -> list[tuple[int, Cursor, bool]]:
        """Return the clients, with their places, and whether the log has what comes after these."""
        track, found = self._cursors.track, list[tuple[int, Cursor, bool]]()
        for served in self._cursors.with_views:
            for client_id in served.clients.ids:
                place = served.clients.cursor(client_id)
                own = None if place is None else self._of(place)
                if place is not None and own is not None:
                    found.append((client_id, own, track.is_logged(place)))
        return found

    def in_part(self, boundary: Cursor, parser: Parser) -> Cursor | None:
        """Return the place after a transaction of which clients were given a part; ``boundary`` is before it.

        None if there is none, or its GTID is unknown. ``parser`` has read it.
        """
        gtid = parser.status.gtid_in_part
        if not (boundary.gtid and gtid and self._is_given_beyond(boundary)):
            return None
        source, number = gtid
        gtids = parse_gtids(boundary.gtid)
        gtids.add(self._cursors.ring.gtid_sources[source][1], number)
        return replace(boundary, gtid=str(gtids))

    def _is_given_beyond(self, boundary: Cursor) -> bool:
        """Whether a client was given something of the source after a place."""
        place, member = boundary.position, self._member
        return place is not None and any(it.clients.has_given_beyond(place, member) for it in self._cursors.with_views)

    def _of(self, place: Cursor) -> Cursor | None:
        """Return the source's part of a place; None if the place is before its start."""
        return place


class GivenOfMember(Given):
    """Of a member of a group: of each place what that has of the member, with the GTIDs executed there."""

    def __init__(self, cursors: Cursors, member: str) -> None:
        super().__init__(cursors)
        self._member = member

    def sample(self) -> bytes:
        """Return nothing: the entries of all members are in one ring, and GTIDs are required."""
        return b""

    def in_part(self, boundary: Cursor, parser: Parser) -> Cursor | None:
        """See `Given.in_part`. Raises SwitchRefusedError if the GTID is unknown, as that of a large transaction is."""
        end = self._cursors.position_before(self._cursors.ring.next)
        place = end.places.get(self._member) if isinstance(end, Cut) else None
        if place is None or place == place.transaction:
            return None
        if parser.status.gtid_in_part is None and self._is_given_beyond(boundary):
            raise SwitchRefusedError(
                f"the transaction at {place} is larger than sluice.group.pool, and was delivered in part: switch again"
                " when the rest has come"
            )
        return super().in_part(boundary, parser)

    def _of(self, place: Cursor) -> Cursor | None:
        found = member_of(place, self._member) if isinstance(place.position, Cut) else None
        if found is not None and not found.gtid:
            raise SwitchRefusedError(
                f"no GTIDs are known at {found.position}, and the other server of a member is found by them only: set"
                " gtid_mode = ON at both servers"
            )
        return found
