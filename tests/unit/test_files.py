"""What is stored is for the user of the server alone, whatever the umask and whatever wrote it before."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.instance import files
from sluice.instance.files import make_private_folder
from sluice.instance.meta.file import FileMetaStore
from sluice.instance.quarantine import Item, Quarantine, path_of
from sluice.protocol.position import Position
from sluice.store.cursor import Changes, Cursor, StoredClient

ITEM = Item("101/binlog.000001@1700000000:4:2", "shop", "orders", 30, 1_700_000_001, 101, 80, "no such table", "00ff")
CLIENT = StoredClient(1001, "", Cursor("bin.000003", 4, 0, 101, "", Position("101", "bin.000003", 1_700_000_000, 4, 0)))


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """The permissions of all below a folder, in octal."""
    return {str(path.relative_to(folder)): f"{path.stat().st_mode & 0o777:o}" for path in folder.rglob("*")}


async def store(folder: Path) -> None:
    meta = FileMetaStore(folder, "shop", ("localhost", 3306), parse=True)
    epoch, _ = await meta.open()
    await meta.write(Changes({1001: CLIENT}), epoch)
    await meta.close()
    quarantine = Quarantine(path_of(folder, "shop"))
    quarantine.add(ITEM)
    quarantine.sync()


FILES = {"shop/meta.dat", "shop/meta.lock", "shop/parse.dat", "shop/quarantine.jsonl"}


async def test_files_and_the_folders_made_for_them_are_private(tmp_path: Path) -> None:
    await store(tmp_path / "a" / "b")
    assert modes(tmp_path / "a") == {"b": "700", "b/shop": "700"} | {f"b/{name}": "600" for name in FILES}


async def test_files_of_an_earlier_version_become_private(tmp_path: Path) -> None:
    await store(tmp_path)
    for name in FILES:
        (tmp_path / name).chmod(0o644)
    (tmp_path / "shop" / "meta.tmp").write_text("cut short")
    meta = FileMetaStore(tmp_path, "shop", ("localhost", 3306), parse=True)
    await meta.open()
    await meta.close()
    Quarantine(path_of(tmp_path, "shop"))
    assert modes(tmp_path / "shop") == {name.removeprefix("shop/"): "600" for name in FILES}


async def test_a_folder_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir(mode=0o750)
    await store(tmp_path)
    assert modes(tmp_path)["shop"] == "750"


def test_a_folder_that_a_killed_process_has_made_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    (tmp_path / "shop").mkdir()
    make_private_folder(tmp_path / "shop")
    assert synced == [tmp_path]


def test_a_folder_can_be_there_in_one_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "no", str(folder))

    monkeypatch.setattr(files, "sync_folder", refuse)
    (tmp_path / "shop").mkdir()
    make_private_folder(tmp_path / "shop")
    with pytest.raises(PermissionError):
        make_private_folder(tmp_path / "other")
