"""What a record holds: the encoder of each form."""

import socket

from ....protocol.canal.records import Encoder, RecordEncoder
from ....protocol.tdsql.messages import TdsqlEncoder
from ....protocol.tidb.tags import LOGICAL_BITS
from ....protocol.tidb.transactions import TidbEncoder
from ....store.cursor import moved_at
from ..routing import Router
from ..settings import OnMarker
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


def state_after_move(settings: KafkaSettings, state: str, moved: str) -> str:
    """Return what counts of a state when the cursor was moved by hand, as the words ``moved`` say.

    Of form tidb the last commit_ts does, and the time of the move, as what was on its way then may have a later one:
    what is sent again has to have greater ones, or its readers would leave it out.
    """
    return str(max(int(state or 0), moved_at(moved) << LOGICAL_BITS)) if settings.form is Form.TIDB else ""


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
