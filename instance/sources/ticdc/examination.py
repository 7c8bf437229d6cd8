"""What the commands ask a topic of TiCDC without starting anything."""

from ....store.cursor import Cursor
from ..kafka.examination import KafkaExamination
from .start import WatermarkFinder


class TicdcExamination(KafkaExamination):
    """A connection to the brokers: see `sluice.instance.source.Examination`."""

    finder = WatermarkFinder

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`: the last messages show how TiCDC was configured."""
        del is_replaced
        self.finder(self._topic, self._config).end()

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        bounds = [it.bounds() for it in self._topic.parts()]
        offsets = ", ".join(f"{low} to {high}" for low, high in bounds)
        return f"{self._config.place}, {len(bounds)} partition{'s' * (len(bounds) > 1)}, offsets from {offsets}"

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        return f"{self._topic}, after the commit_ts {self.finder(self._topic, self._config).find(place).commit_ts}"
