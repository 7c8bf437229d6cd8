"""What reads for the clients that take snapshots."""

import asyncio
import gc
import threading
from typing import Any

from sluice.instance.config import InstanceConfig
from sluice.instance.serving.snapshots import SnapshotTasks
from sluice.protocol.errors import SourceError
from sluice.store.snapshot import TableProgress
from tests.unit.test_cursors import CLIENT, make


class Waiting:
    """A reader whose source does not answer, until it is interrupted."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.interrupted = threading.Event()

    def describe(self, *_: object) -> None:
        self.asked.set()
        self.interrupted.wait(60)
        raise SourceError("the connection is closed")

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        """There is no connection."""


async def test_the_error_of_a_call_that_is_interrupted_is_not_reported_as_one_that_nobody_wants() -> None:
    cursors, _ = make()
    cursors.subscribe(CLIENT, now=0.0)
    cursors.snapshots.add(CLIENT, [TableProgress("shop", "items", "", 1)], 0)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    reader: Any = Waiting()
    config = InstanceConfig(destination="example")
    tasks = SnapshotTasks(config, cursors.snapshots, lambda: reader, lambda: None, asyncio.Semaphore(1))
    tasks.tend()
    await asyncio.to_thread(reader.asked.wait, 60)
    await tasks.close()
    assert reader.interrupted.is_set()
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []
