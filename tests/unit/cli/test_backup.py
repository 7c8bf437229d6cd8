"""`sluice backup` and `sluice restore`: what is stored comes back, and a file from a stranger changes nothing."""

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.instance import audit
from sluice.instance.meta.file import FileMetaStore
from sluice.protocol.errors import ConfigError
from sluice.protocol.position import Position
from sluice.server.archive import BackupWriter, verify
from sluice.server.cli.backup import _add_log
from sluice.server.config import Configuration
from sluice.store.cursor import Changes, Cursor, StoredClient
from tests import commands

PLACE = Position.parse("101/bin.000001@1700000000:344:0")
CLIENT = StoredClient(1001, "shop\\..*", Cursor("bin.000001", 300, 1_700_000_000_000, 101, "", PLACE, PLACE))
SOURCE = (
    "canal.instance.master.address = 127.0.0.1:1\ncanal.instance.dbUsername = x\ncanal.instance.dbPassword = hidden\n"
)


class Installation:
    """A conf folder, and folders of its data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "conf"
        self.data = folder / "data" / "example"

    def configure(self) -> None:
        (self.conf / "example").mkdir(parents=True)
        main = "canal.destinations = example\ncanal.file.data.dir = ../data\nsluice.instance.store = mixed\n"
        (self.conf / "canal.properties").write_text(main)
        (self.conf / "example" / "instance.properties").write_text(SOURCE)

    async def fill(self) -> None:
        """Store something of each kind."""
        store = FileMetaStore(self.data.parent, "example", ("127.0.0.1", 1))
        epoch, _ = await store.open()
        await store.write(Changes({1001: CLIENT}), epoch)
        await store.close()
        (self.data / "skipped.jsonl").write_text('{"position": "x"}\n')
        (self.data / "log").mkdir()
        for name in ("00000000000000000001.log", "00000000000000000001.index", "lock"):
            (self.data / "log" / name).write_bytes(name.encode() * 100)
        database = sqlite3.connect(self.data / "schema.db")
        database.execute("CREATE TABLE versions (text)")
        database.execute("INSERT INTO versions VALUES ('kept')")
        database.commit()
        database.close()

    def run(self, *arguments: str, status: int = 0) -> str:
        done = commands.run(*arguments, "--conf", str(self.conf))
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def files(self) -> set[str]:
        return {str(it.relative_to(self.folder)) for it in self.folder.rglob("*") if it.is_file()}

    async def clients(self) -> tuple[int, list[StoredClient]]:
        store = FileMetaStore(self.data.parent, "example", ("127.0.0.1", 1))
        found = await store.open()
        await store.close()
        return found


@pytest.fixture
async def former(tmp_path: Path) -> Installation:
    made = Installation(tmp_path / "former")
    made.configure()
    await made.fill()
    return made


@pytest.fixture
def later(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "later")


@pytest.fixture
def backup(former: Installation, tmp_path: Path) -> Path:
    former.run("backup", "--to", str(tmp_path / "all.tar"))
    return tmp_path / "all.tar"


def read(path: Path) -> tuple[bytes, int]:
    """The content of a file, and its mode."""
    return path.read_bytes(), path.stat().st_mode & 0o777


async def test_what_was_stored_comes_back_with_a_greater_epoch(
    backup: Path, former: Installation, later: Installation
) -> None:
    assert read(backup)[1] == 0o600
    assert f"client 1001  {PLACE}" in later.run("backup", "--verify", str(backup))
    later.configure()
    assert f"would write to {later.data}" in later.run("restore", "--from", str(backup), "--dry-run")
    assert later.files() == {"conf/canal.properties", "conf/example/instance.properties"}
    assert "what it has acked since is delivered again" in later.run("restore", "--from", str(backup))
    epoch, clients = await later.clients()
    assert clients == [CLIENT]
    assert epoch > 500_000, "no batch of an earlier life has an id of this one"
    name = "00000000000000000001.log"
    assert read(later.data / "log" / name) == (name.encode() * 100, 0o600)
    with sqlite3.connect(later.data / "schema.db") as database:
        assert database.execute("SELECT text FROM versions").fetchall() == [("kept",)]
    former_files = former.files() - {"data/example/log/lock"}
    assert later.files() == former_files | {"data/example/audit.jsonl"}
    (change,) = audit.read(later.data / "audit.jsonl", 10)
    assert change.action == "restore"


async def test_a_folder_that_is_used_is_not_restored_to(backup: Path, former: Installation) -> None:
    before = read(former.data / "meta.dat")
    assert "exists: stop the server, and move it away" in former.run("restore", "--from", str(backup), status=2)
    assert read(former.data / "meta.dat") == before
    for path in (former.data / "meta.dat", former.data / "skipped.jsonl", former.data / "schema.db"):
        path.unlink()
    (former.data / "log" / "00000000000000000001.log").unlink()
    (former.data / "log" / "00000000000000000001.index").unlink()
    assert "is in use, or not empty" in former.run("restore", "--from", str(backup), status=2)


async def test_secrets_are_in_a_backup_only_if_they_are_asked_for(
    backup: Path, former: Installation, later: Installation, tmp_path: Path
) -> None:
    assert b"hidden" not in read(backup)[0]
    whole = tmp_path / "whole.tar"
    former.run("backup", "--to", str(whole), "--with-secrets", "--without-log")
    names = {it.name for it in verify(whole, lambda _: None).items}
    assert names >= {"conf/canal.properties", "conf/example/instance.properties", "data/example/meta.dat"}
    assert not any(name.startswith("log/") for name in names)
    later.run("restore", "--from", str(whole))
    assert read(later.conf / "example" / "instance.properties") == (SOURCE.encode(), 0o600)
    assert (await later.clients())[1] == [CLIENT]


def test_an_existing_file_is_not_replaced_and_a_failure_leaves_nothing(
    backup: Path, former: Installation, tmp_path: Path
) -> None:
    assert "exists: choose another name" in former.run("backup", "--to", str(backup), status=2)
    (former.data / "meta.dat").write_text("{")
    former.run("backup", "--to", str(tmp_path / "another.tar"), status=2)
    assert {it.name for it in tmp_path.iterdir()} == {"former", "all.tar"}


async def test_a_destination_is_backed_up_once_and_with_its_views(
    former: Installation, later: Installation, tmp_path: Path
) -> None:
    (former.conf / "part").mkdir()
    (former.conf / "part" / "instance.properties").write_text("sluice.instance.route = example\n")
    with (former.conf / "canal.properties").open("a") as file:
        file.write("canal.destinations = example,part\n")
    store = FileMetaStore(former.data.parent, "part", ("127.0.0.1", 1))
    epoch, _ = await store.open()
    await store.write(Changes({1002: replace(CLIENT, client_id=1002)}), epoch)
    await store.close()
    path = tmp_path / "named.tar"
    former.run("backup", "example", "example", "--to", str(path))
    shown = later.run("backup", "--verify", str(path))
    assert "client 1001  " in shown
    assert "client 1002  " in shown
    said = former.run("backup", "part", "--to", str(tmp_path / "part.tar"), status=2)
    assert "part is a view of example, and is backed up with it: name example" in said


def test_two_backups_to_one_file_do_not_mix(tmp_path: Path) -> None:
    path, data = tmp_path / "all.tar", tmp_path / "skipped.jsonl"
    data.write_bytes(b"x" * 100_000)
    with BackupWriter(path, lambda _: None) as first, BackupWriter(path, lambda _: None) as second:
        for it in (first, second):
            it.add("data/example/skipped.jsonl", data)
        first.finish({})
        with pytest.raises(ConfigError, match="exists: choose another name"):
            second.finish({})
    assert [it.bytes for it in verify(path, lambda _: None).items] == [100_000]
    assert {it.name for it in tmp_path.iterdir()} == {"all.tar", "skipped.jsonl"}


def test_a_file_of_the_log_that_is_compressed_while_it_is_copied_is_in_the_backup(
    former: Installation, tmp_path: Path
) -> None:
    log, name = former.data / "log", "00000000000000000001"

    def compress(_: int) -> None:
        """As the server does it: the compressed file is there before the other one goes."""
        for ending in ("index", "log"):
            if (path := log / f"{name}.{ending}").exists():
                path.rename(log / f"{name}.zst.{ending}")

    config = Configuration(former.conf, {}).instance("example")
    with BackupWriter(tmp_path / "all.tar", compress) as writer:
        _add_log(writer, config)
        names = {it.name for it in writer.finish({}).items}
    assert {f"log/example/{name}.zst.log", f"log/example/{name}.zst.index"} <= names


def test_a_file_that_is_cut_while_it_is_copied_is_named(tmp_path: Path) -> None:
    data = tmp_path / "skipped.jsonl"
    data.write_bytes(b"x" * (1 << 20))
    with (
        pytest.raises(ConfigError, match=r"skipped\.jsonl became shorter while it was copied: run the backup again"),
        BackupWriter(tmp_path / "all.tar", lambda _: os.truncate(data, 10)) as writer,
    ):
        writer.add("data/example/skipped.jsonl", data)
    assert {it.name for it in tmp_path.iterdir()} == {"skipped.jsonl"}


async def test_cursors_do_not_change_where_they_are_kept(backup: Path, later: Installation) -> None:
    later.configure()
    with (later.conf / "canal.properties").open("a") as file:
        file.write("sluice.instance.meta = memory\n")
    assert "set sluice.instance.meta = file" in later.run("restore", "--from", str(backup), status=2)
    assert "data/example/meta.dat" not in later.files()


# --- what a stranger may have made -----------------------------------------------------------------------------------

Change = Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]


def rewritten(backup: Path, change: Change) -> Path:
    """A copy of a backup with other items."""
    with tarfile.open(backup) as tar:
        items = [(it, (file.read() if (file := tar.extractfile(it)) else b"")) for it in tar]
    change(items)
    path = backup.with_name("changed.tar")
    with tarfile.open(path, "w") as tar:
        for info, data in items:
            tar.addfile(info, io.BytesIO(data))
    return path


def added(name: str, **values: object) -> Change:
    """Adds an item before all others."""

    def change(items: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info = tarfile.TarInfo(name)
        for field, value in values.items():
            setattr(info, field, value)
        items.insert(0, (info, b""))

    return change


def in_manifest(**values: object) -> Change:
    def change(items: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info, data = items.pop()
        data = json.dumps(json.loads(data) | values).encode()
        info.size = len(data)
        items.append((info, data))

    return change


def flip(items: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, data = items[0]
    items[0] = info, bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (added("../escape"), "is no name that a backup has"),
        (added("data/../../escape"), "is no name that a backup has"),
        (added("/etc/escape"), "is no name that a backup has"),
        (added("data/example/.hidden"), "is no name that a backup has"),
        (added("data/example/skipped.jsonl"), "is there twice"),
        (added("data/example/other.jsonl"), "is not in its manifest"),
        (added("data/example/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is not a plain file"),
        (added("data/example/link", type=tarfile.LNKTYPE, linkname="data/example/meta.dat"), "is not a plain file"),
        (added("data/example/fifo", type=tarfile.FIFOTYPE), "is not a plain file"),
        (added("data/example/folder", type=tarfile.DIRTYPE), "is not a plain file"),
        (flip, "is missing, or is not what was written"),
        (lambda items: items.pop(0), "is missing, or is not what was written"),
        (lambda items: items.pop(), "it has no manifest"),
        (lambda items: items.insert(0, items.pop()), "comes after the manifest"),
        (in_manifest(items="none"), "its manifest is wrong: see items"),
        (in_manifest(format=2), "in format 2; this version reads format 1"),
    ],
)
def test_a_backup_that_is_not_as_it_was_written_is_refused(backup: Path, change: Change, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        verify(rewritten(backup, change), lambda _: None)


def test_a_backup_whose_sizes_lie_or_that_was_cut_is_refused(backup: Path, tmp_path: Path) -> None:
    data = backup.read_bytes()
    liar = tarfile.TarInfo("data/example/large.jsonl")
    liar.size = 1 << 50
    for number, text in enumerate((liar.tobuf() + data, data[: len(data) // 2], data[:700], b"", b"no tar at all")):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(text)
        with pytest.raises(ConfigError, match="is not a whole backup of Sluice"):
            verify(path, lambda _: None)


def header(size: int) -> bytes:
    """The header of a header: tarfile reads as much as it says, before it gives an item."""
    made = tarfile.TarInfo("header")
    made.type, made.size = tarfile.XHDTYPE, size
    return made.tobuf(tarfile.GNU_FORMAT)


def test_headers_that_are_large_or_never_end_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "all.tar"
    path.write_bytes(header(1 << 40))
    os.truncate(path, 1 << 41)  # a file with a hole needs no room
    with pytest.raises(ConfigError, match="it has a header of 1099511627776 bytes"):
        verify(path, lambda _: None)
    path.write_bytes(header(0) * 10_000)
    with pytest.raises(ConfigError, match="is not a whole backup of Sluice: RecursionError"):
        verify(path, lambda _: None)


def test_a_manifest_has_a_limit(backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.server.archive.LARGEST_MANIFEST", 10)
    with pytest.raises(ConfigError, match="its manifest has"):
        verify(backup, lambda _: None)


def test_a_hostile_backup_changes_nothing(backup: Path, later: Installation) -> None:
    later.configure()
    changed = rewritten(backup, added("data/example/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"))
    later.run("restore", "--from", str(changed), status=2)
    assert not later.data.parent.exists()
