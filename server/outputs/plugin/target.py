"""An output of another package, as a delivery uses a target."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from ....protocol.errors import SluiceError
from ....protocol.formats import FORMATS
from ....store.batch import Batch
from .. import api
from ..forms.encoding import AnyEncoder, AnyRecords, PluginRecords, encode
from ..forms.registry import form_of, rules_of
from ..forms.settings import RecordSettings
from ..kept import Kept, memory_of, read_memory, resume, seek_advice
from ..markers import without_markers
from ..routing import Router
from ..settings import Output
from ..target import DeliveryError, Place, Prepared, RejectedError
from .worker import Worker

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
LARGEST_RECORD = 1 << 30
LARGEST_PLACE = 16 << 20
"""Bytes of a record, and characters of a place."""
ASKING = 10.0
"""Seconds after which a check is abandoned."""
ENDING = 0.25
"""Seconds for which the end of `abandon` is waited for before the next `open`."""
LONGEST_LINE = 1000
"""Characters of what it says of itself."""


class PluginTarget:
    """See `Target`, and `sluice.server.outputs.api` for what it calls."""

    trouble = ""
    statistics: Mapping[str, float] = {}
    takes_transactions = False
    is_ahead = False

    def __init__(self, output: Output, kind: api.OutputKind) -> None:
        """Make it, without connecting. Raises DeliveryError when that fails."""
        self._output = output
        self.keeps_place = kind.exactly_once
        self._moved = ""
        self._epoch = 0
        self._encoder: AnyEncoder | None = None
        self._router: Router | None = None
        settings = output.settings
        if isinstance(settings, RecordSettings) and kind.format == api.RECORDS:
            self._router = Router(rules_of(output, settings))
            form = form_of(settings.form)
            self._encoder = form.encoder(settings, self._router, LARGEST_RECORD, strict=output.strict)
        else:
            self._format = next(it for it in FORMATS if it.name == kind.format)
        self._worker: Worker | None = None
        self._abandoning: threading.Thread | None = None
        self._made = self._guarded(lambda: kind(settings, f"{output.destination}/{output.name}"))

    def check(self) -> str:
        """Ask the other side. Raises SluiceError."""
        self._begin()
        timer = threading.Timer(ASKING, self.abandon)
        timer.daemon = True
        timer.start()
        try:
            text = self._call(self._made.check)
        finally:
            self.close()
            timer.cancel()
        once = "each change once" if self.keeps_place else "changes may come again after a crash"
        if not self.keeps_place and self._output.shared:
            once += ", and a server that has lost the destination may send for a moment"
        return f"{str(text)[:LONGEST_LINE]}; {once}"

    # --- the calls of a delivery

    def open(self, memory: str, moved: str, epoch: int) -> Place | None:
        """See `Target.open`. The place that the other side has counts as that of Kafka's topic does."""
        self._epoch = epoch
        self._begin()
        text = self._call(self._made.open, epoch)
        if not self.keeps_place:
            return None
        if text is not None and (not isinstance(text, str) or len(text) > LARGEST_PLACE):
            raise RejectedError(f"its place is no text, or has more than {LARGEST_PLACE} characters; {self._advice}")
        try:
            found = Kept.parse(text) if text else None
        except ValueError as error:
            raise RejectedError(f"its place is {error}; {self._advice}") from None
        known = read_memory(memory, moved)
        place, self._moved = resume(found, known, epoch, where="the other side", advice=lambda: self._advice)
        self.send((), place)
        return place

    def prepare(self, batch: Batch) -> Prepared:
        """See `Target.prepare`."""
        if self._encoder is not None and self._router is not None:
            parts, skipped = encode(self._encoder, batch, self._output.settings)
            records = [it for part in parts for it in _records(part, self._router.topics)]
            if reason := next((self._router.wrong[it.topic] for it in records if it.topic in self._router.wrong), ""):
                raise RejectedError(reason, batch.from_)
            size = sum(len(it.value) for it in records)
            return Prepared(batch, api.Batch(b"", records, batch.from_, batch.to), len(records), size, skipped)
        batch, skipped = without_markers(batch, self._output.settings.on_marker)
        data = b"".join(self._format.encode(batch, self._output.strict)) if batch.slices else b""
        return Prepared(batch, api.Batch(data, (), batch.from_, batch.to), 1, len(data), skipped)

    def send(self, batches: Sequence[Prepared], place: Place | None) -> None:
        """See `Target.send`."""
        text = str(Kept(place, self._epoch, self._moved)) if self.keeps_place else ""
        if len(text) > LARGEST_PLACE:
            raise RejectedError(f"its place has {len(text)} characters, more than {LARGEST_PLACE}: GTID sets are huge")
        self._call(self._made.send, [it.content for it in batches], text)

    def memory_before(self, batches: Sequence[Prepared]) -> str | None:
        """See `Target.memory_before`: nothing."""
        del batches
        return None

    def memory_after(self, prepared: Prepared) -> str:
        """See `Target.memory_after`."""
        del prepared
        return memory_of(self._moved) if self.keeps_place else ""

    def idle(self) -> None:
        """See `Target.idle`: nothing is due."""

    def abandon(self) -> None:
        """See `Target.abandon`. The event loop does not wait for the package."""
        if self._worker is not None:
            self._worker.abandon()

        def run() -> None:
            with contextlib.suppress(SluiceError):  # it was logged, and ends nothing
                self._guarded(self._made.abandon)

        if self._abandoning is None or not self._abandoning.is_alive():
            self._abandoning = threading.Thread(target=run, name=f"abandon {self._output}", daemon=True)
            self._abandoning.start()

    def losses(self) -> list[str]:
        """See `Target.losses`: nothing is asked again."""
        return []

    def close(self) -> None:
        """See `Target.close`. What fails here was logged, and ends nothing."""
        if self._worker is not None and not self._worker.is_closed:
            with contextlib.suppress(SluiceError):
                self._call(self._made.close)
            self._worker.close()

    # --- inside

    @property
    def _advice(self) -> str:
        return seek_advice(self._output.destination, self._output.client_id)

    def _begin(self) -> None:
        """Make the thread of the next calls. Raises DeliveryError while a call goes on that was abandoned."""
        if self._worker is not None and not self._worker.has_ended:
            raise DeliveryError("a call of its package still goes on, although it was abandoned")
        if self._abandoning is not None:  # it would abandon what is opened now
            self._abandoning.join(ENDING)
            if self._abandoning.is_alive():
                raise DeliveryError("its package still goes on abandoning: a call of `abandon` never waits")
        self._worker = Worker(f"call {self._output}")

    def _call(self, call: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Call what the package has in its thread. Raises as `_guarded`."""
        if self._worker is None or self._worker.is_closed:
            raise DeliveryError("it is not open")
        return self._worker.call(lambda: self._guarded(call, *arguments, **more))

    def _guarded(self, call: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Call what the package has. Whatever it raises is an error of this output only."""
        try:
            return call(*arguments, **more)
        except SluiceError:
            raise
        except BaseException as error:  # it may even ask the process to end
            what = f"output type {self._output.settings.type}"
            logger.exception("%s has failed", what, extra={"destination": self._output.destination})
            raise DeliveryError(f"{what} has failed: {type(error).__name__}: {str(error)[:LONGEST_LINE]}") from error


def _records(part: AnyRecords, topics: Sequence[str]) -> Iterator[api.Record]:
    keys = part.keys or [None] * len(part.values)
    headers = part.headers if isinstance(part, PluginRecords) else [()] * len(part.values)
    columns = zip(part.values, keys, part.topics, part.partitions, headers, part.entries, strict=True)
    for value, key, topic, partition, texts, entry in columns:
        yield api.Record(value, key, topics[topic], partition, texts, entry)
