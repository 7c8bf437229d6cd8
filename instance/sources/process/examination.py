"""What the commands ask a destination whose source is another one."""

from collections.abc import Mapping, Sequence
from typing import Self

from ....protocol.errors import ConnectionLostError, SluiceError
from ....store.cursor import Cursor
from ...quarantine import Item
from ...source import Reread
from ..examination import ServerlessExamination
from .config import ProcessConfig
from .parser import Feeder
from .pool import Worker


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
        """Refuse: what is to be done is to process it again."""
        raise self._refusal(
            f"decode {item.position} again: repair the function, and move the clients back to that position"
            " (sluice seek), so that it is processed again"
        )
