"""What of a ring is in the log when the disk was full and the writer is told to stop."""

import asyncio
from pathlib import Path

import pytest

from sluice.instance.config import InstanceConfig
from sluice.instance.serving import log as instance_log
from sluice.instance.serving.log import LogWriter
from sluice.store.cursors import Cursors
from sluice.store.log import log as log_module
from sluice.store.log.files import write_at
from tests.unit.test_log import Source, entries, opened, written
from tests.waiting import soon

CONFIG = InstanceConfig(destination="shop", store="mixed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "log"
    found.mkdir()
    return found


@pytest.mark.parametrize("room_comes", ["before the stop", "after the stop"])
async def test_a_writer_that_is_stopped_while_the_disk_is_full_leaves_no_hole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, room_comes: str
) -> None:
    is_full = True
    states: list[str] = []

    def write(fd: int, pieces: list[bytes], offset: int) -> int:
        if is_full and offset:  # the head of the file is there
            raise OSError(28, "No space left on device")
        return write_at(fd, pieces, offset)

    monkeypatch.setattr(log_module, "write_at", write)
    monkeypatch.setattr(instance_log, "AGAIN", 0.1)
    source = Source()
    cursors = Cursors(source.ring, epoch=1, compile_filter=lambda _: None, catches_up=True)
    log = opened(folder)
    writer = LogWriter(log, cursors, CONFIG, states.append, lambda: None)
    cursors.begin(source.place(1), None)
    writing = asyncio.create_task(writer.run())
    source.put(1)
    writer.wake()
    await soon(lambda: bool(states))
    source.put(1)
    is_full = room_comes == "after the stop"
    writer.stop()
    await writing
    monkeypatch.undo()
    with opened(folder) as log:
        assert entries(log, source.place(1)) == (b"" if is_full else written(1, 2))
    assert states[0] == "the log cannot be written: [Errno 28] No space left on device"
