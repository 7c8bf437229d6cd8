"""A client in a process of its own that is led by commands.

A command is a line of words with tabs between them. It is answered by lines, the last of which is `ok`, or `error` and
a text.
"""

import subprocess
from collections.abc import Mapping, Sequence
from typing import Self


class ClientError(Exception):
    """What the client has thrown."""


class Led:
    """The process."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=environ,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def kill(self) -> None:
        """kill -9."""
        self.__exit__()

    def call(self, *words: object) -> list[list[str]]:
        """Run a command; the lines of its answer, each as its words. ClientError when the client has thrown."""
        self.begin(*words)
        return self.end()

    def begin(self, *words: object) -> None:
        """Run a command, and do not wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def end(self) -> list[list[str]]:
        """Wait for the answer to what was begun. ClientError when the client has thrown."""
        assert self._process.stdout is not None
        lines: list[list[str]] = []
        while True:
            line = self._process.stdout.readline()
            assert line, "the process is gone"
            lines.append(line.rstrip("\n").split("\t"))
            if lines[-1][0] == "error":
                raise ClientError(lines[-1][1])
            if lines[-1] == ["ok"]:
                return lines[:-1]
