"""Files of changes in an object store: what moto's server does as S3 does it."""

import contextlib
import io
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from moto.server import ThreadedMotoServer

from sluice.server.outputs.api import DeliveryError, RejectedError
from sluice.server.outputs.file.settings import FileSettings
from sluice.server.outputs.file.target import FileTarget
from sluice.server.outputs.settings import Output
from sluice.server.replay import Archive, End
from sluice.store.archive import read_indexes
from sluice.store.remote import RemotePath
from tests.conftest import Database
from tests.effort import THOROUGH
from tests.faults.harness import Load, Sluice
from tests.faults.test_file_output import configure, output
from tests.kafka import ops, seen
from tests.proxy import Proxy
from tests.servers import Server
from tests.servers.server import free_port
from tests.unit.outputs.test_file_output import ROWS, deliver, run
from tests.unit.test_changes_source import TRANSACTIONS, Reading, write
from tests.waiting import eventually


class Bucket:
    """A bucket on a server that can be stopped; what it has outlives that."""

    def __init__(self, port: int) -> None:
        self.port = port
        # All servers of a process have the same objects.
        self.url = f"s3://archive/shop-{port}?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port}"
        self.folder = RemotePath.parse(self.url)
        self._server: ThreadedMotoServer | None = None

    def behind(self, port: int) -> RemotePath:
        """The folder as it is reached by another port."""
        return RemotePath.parse(self.url.replace(f"127.0.0.1:{self.port}", f"127.0.0.1:{port}"))

    def start(self) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def numbers(self, folder: RemotePath | None = None) -> list[int]:
        """The numbers of the rows in whole files, and of those that count in the part."""
        folder = folder or self.folder
        data = b"".join((folder / it.file).read_bytes() for it in read_indexes(folder))
        (place,) = (it for it in (folder / ".sluice").names() if it.startswith("place-"))
        part = json.loads((folder / ".sluice" / place).read_bytes())["part"]
        pieces = folder / ".sluice" / f"{part['number']:010}-{part['epoch']}.part"
        grown = b"".join((pieces / it).read_bytes() for it in sorted(pieces.names()))
        return [
            int(row["id"]) for line in (data + grown[: part["size"]]).splitlines() for row in json.loads(line)["data"]
        ]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket of the test's own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    found = Bucket(free_port())
    found.start()
    store, _ = pyarrow.fs.FileSystem.from_uri(f"{found.url}&allow_bucket_creation=true")
    store.create_dir("archive")
    yield found
    found.stop()


def target(bucket: Bucket, **settings: Any) -> FileTarget:
    given: dict[str, Any] = {"client_id": 1002, "folder": bucket.folder, "file_bytes": 1 << 16}
    known = FileSettings.model_validate(given | settings)
    return FileTarget(Output("shop", "copy", known, shared=True), known)


def test_each_change_is_there_once_although_owners_take_over_from_each_other(bucket: Bucket) -> None:
    memory = ""
    for epoch in range(1, 4):
        owner = target(bucket)
        memory = run(owner, epoch, memory, stop=4 * epoch * ROWS + ROWS)
    assert bucket.numbers() == list(range(13 * ROWS))
    names = (bucket.folder / ".sluice").names()
    assert sum(it.endswith(".part") for it in names) <= 1, names


class Killed(BaseException):
    """The process ended."""


