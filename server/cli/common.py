"""What the commands have in common: arguments, exit statuses, where they print and whom they call."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ...instance.properties import read_secret
from ..logging import escaped, printable
from .remote import DEFAULT_URL, Remote

NO = 1  # the answer is no: a check failed, a comparison found differences
USAGE = 2  # arguments or configuration are wrong
UNREACHABLE = 3  # source or server cannot be used
FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}  # what `shtab` completes, by shell
DIRECTORIES = {"bash": "_shtab_compgen_dirs", "zsh": "_files -/", "tcsh": "d"}
INTERRUPTED = 130  # as shells say of Ctrl-C

QUIET = 60.0  # seconds between two lines about progress where no terminal is


class Terminal(Console):
    """Where commands print: names and texts of sources and servers are shown as they are, and drive no terminal."""

    def __init__(self, **options: Any) -> None:
        """``options`` are those of `Console`."""
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with control characters spelled out."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, "\n"), segment.style)


def write_line(line: str) -> None:
    """Write a line for a program to the standard output, where it is seen at once; it drives no terminal."""
    sys.stdout.write((escaped(line, "\n\t") if sys.stdout.isatty() else line) + "\n")
    sys.stdout.flush()


out = Terminal()
log = Terminal(stderr=True)


def add_group(commands: Any, name: str, summary: str) -> Any:
    """Add a command that has commands; return where they are added."""
    group = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: Any, name: str, run: Callable[[Any], int], summary: str, description: str, *examples: str
) -> argparse.ArgumentParser:
    """Add a command; ``run`` gets its options and returns the exit status."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog="examples:\n" + "".join(f"  {example}\n" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def add_conf(command: Any) -> None:
    """Add the folder of the configuration: ``conf``."""
    folder = command.add_argument(
        "--conf",
        type=Path,
        default=Path(os.environ.get("SLUICE_CONF", "conf")),
        metavar="FOLDER",
        help="folder of canal.properties (default: $SLUICE_CONF, else conf)",
    )
    folder.complete = DIRECTORIES


def add_server(command: argparse.ArgumentParser) -> None:
    """Add how a running server is reached: ``url`` and ``ca``."""
    command.add_argument(
        "--url",
        default=os.environ.get("SLUICE_URL", DEFAULT_URL),
        help=f"the server (default: $SLUICE_URL, else {DEFAULT_URL}); the token comes from $SLUICE_TOKEN, or from"
        " the file that $SLUICE_TOKEN_FILE names",
    )
    authority = command.add_argument(
        "--ca", type=Path, metavar="FILE", help="PEM file of the authority that signed the server's certificate"
    )
    authority.complete = FILES  # type: ignore[attr-defined]  # as `shtab` reads it


def add_destination(command: argparse.ArgumentParser) -> None:
    """Add which destination is meant: ``destination``."""
    command.add_argument("destination", metavar="DESTINATION", help="name of the destination, as in canal.destinations")


def add_client(command: argparse.ArgumentParser) -> None:
    """Add whose batches are meant: ``destination`` and ``client``."""
    add_destination(command)
    command.add_argument("client", type=int, metavar="CLIENT", help="client id")


def positive(text: str) -> int:
    """Read a number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def amount(text: str) -> int:
    """Read a number from 0 up."""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return int(text)


def setting(text: str) -> tuple[str, str]:
    """Read a name and its value."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} has to be NAME=VALUE")
    return name, value


def remote_of(options: Any) -> Remote:
    """Return the server that the options of `add_server` name, with the token of the environment.

    Raises ConfigError.
    """
    return Remote(options.url, token=token(), ca=options.ca)


def token() -> str:
    """Return the token that the environment has, or names a file of; empty for none. Raises ConfigError."""
    if file := os.environ.get("SLUICE_TOKEN_FILE"):
        return read_secret(Path(file), "the token", "environment variable SLUICE_TOKEN_FILE")
    return os.environ.get("SLUICE_TOKEN", "")


def interrupt(_number: int, _frame: object) -> NoReturn:
    """Handle a signal as Ctrl-C."""
    raise KeyboardInterrupt


def discard_output() -> None:
    """Let what is still written to the standard output go nowhere: its reader has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Line:
    """What is said of something that takes long: a line that changes on a terminal, else one a minute."""

    def __init__(self, begin: str) -> None:
        self._said = time.monotonic()
        self._status = log.status(begin) if log.is_terminal else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def say(self, text: Callable[[], str]) -> None:
        """Say how it stands, if it is time for it."""
        if self._status:
            self._status.update(Text(text()))
        elif time.monotonic() - self._said > QUIET:
            self._said = time.monotonic()
            log.print(Text(text()))
