"""Canal's forms: a FlatMessage in JSON, or a Packet of its protocol."""

import json

from ....protocol.canal.packet_pb2 import Packet
from ....protocol.canal.records import Encoder, RecordEncoder
from ....protocol.canal.rows import decode_changes
from ..routing import Router
from ..settings import OnMarker
from .form import Form, Subject, key_text
from .settings import Key, RecordSettings


class PacketForm(Form):
    """A record has a Packet with entries."""

    def encoder(self, settings: RecordSettings, router: Router, limit: int, *, strict: bool) -> Encoder:
        """See `Form.encoder`."""
        return RecordEncoder(
            settings.form,
            router.route,
            whole=router.is_whole,
            limit=limit,
            keyed=settings.key is Key.PK,
            split_key_updates=settings.split_key_updates,
            statements=settings.statements,
            markers=settings.on_marker is OnMarker.SEND,
            strict=strict,
        )

    def subject(self, value: bytes) -> Subject:
        """See `Form.subject`."""
        changes = decode_changes(Packet.FromString(value).body)
        change = next((it for it in changes if it.table), changes[0])
        rows = change.rows() if change.type in ("INSERT", "UPDATE", "DELETE") else []
        return Subject(change.schema, change.table, key_text(rows[0].key.items()) if rows else "")


class FlatForm(PacketForm):
    """A record has a FlatMessage with rows of one entry."""

    def subject(self, value: bytes) -> Subject:
        """See `Form.subject`."""
        message = json.loads(value)
        row = (message["data"] or [{}])[0]
        key = key_text((it, row.get(it)) for it in message["pkNames"] or ())
        return Subject(message["database"], message["table"], key)
