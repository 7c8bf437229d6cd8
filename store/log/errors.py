"""What goes wrong with a log. No caller of the server meets these: readers go on at the source, and writers wait."""

from ...protocol.errors import SluiceError


class LogError(SluiceError):
    """The log on disk cannot be used, or not now."""


class DamagedLogError(LogError):
    """A part of the log is not what was written there."""