@pytest.mark.extended
def test_a_kill_at_any_step_leaves_no_gap_and_no_double(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    count, at = 0, 0

    def counted(name: str) -> None:
        call = getattr(RemotePath, name)

        def step(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise Killed
            return call(*arguments)

        monkeypatch.setattr(RemotePath, name, step)

    for name in ("write", "unlink", "remove"):
        counted(name)
    stop = 5 * ROWS
    run(target(bucket), 1, stop=stop)
    for killed in range(1, count, 1 if THOROUGH else 4):
        folder = bucket.folder / str(killed)
        count, at = 0, killed
        with contextlib.suppress(Killed):
            run(target(bucket, folder=folder), 1, stop=stop)
        at = 0
        run(target(bucket, folder=folder), 2, stop=stop)
        assert bucket.numbers(folder) == list(range(stop)), f"killed at step {killed}"


@pytest.mark.extended
def test_each_change_is_there_once_although_the_server_is_killed(
    bucket: Bucket, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema, sluice = database(mariadb118), Sluice(tmp_path)
    configure(sluice, bucket.url, mariadb118, schema, sluice__output__copy__fileSeconds=1)
    load = Load(mariadb118, schema)

    def lines() -> list[bytes]:
        found = [(bucket.folder / it.file).read_bytes() for it in read_indexes(bucket.folder)]
        return b"".join(found).splitlines()

    with sluice.reading():
        with load:
            for _ in range(3):
                goal = load.committed + 40
                eventually(lambda: load.committed > goal)  # noqa: B023
                sluice.kill()
                sluice.start()
            load.finish(stop=True)
        eventually(lambda: any(b'"finished"' in it and b'"INSERT"' in it for it in lines()), "the end in a file")
    assert load.check(seen(ops(lines()))) == load.changes()


def test_a_former_owner_adds_nothing(bucket: Bucket) -> None:
    former = target(bucket)
    former.open("", "", 1)
    deliver(former, 0)
    run(target(bucket), 2, stop=2 * ROWS)
    with pytest.raises(DeliveryError, match="was taken over in epoch 2, and this server is in 1"):
        deliver(former, ROWS)
    assert bucket.numbers() == list(range(2 * ROWS))


def test_a_folder_of_another_output_is_refused(bucket: Bucket) -> None:
    run(target(bucket), 1, stop=ROWS)
    known = FileSettings(client_id=1002, folder=bucket.folder)
    with pytest.raises(RejectedError, match="is the folder of the output shop/copy: give this one a folder"):
        FileTarget(Output("shop", "other", known, shared=True), known).open("", "", 1)


def test_a_store_that_is_away_is_waited_for_and_nothing_is_lost(bucket: Bucket) -> None:
    output = target(bucket)
    memory = run(output, 1, stop=ROWS)
    bucket.stop()
    with pytest.raises(DeliveryError, match=r"s3://archive/shop-\d+ cannot be written"):
        deliver(output, ROWS)
    bucket.start()
    run(output, 1, memory, stop=5 * ROWS)
    assert bucket.numbers() == list(range(5 * ROWS))


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[Proxy]:
    """What can make the bucket's server silent."""
    with Proxy(("127.0.0.1", bucket.port)) as found:
        yield found


def test_a_store_that_is_silent_fails_each_call_in_time_and_nothing_is_lost(bucket: Bucket, proxy: Proxy) -> None:
    folder = bucket.behind(proxy.port)
    owner = target(bucket, folder=folder)
    memory = run(owner, 1, stop=ROWS)
    proxy.stall()
    for call in (lambda: deliver(owner, ROWS), lambda: target(bucket, folder=folder).open(memory, "", 1)):
        begun = time.monotonic()
        with pytest.raises(DeliveryError, match=r"s3://archive/shop-\d+ cannot be written: .*Timeout was reached"):
            call()
        assert time.monotonic() - begun < 15  # 10, and what a busy machine adds
    proxy.cut()
    proxy.resume()
    run(target(bucket, folder=folder), 1, memory, stop=5 * ROWS)
    assert bucket.numbers() == list(range(5 * ROWS))


@pytest.mark.extended
def test_status_names_a_store_that_is_silent_and_a_server_ends_meanwhile(
    bucket: Bucket, proxy: Proxy, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema, sluice = database(mariadb118), Sluice(tmp_path)
    configure(sluice, bucket.behind(proxy.port).url, mariadb118, schema, sluice__output__copy__fileSeconds=1)
    load = Load(mariadb118, schema)

    def lines() -> list[bytes]:
        return b"".join((bucket.folder / it.file).read_bytes() for it in read_indexes(bucket.folder)).splitlines()

    with sluice.reading():
        with load:
            for end in (lambda: None, sluice.stop, sluice.kill):
                goal = load.committed + 40
                eventually(lambda: load.committed > goal and lines(), lambda: output(sluice))  # noqa: B023
                proxy.stall()
                eventually(lambda: "Timeout was reached" in output(sluice)["error"], lambda: output(sluice), 40)
                assert output(sluice)["state"] == "retrying"
                end()
                proxy.cut()
                proxy.resume()
                if sluice.process.poll() is not None:
                    sluice.start()
            load.finish(stop=True)
        eventually(lambda: any(b'"finished"' in it and b'"INSERT"' in it for it in lines()), "the end in a file", 60)
        assert output(sluice)["state"] == "running"
    assert load.check(seen(ops(lines()))) == load.changes()


def test_a_source_and_a_replay_read_what_an_output_has_written(bucket: Bucket, tmp_path: Path) -> None:
    places = write(bucket.folder, compression="zstd")
    found = Reading(bucket.folder, file_data_dir=tmp_path)
    assert found.state == ("finished", "")
    assert found.places() == places
    assert len(list(Archive(bucket.folder).transactions(0, None, End()))) == TRANSACTIONS


def test_a_folder_has_what_was_written_to_it_until_that_is_deleted(bucket: Bucket) -> None:
    folder = bucket.folder / "deep"
    assert folder.names() == {}
    size = (4 << 20) + 1  # more than one piece
    (folder / "file").write(io.BytesIO(b"x" * size).read)
    (folder / "below" / "other").write(io.BytesIO(b"y").read)
    names = folder.names()
    assert names.keys() == {"file", "below"}
    assert abs(names["file"] - time.time()) < 600
    assert names["below"] == 0.0
    assert (folder / "file").read_bytes() == b"x" * size
    for _ in range(2):  # also what is not there
        (folder / "file").unlink()
        assert folder.names() == {"below": 0.0}
    for _ in range(2):
        folder.remove()
        assert folder.names() == {}


def test_old_files_are_deleted(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    output = target(bucket, max_age=1)
    run(output, 1, stop=8 * ROWS)
    before = [it.file for it in read_indexes(bucket.folder)]
    now = time.time() + 3700
    monkeypatch.setattr("time.time", lambda: now)
    output.idle()
    assert [it.file for it in read_indexes(bucket.folder)] == before[-1:]
    assert before[0] not in bucket.folder.names()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://key:secret@bucket/shop", "has credentials, and URLs are logged"),
        ("abfs://box@account.dfs.core.windows.net/shop?tenant_id=1&client_secret=hush", "has credentials"),
        ("abfs://box@account.dfs.core.windows.net/shop?sv=2022-11-02&Sig=hush", "has credentials"),
        ("ftp://host/shop", "is not a URL of an object store, which begins with s3://"),
        ("s3:///shop", "is not a URL of an object store"),
    ],
)
def test_urls_that_cannot_be_used_are_refused_without_their_secrets(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as error:
        FileSettings.model_validate({"client_id": 1, "folder": url})
    assert "secret" not in str(error.value)
    assert "hush" not in str(error.value)
