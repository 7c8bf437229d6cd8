"""The log on a model of a disk: a power loss takes any part of what is not synced, and leaves the rest in any order.

The writer of a destination and its store of cursors run, and all that they do to their folders is recorded. Then the
disk is made again as it may be after each step, many times, and both are opened there.
"""

import asyncio
import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final

import pytest

from sluice.instance.config import InstanceConfig
from sluice.instance.meta.file import FileMetaStore
from sluice.instance.serving import log as instance_log
from sluice.instance.serving.log import LogWriter, open_log
from sluice.protocol.gtid import MysqlGtidSet
from sluice.protocol.position import Position
from sluice.store.cursor import Changes, Cursor, StoredClient
from sluice.store.cursors import Cursors
from sluice.store.log import log as log_module
from sluice.store.log.files import EntriesReader, read_block
from sluice.store.log.log import Log, Piece, take
from sluice.store.ring import Kind
from tests.effort import THOROUGH
from tests.unit.test_log import SERVER, Source, entries

TRANSACTIONS: Final = 14
KEPT: Final = 8_000
"""Bytes that the log keeps."""
REAL: Final = SimpleNamespace(**vars(os))
"""What a disk does."""


# --- the model -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is done to a file or a folder, which have numbers; 0 is the folder that is there already."""

    kind: str
    node: int
    offset: int = 0
    """Of a write; the size after a truncate; for a sync, how many steps had been done when it began."""
    data: bytes = b""
    name: str = ""
    """In the folder."""
    child: int = 0
    """What has that name."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What is to survive when the power fails after this number of steps."""

    steps: int
    kind: str
    """``synced``: the log has all before the place; ``given``: so may the cursor of a client that is stored;
    ``saved``: so has the cursor that is stored."""
    place: Position


