"""Makes the other side of an output of another package, and asks it beforehand."""

from collections.abc import Callable

from ....protocol.errors import SluiceError
from ..settings import Output
from ..target import Asked, Report
from .kind import kind_of
from .target import PluginTarget


def make(output: Output, group: Callable[[], str]) -> PluginTarget:
    """See `Making.make`."""
    del group
    return PluginTarget(output, kind_of(output.settings.type))


def examine(output: Output, report: Report, asked: Asked | None = None) -> None:
    """See `Making.examine`."""
    del asked
    try:
        report.good(output, PluginTarget(output, kind_of(output.settings.type)).check())
    except SluiceError as error:
        report.wrong(output, error)
