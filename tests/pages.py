"""What a page of the docs shows: commands and Python blocks, each with its output; and a shell to run commands in."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[1]

# Debian has no `mysql` unless a client is installed; this does what the pages need of it.
MYSQL = f"""#!{sys.executable}
import argparse, pymysql
parser = argparse.ArgumentParser(add_help=False)
for option in "hPupe":
    parser.add_argument("-" + option)
parser.add_argument("-B", action="store_true")
given = parser.parse_args()
with pymysql.connect(host=given.h, port=int(given.P), user=given.u, password=given.p, autocommit=True) as connection:
    for statement in given.e.split(";"):
        cursor = connection.cursor()
        cursor.execute(statement)
        if cursor.description:
            for row in ([column[0] for column in cursor.description], *cursor.fetchall()):
                print(*("NULL" if value is None else value for value in row), sep="\\t")
"""


@dataclass(frozen=True, slots=True)
class Step:
    """What a reader does next, and what the page says that it prints; nothing is said of the output that is empty."""

    language: str
    """``console`` or ``python``."""
    code: str
    output: str


_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```\n(?:\n```(?:text)?\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def steps(page: str) -> Iterator[Step]:
    """Read a page, named as in the repository, from top to bottom."""
    shown = (ROOT / page).read_text()
    blocks = _BLOCK.findall(shown)
    assert len(blocks) == len(re.findall(r"^```(?:console|python)", shown, re.MULTILINE)), f"{page} has unread blocks"
    for language, text, output in blocks:
        if language == "python":
            yield Step(language, text, output)
        else:
            yield from (Step(language, *found) for found in _COMMAND.findall(text))


def shape(text: str) -> str:
    """What has to be equal: the text without numbers and without the width of columns."""
    return re.sub(r"[ ─━-]+", " ", re.sub(r"\d+", "0", text)).strip()


class Shell:
    """A shell in the repository, with a `mysql` in its path; what it started is stopped at the end."""

    def __init__(self, folder: Path, environ: Mapping[str, str], wait_for: Callable[[str], None]) -> None:
        """``folder``: for files of its own; ``wait_for(command)``: returns when a command in the background serves."""
        programs = folder / "programs"
        programs.mkdir()
        client = programs / "mysql"
        client.write_text(MYSQL)
        client.chmod(0o755)
        self._wait_for = wait_for
        self._process = subprocess.Popen(
            ["bash"],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.communicate()

    def run(self, command: str) -> str:
        """Run a command and return what it printed; one that fails is an error of the test."""
        assert self._process.stdin
        assert self._process.stdout
        time.sleep(0.5)  # no reader is faster
        background = command.endswith("&")
        if background:
            command = f"{command.removesuffix('&')} >/dev/null 2>&1 &"  # what it prints comes when it likes
        print(f"{command}\nstatus=$?; echo; echo = $status", file=self._process.stdin, flush=True)
        printed: list[str] = []
        while not (text := self._process.stdout.readline()).startswith("= "):
            assert text, f"the shell ended in: {command}\n{''.join(printed)}"
            printed.append(text)
        assert text == "= 0\n", f"{command} failed:\n{''.join(printed)}"
        if background:
            self._wait_for(command)
        return "".join(printed)