class Disk:
    """Records what the process does to the disk below a folder. What is there already is on the disk for certain."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps: list[Step] = []
        self.promises: list[Promise] = []
        self._nodes = {Path(): 0}
        self._folders = {0}
        self._next = 1
        self._open: dict[int, int] = {}
        self.is_full = False
        """Now and then a write or a new file finds no room."""
        self._attempts = 0
        for path in sorted(root.rglob("*")):
            self._link(path.relative_to(root), is_folder=path.is_dir())
            if path.is_file():
                self.steps.append(Step("write", self._nodes[path.relative_to(root)], 0, path.read_bytes()))
        self.steps += [Step("sync", node, len(self.steps)) for node in self._nodes.values()]

    def killed(self, steps: int, root: Path) -> "Disk":
        """The disk in another folder when the process was killed after `steps` steps: nothing is lost yet."""
        self.lay(steps, None, root)
        found = Disk(root)
        found.steps, found.promises = self.steps[:steps], [it for it in self.promises if it.steps <= steps]
        found._nodes, _ = _state(found.steps)
        found._folders, found._next = set(self._folders), self._next
        return found

    def promise(self, kind: str, place: Position | None) -> None:
        """Say what is to survive from now on: the transactions that are over at a place."""
        if place is not None:
            self.promises.append(Promise(len(self.steps), kind, place.transaction))

    def promised(self, kind: str, steps: int) -> Position | None:
        """The last place that was promised."""
        return max(
            (it.place for it in self.promises if it.steps <= steps and it.kind == kind),
            default=None,
            key=lambda it: it.order,
        )

    # What is recorded.

    def record(self, patch: pytest.MonkeyPatch) -> None:
        """Record from now on."""
        calls = {"open": self._do_open, "close": self._do_close, "dup": self._do_dup, "mkdir": self._do_mkdir}
        calls |= {"pwritev": self._do_pwritev, "ftruncate": self._do_ftruncate, "fsync": self._do_sync}
        calls |= {"fdatasync": self._do_sync, "unlink": self._do_unlink}
        calls |= {"rename": self._do_rename, "replace": self._do_rename}
        for name, call in calls.items():
            patch.setattr(os, name, call)

    def _do_open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        name = self._name(path) if Path(path).is_relative_to(self.root) else None
        is_new = name is not None and not Path(path).exists()
        if is_new and self._has_no_room():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fd: int = REAL.open(path, flags, *arguments, **options)
        self._open.pop(fd, None)
        if name is not None:
            if is_new:
                self._link(name, is_folder=False)
            elif flags & os.O_TRUNC:
                self.steps.append(Step("truncate", self._nodes[name], 0))
            self._open[fd] = self._nodes[name]
        return fd

    def _do_close(self, fd: int) -> None:
        self._open.pop(fd, None)
        REAL.close(fd)

    def _do_dup(self, fd: int) -> int:
        copy: int = REAL.dup(fd)
        self._open[copy] = self._open[fd]
        return copy

    def _do_pwritev(self, fd: int, pieces: list[Any], offset: int) -> int:
        data = b"".join(map(bytes, pieces))
        has_no_room = self._has_no_room()
        done: int = REAL.pwritev(fd, [data[: len(data) // 2] if has_no_room else data], offset)
        self.steps.append(Step("write", self._open[fd], offset, data[:done]))
        if has_no_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return done

    def _do_ftruncate(self, fd: int, size: int) -> None:
        REAL.ftruncate(fd, size)
        self.steps.append(Step("truncate", self._open[fd], size))

    def _do_sync(self, fd: int) -> None:
        node = self._open.get(fd)
        if node is None:  # what the folder is in
            return
        if node not in self._folders:
            data = Path(f"/proc/self/fd/{fd}").read_bytes()
            _, contents = _state([it for it in self.steps if it.node == node])
            if data != contents.get(node, b""):  # a file object has written it, whose calls are not recorded
                self.steps.append(Step("write", node, 0, data))
        self.steps.append(Step("sync", node, len(self.steps)))

    def _do_unlink(self, path: Any) -> None:
        REAL.unlink(path)
        self._unlink(self._name(path))

    def _do_rename(self, path: Any, target: Any) -> None:
        REAL.replace(path, target)
        node, name = self._unlink(self._name(path)), self._name(target)
        self._nodes[name] = node
        self.steps.append(Step("link", self._nodes[name.parent], name=name.name, child=node))

    def _do_mkdir(self, path: Any, *arguments: Any, **options: Any) -> None:
        REAL.mkdir(path, *arguments, **options)
        self._link(self._name(path), is_folder=True)

    def _has_no_room(self) -> bool:
        self._attempts += self.is_full
        return self.is_full and self._attempts % 13 == 0

    def _name(self, path: Any) -> Path:
        return Path(path).relative_to(self.root)

    def _link(self, name: Path, *, is_folder: bool) -> None:
        self._nodes[name] = self._next
        if is_folder:
            self._folders.add(self._next)
        self.steps.append(Step("link", self._nodes[name.parent], name=name.name, child=self._next))
        self._next += 1

    def _unlink(self, name: Path) -> int:
        node = self._nodes.pop(name)
        self.steps.append(Step("unlink", self._nodes[name.parent], name=name.name, child=node))
        return node

    # What may be left of it.

    def lay(self, steps: int, random_: random.Random | None, target: Path) -> None:
        """Make a folder as the disk may be when the power fails after `steps` steps.

        Of what no sync has followed any subset is there, each in part or whole, in any order. Without ``random_`` all
        of it is, as after kill -9.
        """
        done = self.steps[:steps]
        if random_ is not None:
            synced: dict[int, int] = {}
            for step in done:
                if step.kind == "sync":
                    synced[step.node] = max(step.offset, synced.get(step.node, 0))
            sure = [it for i, it in enumerate(done) if i < synced.get(it.node, 0)]
            unsure = [it for i, it in enumerate(done) if i >= synced.get(it.node, 0) and it.kind != "sync"]
            done = sure + _survivors(unsure, random_)
        nodes, contents = _state(done)
        for path, node in nodes.items():
            if node in self._folders:
                (target / path).mkdir(exist_ok=True)
            else:
                (target / path).write_bytes(contents.get(node, b""))


def _survivors(steps: list[Step], random_: random.Random) -> list[Step]:
    """Some of the steps, some of them in part, perhaps in another order."""
    loss = random_.choice((0.0, 0.2, 0.5, 0.8, 1.0))
    left = [_torn(it, random_) for it in steps if random_.random() >= loss]
    if random_.random() < 0.5:
        random_.shuffle(left)
    return left


def _torn(step: Step, random_: random.Random) -> Step:
    """A step as it was done, or a write of which a part is missing: its end, or what is zero instead."""
    if step.kind != "write" or random_.random() < 0.7:
        return step
    begin, end = sorted(random_.randint(0, len(step.data)) for _ in range(2))
    zeros = bytes(end - begin) + step.data[end:] if random_.random() < 0.5 else b""
    return replace(step, data=step.data[:begin] + zeros)


def _state(steps: list[Step]) -> tuple[dict[Path, int], dict[int, bytearray]]:
    """Which paths there are after some steps, each folder before what is in it, and what is in the files."""
    names: dict[int, dict[str, int]] = {}
    contents: dict[int, bytearray] = {}
    for step in steps:
        folder, content = names.setdefault(step.node, {}), contents.setdefault(step.node, bytearray())
        if step.kind == "write":
            content.extend(bytes(max(0, step.offset - len(content))))
            content[step.offset : step.offset + len(step.data)] = step.data
        elif step.kind == "truncate":
            del content[step.offset :]
            content.extend(bytes(step.offset - len(content)))
        elif step.kind == "link":
            folder[step.name] = step.child
        elif step.kind == "unlink" and folder.get(step.name) == step.child:
            del folder[step.name]
    paths = {Path(): 0}
    todo = [Path()]
    for path in todo:
        for name, child in names.get(paths[path], {}).items():
            paths[path / name] = child
            todo.append(path / name)
    return paths, contents


# --- what is recorded ------------------------------------------------------------------------------------------------


class Flow(Source):
    """A source from one of its transactions on; what is in each goes by its number."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.number = first
        self.track.begin(self.place(first))

    def put_next(self) -> None:
        first, *rows, last = entries_of(self.number)
        self.stage(first, Kind.TRANSACTION_BEGIN, 0, ends=False)
        for n, row in enumerate(rows):
            self.stage(row, Kind.ROW_DATA, n + 1, ends=False)
        self.stage(last, Kind.TRANSACTION_END, len(rows) + 1, ends=True)
        self.ring.put(self.staging)
        self.number += 1

    def pieces(self, start: int = 0) -> list[Piece]:
        found = []
        while start < self.ring.next:
            found.append(take(self.track, start, self.ring.next))
            start = found[-1].packed.stop
        return found


