"""Commands in forks end, print and are ended as processes of their own do."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests import commands


def test_a_command_prints_and_ends_with_its_status(tmp_path: Path) -> None:
    done = commands.run("check", "--conf", "conf", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sluice: conf")
    with pytest.raises(subprocess.CalledProcessError):
        commands.run("check", "--conf", "conf", cwd=tmp_path, check=True)


def test_its_environment_is_that_of_a_new_process(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "canal.properties").write_text("canal.destinations =\n")
    done = commands.run("check", cwd=tmp_path, environ={"SLUICE_CONF": "here", "COLUMNS": "200"})
    assert "here" in done.stdout + done.stderr
    assert commands.run("check", cwd=tmp_path).returncode == 2


def test_it_is_waited_for_and_killed(tmp_path: Path) -> None:
    (tmp_path / "canal.properties").write_text("canal.auto.scan = true\nsluice.http.port = 0\ncanal.port = 0\n")
    with (
        (tmp_path / "log").open("w") as log,
        commands.Command("serve", "--conf", str(tmp_path), stdout=log, stderr=log) as command,
    ):
        with pytest.raises(subprocess.TimeoutExpired):
            command.wait(0.1)
        assert command.poll() is None
        command.kill()
        assert command.wait(10) == -signal.SIGKILL
        command.terminate()  # does nothing
    with pytest.raises(subprocess.TimeoutExpired):
        commands.run("serve", "--conf", str(tmp_path), timeout=0.5)
