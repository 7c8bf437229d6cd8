"""What a record holds: the encoder of each form."""

import hashlib
import socket
from collections.abc import Mapping

from ....protocol.canal.records import Encoder, RecordEncoder
from ....protocol.tdsql.messages import TdsqlEncoder
from ....protocol.tidb.tags import LOGICAL_BITS
from ....protocol.tidb.transactions import TidbEncoder
from ....store.cursor import moved_at
from ..routing import Router
from ..settings import OnMarker, OnRefused
from ..target import DeliveryError
from .settings import Form, KafkaSettings, Key


def make_encoder(settings: KafkaSettings, router: Router, limit: int, *, strict: bool) -> Encoder:
    """Make the encoder of the configured form; ``limit``: bytes of a record, ``strict``: exactly as Canal."""
    if settings.form is Form.TDSQL:
        return TdsqlEncoder(limit=limit)
    if settings.form is Form.TIDB:
        return TidbEncoder(limit=limit)
    return RecordEncoder(
        settings.form.value,
        router.route,
        whole=router.is_whole,
        limit=limit,
        keyed=settings.key is Key.PK,
        split_key_updates=settings.split_key_updates,
        statements=settings.statements,
        markers=settings.on_marker is OnMarker.SEND,
        strict=strict,
    )


def begin_at(encoder: Encoder, state: str, source: tuple[str, int]) -> None:
    """Let an encoder go on where another one was in this `state`; ``source`` is the address of the source."""
    encoder.state = state
    if isinstance(encoder, TdsqlEncoder):
        encoder.source = source


def state_at(form: Form, known: Mapping[str, str], moved: str, choice: str) -> str:
    """Return the state in which an encoder goes on, by what was kept with the cursor; ``choice`` is `chosen` now.

    What is sent again gets the commit_ts that it had, as long as all of it comes again. It may not when the cursor was
    moved by hand, as the words ``moved`` say, or when something else is chosen.
    """
    state = known.get("state", "")
    if form is not Form.TIDB:
        return "" if moved else state
    if not moved and known.get("chosen", "") in {"", choice}:
        return state
    return beyond(state, max(int(known.get("sent", 0)), moved_at(moved) << LOGICAL_BITS))


def beyond(state: str, bound: int) -> str:
    """Return the state after which each commit_ts is greater than those that may have been sent, up to a bound.

    Else readers would leave out what they never had, where what is sent again is not what was sent.
    """
    return str(max(int(state or 0), bound))


def chosen(settings: KafkaSettings, shape: str, limit: int) -> str:
    """Return a digest of what decides which transactions are sent; see `Output.shape`.

    ``limit``: bytes of a record, which counts where larger transactions are left out.
    """
    largest = limit if settings.on_refused is OnRefused.SKIP else 0
    decides = settings.filter, settings.where, settings.on_refused, settings.on_marker, shape, largest
    return hashlib.sha256(repr(decides).encode()).hexdigest()[:16]


def resolve(source: tuple[str, int]) -> tuple[str, int]:
    """Return the IP address of a host, with the port; empty without a host. Raises DeliveryError."""
    host, port = source
    if not host:
        return source
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DeliveryError(f"the address of the source {host} is unknown: {error}") from None
    return str(found[0][4][0]), port
