"""The form of TDSQL's data subscription: a message a row."""

import json
from typing import ClassVar

from ....protocol.canal.records import Encoder
from ....protocol.errors import ConfigError
from ....protocol.tdsql.messages import TdsqlEncoder
from ..routing import Router
from ..settings import Output
from .encoding import AnyEncoder
from .form import Form, Subject, check_whole
from .settings import RecordSettings


class TdsqlForm(Form):
    """A record has a message, with the address of the source."""

    is_for_kafka: ClassVar[bool] = True

    def check(self, output: Output, settings: RecordSettings) -> None:
        """See `Form.check`."""
        super().check(output, settings)
        if output.is_merged:
            raise ConfigError(
                f"{output}: format tdsql has the address of one server in each message, and a group is several: use"
                " format flat"
            )
        check_whole(output, settings)

    def encoder(self, settings: RecordSettings, router: Router, limit: int, *, strict: bool) -> Encoder:
        """See `Form.encoder`."""
        del settings, router, strict
        return TdsqlEncoder(limit=limit)

    def begin_at(self, encoder: AnyEncoder, state: str, source: tuple[str, int]) -> None:
        """See `Form.begin_at`."""
        super().begin_at(encoder, state, source)
        assert isinstance(encoder, TdsqlEncoder)
        encoder.source = source

    def subject(self, value: bytes) -> Subject:
        """See `Form.subject`."""
        message = json.loads(value)
        return Subject(message["db"], message["table"])