def entries_of(number: int) -> list[bytes]:
    return [b"begin", *(b"row %d of %d " % (row, number) * 8 for row in range(1 + number % 4)), b"end %d" % number]


def content(first: Position, last: Position) -> bytes:
    """The entries between two places."""
    return b"".join(b"".join(entries_of(it)) for it in range(first.begin // 100, last.begin // 100))


def executed(place: Position) -> str:
    last = place.begin // 100 - 1
    return f"{SERVER}:1-{last}" if last > 1 else f"{SERVER}:1" if last else ""


def cursors_in(root: Path) -> FileMetaStore:
    """The store of the cursors beside a log."""
    return FileMetaStore(root / "cursors", "shop", ("localhost", 3306))


def saved_in(root: Path) -> Position | None:
    """The cursor of the client that is stored, if there is one."""
    cursors = [it.cursor for it in cursors_in(root).read() if it.cursor is not None]
    return cursors[0].position if cursors else None


def config(root: Path, store: Any, most: int = 0) -> InstanceConfig:
    return InstanceConfig(
        destination="shop",
        store=store,
        store_dir=root,
        store_max_bytes=most,
        store_min_free=0,
        store_sync_period=0 if store == "file" else 1,
        store_compression="zstd",
    )


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and blocks are so small that a few transactions make many."""
    shrink(monkeypatch)


def shrink(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_module, "SMALLEST_FILE", 2000)
    patch.setattr(log_module, "BLOCK_SIZE", 250)
    patch.setattr(log_module, "SYNC_SIZE", 1500)
    patch.setattr(instance_log, "RESTING", 0.002)
    patch.setattr(instance_log, "AGAIN", 0.002)


async def live(disk: Disk, store: str, transactions: int) -> None:
    """Let the writer of a destination write further transactions after those that are there, and note what it promises.

    A client acknowledges at once all that it may be given, and its cursor is stored now and then.
    """
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        disk.record(patch)
        sync = Log.sync

        def promise_and_sync(log: Log) -> None:
            end = log.end
            sync(log)
            disk.promise("synced", end)

        def given() -> None:
            disk.promise("given", cursors.track.end)

        patch.setattr(Log, "sync", promise_and_sync)
        disk.promise("given", saved_in(disk.root))
        meta = cursors_in(disk.root)
        epoch, _ = await meta.open()
        configured = config(disk.root, store, KEPT)
        log = open_log(configured)
        disk.is_full = True
        flow = Flow(1 if log.end is None else log.end.begin // 100)
        start, last = flow.place(flow.number), flow.place(flow.number + transactions)
        cursors = Cursors(flow.ring, epoch=1, compile_filter=lambda _: None, catches_up=True)
        writer = LogWriter(log, cursors, configured, lambda _: None, given)
        cursors.begin(start, MysqlGtidSet.parse(executed(start)))
        writing = asyncio.create_task(writer.run())
        while flow.number < last.begin // 100:
            flow.put_next()
            if store == "mixed":
                given()
            writer.wake()
            if flow.number % 3:
                await until(lambda: log.end == flow.place(flow.number))
            elif (place := disk.promised("given", len(disk.steps))) is not None:
                with contextlib.suppress(OSError):  # the disk is full
                    await meta.write(
                        Changes({1001: StoredClient(1001, cursor=Cursor.at(place, executed(place)))}), epoch
                    )
                    disk.promise("saved", place)
        await until(lambda: log.end == last)
        await until(lambda: all(it.name.endswith(".zst.log") for it in log.extent.files[:-1]))
        writer.stop()
        await writing
        await meta.close()
        disk.is_full = False


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError


# --- what may be left ------------------------------------------------------------------------------------------------


def check(disk: Disk, steps: int, random_: random.Random | None, folder: Path, store: str) -> int:
    """Open log and cursors as they may be after a power loss, compare them with what was promised, and go on.

    Return how many transactions were left.
    """
    disk.lay(steps, random_, folder)
    synced, given = disk.promised("synced", steps), disk.promised("given", steps)
    saved, cursor = disk.promised("saved", steps), saved_in(folder)
    assert saved is None or (cursor is not None and saved <= cursor)
    assert cursor is None or (given is not None and cursor <= given)
    with open_log(config(folder, store)) as log:
        flow = Flow(1 if log.end is None else log.end.begin // 100)
        end = flow.place(flow.number)
        assert log.end in (None, end), "a whole transaction"
        assert log.end is not None or synced is None
        assert synced is None or synced <= end
        assert given is None or given <= end or store == "mixed"
        assert log.executed == executed(end)
        files = log.extent.files
        for i, file in enumerate(files):
            assert read(log.folder / file.name) == content(file.start, file.end), "as it was written, and no more"
            assert not i or file.continues == (file.start == files[i - 1].end), "a hole is known"
        log.begin(end, executed(end), config(folder, store).shape())
        ahead = 0 if given is None else max(0, (given.begin - end.begin) // 100)
        for _ in range(ahead + 2):
            flow.put_next()
        log.append(flow.pieces())
        whole = [file.start for i, file in enumerate(files) if not i or not file.continues]
        first = whole[-1] if whole else end  # what is before may go at the limit
        for place in (end, *(it for it in (given, cursor) if it is not None and first <= it)):
            assert log.covers(place), "what follows the cursor of the client is in the log again"
            assert entries(log, place).endswith(content(place, flow.place(flow.number)))
    shutil.rmtree(folder)
    return end.begin // 100 - 1


def read(path: Path) -> bytes:
    """The entries of a file."""
    found, offset = b"", 0
    fd = os.open(path, os.O_RDONLY)
    while (block := read_block(fd, offset, path)) is not None:
        with EntriesReader().read(fd, block, path) as part:
            found += part
        offset = block.end
    os.close(fd)
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A name for a folder in memory, where there is one thousand after another."""
    with TemporaryDirectory(dir="/dev/shm") as found:
        yield Path(found) / "after"


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power will be lost while the test looks."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


@pytest.fixture(params=["mixed", "file"])
def store(request: pytest.FixtureRequest) -> str:
    """Synced by period, and by transaction."""
    return str(request.param)


@pytest.fixture
def disk(store: str, tmp_path: Path) -> Disk:
    """What the life of a log has done to its disk: files were begun, compressed and taken away, and writes failed."""
    root = tmp_path / "disk"
    root.mkdir()
    found = Disk(root)
    asyncio.run(live(found, store, TRANSACTIONS))
    return found


def test_all_that_is_done_is_recorded(disk: Disk, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    disk.lay(len(disk.steps), None, copy)
    files = {it.relative_to(disk.root): it.read_bytes() for it in disk.root.rglob("*") if it.is_file()}
    assert {it.relative_to(copy): it.read_bytes() for it in copy.rglob("*") if it.is_file()} == files
    begun = {it.name for it in disk.steps if it.kind == "link"}
    gone = {it.name for it in disk.steps if it.kind == "unlink"}
    for end in (".log", ".index", ".zst.log", ".zst.index"):
        assert sum(1 for it in begun if it.endswith(end)) > 1
    assert {"00000000000000000001.log", "00000000000000000001.index"} <= gone
    assert len({it.place for it in disk.promises if it.kind == "synced"}) > TRANSACTIONS // 4


@pytest.mark.usefixtures("_quick")
def test_a_power_loss_takes_nothing_that_was_promised_and_leaves_whole_transactions(
    disk: Disk, store: str, folder: Path
) -> None:
    random_ = random.Random(7)
    left = set()
    for steps in range(len(disk.steps) + 1):
        for attempt in range(4) if THOROUGH else (steps % 4,):
            folder.mkdir()
            left.add(check(disk, steps, random_ if attempt else None, folder, store))
    assert len(left) > TRANSACTIONS // 2


@pytest.mark.usefixtures("_quick")
def test_nor_does_a_second_one_after_a_first_or_after_kill_9(
    disk: Disk, store: str, tmp_path: Path, folder: Path
) -> None:
    random_ = random.Random(8)
    for number, steps in enumerate(random_.sample(range(len(disk.steps)), 4 if THOROUGH else 2)):
        root = tmp_path / str(number)
        root.mkdir()
        if number % 2:
            disk.lay(steps, random_, root)
            second = Disk(root)
        else:
            second = disk.killed(steps, root)
        begin = len(second.steps)
        asyncio.run(live(second, store, 3))
        left = []
        for later in range(begin, len(second.steps) + 1):
            folder.mkdir()
            left.append(check(second, later, random_, folder, store))
        assert left[-1] >= left[0] + 3
