"""Makes the folder of an output the other side of it, and looks at it beforehand."""

import os
from collections.abc import Callable

from ....store.remote import RemotePath
from ..settings import Output
from ..target import Asked, Report
from .folder import free_bytes
from .settings import FileSettings
from .target import FileTarget


def make(output: Output, group: Callable[[], str]) -> FileTarget:
    """See `Making.make`."""
    del group
    assert isinstance(output.settings, FileSettings)
    return FileTarget(output, output.settings)


def examine(output: Output, report: Report, asked: Asked | None = None) -> None:
    """See `Making.examine`."""
    del asked
    settings = output.settings
    assert isinstance(settings, FileSettings)
    folder = settings.folder
    if isinstance(folder, RemotePath):
        try:
            folder.names()
        except OSError as error:
            report.wrong(output, f"{folder} cannot be reached: {error}")
        else:
            report.good(output, f"{folder} answers, and is written when the output starts; each change once")
        return
    try:
        free = free_bytes(folder)
        nearest = next(it for it in (folder, *folder.parents) if it.exists())
        is_usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    except OSError as error:
        report.wrong(output, f"{folder} cannot be used: {error}")
        return
    if not is_usable:
        report.wrong(output, f"{folder} cannot be written by this user: change its owner, or name another folder")
        return
    report.good(output, f"{folder} can be written, and {free >> 20} MiB are free; each change once")
