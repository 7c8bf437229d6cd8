"""A process that calls the function of a destination: it takes frames, and gives them back processed."""

import importlib
import inspect
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from .config import Added, read_columns
from .rows import LONGEST, Failure, Frame, Function

POLL: Final = 1.0
"""Seconds between two looks at whether the parent is there."""


class FunctionError(Exception):
    """A function cannot be used; the text says what is wrong with its name, or with itself."""


class Request(NamedTuple):
    """A frame to process."""

    data: bytes
    is_single: bool
    """Whether the function is called for one entry at a time, and a marker takes the place of one that fails."""
    failed: Mapping[int, str]
    """The entries for which it is not called again, and why."""


class Result(NamedTuple):
    """What became of it."""

    data: bytes = b""
    failures: tuple[Failure, ...] = ()
    error: str = ""
    """Why there is none; empty if there is."""


def load(name: str) -> Function:
    """Import a function. Raises FunctionError."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise FunctionError(
            f"there is no module {error.name!r} for {sys.executable}: install its package there, or set PYTHONPATH"
        ) from None
    except BaseException as error:
        raise FunctionError(f"its module cannot be imported: {describe(error)}") from error
    if not callable(found):
        raise FunctionError(f"module {module} has no function {attribute!r}")
    if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
        raise FunctionError("it is asynchronous: write a plain function")
    try:
        inspect.signature(found).bind([])
    except (TypeError, ValueError) as error:
        raise FunctionError(f"it has to take one argument, a list of rows: {error}") from None
    return found  # type: ignore[no-any-return]


def describe(error: BaseException) -> str:
    """Return what an error says, not long, and as text that UTF-8 can have: it goes into entries and statuses."""
    return f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()[:LONGEST]


def serve(parent: Connection, name: str, columns: str) -> None:
    """Process frames until the parent has gone."""
    try:
        function = load(name)
    except FunctionError as error:
        parent.send(str(error))
        return
    parent.send("")
    added = read_columns(columns)
    while True:
        request: Request = parent.recv()
        try:
            parent.send(_process(parent, request, function, added))
        except (MemoryError, RecursionError) as error:
            parent.send(Result(error=describe(error)))


def _process(parent: Connection, request: Request, function: Function, added: Added) -> Result:
    frame = Frame(request.data, added)
    numbers = frame.numbers()
    if not request.is_single:
        try:
            frame.process(numbers, function)
        except BaseException as error:  # noqa: BLE001  it may even ask the process to end
            return Result(error=describe(error))
        return Result(frame.data())
    for number in numbers:
        parent.send(number)  # if this process ends, or is ended, that is why
        reason = request.failed.get(number, "")
        if not reason:
            try:
                frame.process([number], function)
            except BaseException as error:  # noqa: BLE001  as above
                reason = describe(error)
        if reason:
            frame.fail(number, reason)
    return Result(frame.data(), tuple(frame.failures))


def main(descriptor: str, name: str, memory: str, columns: str) -> None:
    """Run the process; it ends with its parent, even while the function runs.

    Its arguments are texts: of the descriptor of its pipe, the function, MiB, and the columns that may be added.
    """
    limit = int(memory) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    with Connection(int(descriptor)) as connection:
        try:
            serve(connection, name, columns)
        except (EOFError, OSError):  # the parent has gone, or has no more use for it
            return


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)
