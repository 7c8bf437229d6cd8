"""What the Kafka target makes of a batch before anything is sent."""

from pathlib import Path

import pytest

from sluice.instance.properties import Property
from sluice.protocol.canal.entry_pb2 import EventType
from sluice.protocol.errors import MarkerError
from sluice.server.outputs.kafka.settings import KafkaSettings
from sluice.server.outputs.registry import make
from sluice.server.outputs.settings import Output
from sluice.server.outputs.target import Target
from sluice.store.batch import Batch
from tests.unit.entries import frame
from tests.unit.test_records import change, marker


def target(on_marker: str) -> Target:
    settings = KafkaSettings(on_marker=on_marker)  # type: ignore[arg-type]
    library = {"bootstrap.servers": Property("127.0.0.1:1", "test")}
    return make(Output("shop", "mq", settings, shared=False, library=library, folder=Path()), lambda: "")


def batch() -> Batch:
    """A row, a marker, a row."""
    row = change(EventType.INSERT, (None, {"id": "1"}))
    data = frame([row, marker(), row])
    return Batch(5, [memoryview(data)], "here", "there", 3, 2, len(data), 0)


def test_a_marker_stops_the_output_at_its_entry() -> None:
    with pytest.raises(MarkerError) as caught:
        target("stop").prepare(batch())
    assert caught.value.entry == 1


@pytest.mark.parametrize(("on_marker", "records", "skipped"), [("skip", 2, 1), ("send", 3, 0)])
def test_a_marker_is_left_out_and_named_or_sent_as_configured(on_marker: str, records: int, skipped: int) -> None:
    prepared = target(on_marker).prepare(batch())
    assert (prepared.records, len(prepared.skipped)) == (records, skipped)
    assert all("shop.goods" in text and "from here" in text for text in prepared.skipped)
