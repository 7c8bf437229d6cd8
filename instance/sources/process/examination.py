"""What the commands ask a destination whose source is another one."""

from collections.abc import Mapping, Sequence
from typing import Final, Self

from ....client_sdk.calls import Limits
from ....protocol.canal.packet_pb2 import Messages
from ....protocol.errors import ConnectionLostError, SluiceError, SourceError
from ....protocol.position import Position
from ....protocol.wire import varint
from ....store.cursor import Cursor
from ...quarantine import Item
from ...source import Reread
from ..examination import ServerlessExamination
from .config import ProcessConfig
from .parser import BEGIN, EXPIRY, LARGEST, Feeder, borrowed
from .pool import Worker
from .worker import Request

MOST: Final = 100_000
"""Batches of a transaction in which an entry is looked for."""


class ProcessExamination(ServerlessExamination):
    """The function, and the other destination: see `sluice.instance.source.Examination`."""

    exposure = ""
    protection = "a token: the server that serves the other destination says who may use it"

    def __init__(self, config: ProcessConfig) -> None:
        """Import the function, and ask the other destination, if its server runs. Raises SluiceError."""
        self._config: ProcessConfig = config
        worker = Worker(config)
        try:
            worker.start()
        finally:
            worker.end()
        self._client = Feeder(config, config.client_id)
        self._state = ""
        self._silence = ""
        try:
            self._state = str(self._client.destination()["state"])
        except ConnectionLostError as error:
            self._silence = str(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`: that is done."""
        del is_replaced

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        state = f", which is {self._state}" if self._state else ""
        return f"{self._config.processor} processes {self._config.place}{state}"

    def advice(self) -> list[str]:
        """See `sluice.instance.source.Examination.advice`."""
        if not self._silence:
            return []
        return [f"{self._config.place} was not asked, which is right while its server does not run: {self._silence}"]

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """The other destination says which tables it has while it runs."""
        del column
        return []

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        return f"{self._config.place}, at {'its end' if place is None else place.position}"

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`: only a start of the client could tell."""
        del places
        return {}

    def reread(self, item: Item) -> Reread:
        """Process the rows of an entry in quarantine again. Raises SluiceError."""
        data = self._entry(Position.parse(item.position))
        request = Request(data, is_single=False, failed={})
        worker = Worker(self._config.model_copy(update={"quarantine": True}))
        try:
            worker.send(request)
            result = worker.result(request)
        finally:
            worker.end()
        if result.error or result.failures:
            return Reread(b"", result.error or result.failures[0].reason)
        found = Messages.FromString(result.data)
        if not found.messages:
            return Reread(b"", f"{self._config.processor} leaves out its rows")
        positions = b"".join(map(varint, found.positions))
        return Reread(Messages(messages=found.messages).SerializeToString(), "", positions)

    def _entry(self, position: Position) -> bytes:
        """Return the entry at a place of the other destination, as a frame. Raises SluiceError."""
        with borrowed(self._config) as client:
            client.begin(str(position.transaction), EXPIRY)
            client.open_session()
            for _ in range(MOST):
                batch = client.get_without_ack(BEGIN, Limits(max_bytes=LARGEST))
                found = Messages.FromString(batch.data)
                for number, message in enumerate(found.messages):
                    place = found.positions[2 * number : 2 * number + 2]
                    if tuple(place) == (position.begin, position.n):
                        head = Messages(positions=place).SerializeToString()
                        return head + Messages(messages=[message]).SerializeToString()
                if not batch or not is_before(client.read(batch.to), position):
                    break
        raise SourceError(f"{self._config.place} has no entry at {position} any more")


def is_before(place: Position, other: Position) -> bool:
    """Whether a place is not after another one, as far as they have an order."""
    return not place.is_comparable(other) or place <= other
