"""What the commands ask a topic of TiCDC without starting anything."""

from ..kafka.examination import KafkaExamination
from .start import WatermarkFinder


class TicdcExamination(KafkaExamination):
    """A connection to the brokers: see `sluice.instance.source.Examination`."""

    finder = WatermarkFinder

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`: the last messages show how TiCDC was configured."""
        super().check(is_replaced=is_replaced)
        self.finder(self._topic, self._config).end()
