"""Destinations come, change and go with their files."""

import asyncio
import contextlib
import logging
import os
import shutil
from pathlib import Path

import pytest

from sluice.protocol.errors import ConfigError, SourceError
from sluice.server.config import Configuration
from sluice.server.scan import Scanner

SOURCE = "canal.instance.master.address = 127.0.0.1:3306\ncanal.instance.dbUsername = cdc\n"


class Recorder:
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: set[str] = set()
        self.released: set[str] = set()
        self.failure: Exception = SourceError("no route to host")
        self.started = asyncio.Event()

    async def start(self, destination: str) -> None:
        self.done.append(f"start {destination}")
        self.started.set()
        if destination in self.failing:
            raise self.failure

    async def reload(self, destination: str) -> None:
        self.done.append(f"reload {destination}")

    async def stop(self, destination: str) -> None:
        self.done.append(f"stop {destination}")

    def take(self) -> list[str]:
        done, self.done = self.done, []
        return done


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "canal.properties").write_text("canal.auto.scan.interval = 0.01\n")
    return tmp_path


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def scanner(conf: Path, recorder: Recorder) -> Scanner:
    return Scanner(Configuration(conf, {}), recorder)


def write(conf: Path, name: str, text: str = SOURCE) -> None:
    (conf / name).mkdir(exist_ok=True)
    (conf / name / "instance.properties").write_text(text)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


async def test_a_destination_starts_when_its_file_appears(conf: Path, scanner: Scanner, recorder: Recorder) -> None:
    await scanner.scan()
    (conf / "empty").mkdir()
    write(conf, "b")
    write(conf, "a")
    await scanner.scan()
    assert recorder.take() == ["start a", "start b"]
    await scanner.scan()
    assert recorder.take() == []


async def test_what_was_there_before_is_not_started_again(conf: Path, scanner: Scanner, recorder: Recorder) -> None:
    write(conf, "a")
    scanner.remember()
    await scanner.scan()
    assert recorder.take() == []


async def test_a_destination_is_reloaded_when_its_file_changes(
    conf: Path, scanner: Scanner, recorder: Recorder
) -> None:
    write(conf, "a")
    scanner.remember()
    write(conf, "a", SOURCE + "canal.instance.gtidon = true\n")
    await scanner.scan()
    assert recorder.take() == ["reload a"]


async def test_a_touched_file_counts_as_changed_and_other_files_do_not(
    conf: Path, scanner: Scanner, recorder: Recorder
) -> None:
    write(conf, "a")
    scanner.remember()
    (conf / "a" / "notes.txt").write_text("x")
    (conf / "canal.properties").write_text("")
    await scanner.scan()
    assert recorder.take() == []
    os.utime(conf / "a" / "instance.properties", ns=(0, 0))
    await scanner.scan()
    assert recorder.take() == ["reload a"]


async def test_a_destination_is_reloaded_when_a_file_with_its_password_changes_or_comes(
    conf: Path, recorder: Recorder
) -> None:
    write(conf, "a", SOURCE + f"canal.instance.dbPasswordFile = {conf}/password\n")
    configuration = Configuration(conf, {})
    scanner = Scanner(configuration, recorder)
    for content in ("old", "new"):
        with contextlib.suppress(ConfigError):  # it is not there yet
            configuration.instance("a")
        scanner.remember()
        (conf / "password").write_text(content)
        await scanner.scan()
        assert recorder.take() == ["reload a"]
        await scanner.scan()
        assert recorder.take() == []


@pytest.mark.parametrize("gone", ["a", "a/instance.properties"])
async def test_a_destination_stops_when_its_file_is_gone(
    conf: Path, scanner: Scanner, recorder: Recorder, gone: str
) -> None:
    write(conf, "a")
    scanner.remember()
    remove(conf / gone)
    await scanner.scan()
    assert recorder.take() == ["stop a"]


async def test_a_destination_that_another_process_had_starts_when_that_has_ended(
    conf: Path, scanner: Scanner, recorder: Recorder
) -> None:
    write(conf, "a")
    write(conf, "b")
    scanner.remember()
    recorder.released = {"a", "gone"}
    await scanner.scan()
    assert recorder.take() == ["start a"]


@pytest.mark.parametrize("failure", [SourceError("no route to host"), OSError("no route to host")])
async def test_a_destination_that_fails_hinders_no_other(
    conf: Path, scanner: Scanner, recorder: Recorder, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    write(conf, "a")
    write(conf, "b")
    recorder.failing, recorder.failure = {"a"}, failure
    await scanner.scan()
    assert recorder.take() == ["start a", "start b"]
    assert [
        (record.message, vars(record)["destination"]) for record in caplog.records if record.levelname == "ERROR"
    ] == [("no route to host", "a")]


async def test_all_go_on_when_the_folder_cannot_be_read(
    conf: Path, scanner: Scanner, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    write(conf, "a")
    scanner.remember()
    elsewhere = shutil.move(conf, conf.with_name("elsewhere"))
    await scanner.scan()
    assert "cannot scan the conf folder" in caplog.text
    shutil.move(elsewhere, conf)
    await scanner.scan()
    assert recorder.take() == []


async def test_it_scans_again_and_again(
    conf: Path, scanner: Scanner, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    task = asyncio.create_task(scanner.run())
    write(conf, "a")
    await asyncio.wait_for(recorder.started.wait(), 5)
    task.cancel()
    assert recorder.take() == ["start a"]
    assert "its file appeared" in caplog.text
