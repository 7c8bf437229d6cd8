"""Folders in an object store by their URLs, without a store: tests/integration/test_object_store.py has one."""

from pathlib import Path

import pytest

from sluice.store.archive import folder_of
from sluice.store.remote import RemotePath


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/shop?region=eu-central-1",
        "gs://bucket",
        "abfs://box@account.dfs.core.windows.net/shop?tenant_id=1",
        "abfss://account/box",
    ],
)
def test_a_url_of_a_store_is_a_folder(url: str) -> None:
    assert folder_of(url) == RemotePath(url)


def test_anything_without_a_scheme_is_a_path() -> None:
    assert folder_of("/data/changes") == Path("/data/changes")


@pytest.mark.parametrize("url", ["ftp://host/shop", "s3:///shop", "s3://bucket/shop#part", "bucket/shop"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not a URL of an object store, which begins with s3://"):
        RemotePath.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/shop",
        "s3://key@bucket/shop",
        "abfs://box:secret@account/shop",
        "abfs://box@account/shop?tenant_id=1&client_secret=hush",
        "abfs://box@account/shop?Sig=",
    ],
)
def test_a_url_with_credentials_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="has credentials, and URLs are logged"):
        RemotePath.parse(url)


def test_without_the_library_of_stores_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.store.remote.find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=r"needs pyarrow: pip install 'sluice-cdc\[arrow\]'"):
        RemotePath.parse("s3://bucket/shop")


def test_names_are_below_the_folder_and_none_shows_how_the_store_is_reached() -> None:
    folder = RemotePath.parse("s3://bucket/shop/?region=eu-central-1")
    file = folder / "2026" / "0000000007-12.pb.zst"
    assert [str(it) for it in (folder, file)] == ["s3://bucket/shop", "s3://bucket/shop/2026/0000000007-12.pb.zst"]
    assert (file.name, file.suffix) == ("0000000007-12.pb.zst", ".zst")
    assert (folder.name, folder.suffix) == ("shop", "")


def test_a_store_that_is_none_is_an_error_without_its_options() -> None:
    with pytest.raises(OSError, match="s3://bucket/shop cannot be used: "):
        RemotePath.parse("s3://bucket/shop?flavour=1").names()
