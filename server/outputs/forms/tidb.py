"""The form of TiDB's secondary binlog: a record a transaction or DDL, each with a commit_ts that is greater."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ....protocol.canal.records import Encoder
from ....protocol.errors import ConfigError
from ....protocol.tidb.entries import commit_ts_of
from ....protocol.tidb.secondary_pb2 import Binlog
from ....protocol.tidb.tags import LOGICAL_BITS
from ....protocol.tidb.transactions import TidbEncoder
from ....store.cursor import moved_at
from ..routing import Router
from ..settings import OnRefused, Output
from ..target import Prepared, server_of
from .form import Form, Progress, Subject, check_whole
from .settings import RecordSettings

logger = logging.getLogger(__name__)

AHEAD: Final = 10_000 << LOGICAL_BITS
"""How far the bound of what is sent is ahead of the last commit_ts: 10 s, so that it is seldom stored."""


class TidbProgress(Progress):
    """The last commit_ts, and a bound of those that may have been sent.

    What is sent again gets the commit_ts that it had, as long as all of it comes again. It may not when the cursor was
    moved by hand, when something else is chosen, or when another server is read, which may have lost transactions that
    were sent. Then each commit_ts is greater than the bound: readers would leave out what they never had.
    """

    def __init__(self, choice: str) -> None:
        """``choice``: a digest of what decides which transactions are sent."""
        super().__init__()
        self._choice = choice
        self._server = ""  # which the changes at the cursor were read from, as positions call it
        self._bound = 0  # no greater commit_ts is sent ...
        self._is_bound = False  # ... once this is stored

    def restore(self, known: Mapping[str, Any], moved: str) -> None:
        """See `Progress.restore`."""
        self._bound, self._is_bound = int(known.get("sent", 0)), False
        self._server = known.get("server", "")
        self.confirmed = known.get("state", "")
        if moved:
            self._go_beyond(max(self._bound, moved_at(moved) << LOGICAL_BITS), "its client was moved by hand")
        elif known.get("chosen", "") not in {"", self._choice}:
            self._go_beyond(self._bound, "other changes are chosen than before")

    def resume(self, state: str, server: str) -> str:
        """See `Progress.resume`."""
        if self._server not in ("", server):
            self.confirmed = state
            self._go_beyond(self._bound, f"{server} is read, and what was sent was read from {self._server}")
            state = self.confirmed
        self._server = server
        return state

    def before(self, batches: Sequence[Prepared]) -> bool:
        """See `Progress.before`."""
        # The last record: a transaction that goes on may have one already.
        values = next((values for it in reversed(batches) if (values := _last_values(it))), ())
        last = commit_ts_of(values[-1]) if values else 0
        if last <= self._bound and (self._is_bound or not last):
            return False
        self._bound, self._is_bound = max(self._bound, last + AHEAD), True
        return True

    def after(self, prepared: Prepared) -> None:
        """See `Progress.after`."""
        super().after(prepared)
        self._server = server_of(prepared.batch)

    def kept(self) -> dict[str, Any]:
        """See `Progress.kept`."""
        if not self._bound:
            return super().kept()
        return super().kept() | {"sent": str(self._bound), "chosen": self._choice, "server": self._server}

    def _go_beyond(self, bound: int, reason: str) -> None:
        """Let all that follows have a greater commit_ts than that."""
        self.confirmed = str(max(int(self.confirmed or 0), bound))
        if bound:
            logger.warning("what comes again gets a commit_ts after %s, for readers not to drop it: %s", bound, reason)


class TidbForm(Form):
    """A record has a transaction or DDL."""

    takes_transactions: ClassVar[bool] = True
    not_transactional: ClassVar[str] = (
        "TiDB's reader for Go waits 11 minutes for a record where Kafka has the end of a transaction"
    )
    is_for_kafka: ClassVar[bool] = True

    def check(self, output: Output, settings: RecordSettings) -> None:
        """See `Form.check`."""
        if not (settings.topic or settings.cluster_id):
            raise ConfigError(
                f"{output}: format tidb needs sluice.output.{output.name}.clusterId, for the topic <clusterId>_obinlog,"
                f" or sluice.output.{output.name}.topic"
            )
        if output.strict:
            raise ConfigError(
                f"{output}: format tidb cannot be used with canal.instance.parser.strictCanal, by which the rows of an"
                " XA transaction come before it is committed"
            )
        if output.is_merged:
            raise ConfigError(
                f"{output}: format tidb numbers transactions in one order for ever, and another server may merge those"
                " of a group in another order: use format flat"
            )
        if output.has_shared_filter:
            raise ConfigError(
                f"{output}: format tidb needs sluice.instance.sharedFilter = false: a client that subscribes would"
                " change which transactions come, and readers could drop some that they have not had"
            )
        check_whole(output, settings)

    def topic(self, output: Output, settings: RecordSettings) -> str:
        """See `Form.topic`."""
        del output
        return settings.topic or f"{settings.cluster_id}_obinlog"

    def encoder(self, settings: RecordSettings, router: Router, limit: int, *, strict: bool) -> Encoder:
        """See `Form.encoder`."""
        del settings, router, strict
        return TidbEncoder(limit=limit)

    def progress(self, settings: RecordSettings, shape: str, limit: int) -> Progress:
        """See `Form.progress`."""
        largest = limit if settings.on_refused is OnRefused.SKIP else 0
        decides = settings.filter, settings.where, settings.on_refused, settings.on_marker, shape, largest
        return TidbProgress(hashlib.sha256(repr(decides).encode()).hexdigest()[:16])

    def subject(self, value: bytes) -> Subject:
        """See `Form.subject`."""
        binlog = Binlog.FromString(value)
        table = binlog.dml_data.tables[0] if binlog.dml_data.tables else binlog.ddl_data
        return Subject(table.schema_name, table.table_name)


def _last_values(prepared: Prepared) -> Sequence[bytes]:
    """Return the values of the last records of a batch, in their order; none if it has no record."""
    return next((it.values for it in reversed(prepared.content) if it.values), ())
