"""What an output of another package is: the interface `sluice.outputs`, version 1. See docs/howto/plugins.md.

A package names a class with what `OutputKind` has, in its entry points of the group ``sluice.outputs``. Everything that
such a class needs of Sluice can be imported from here.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from ...instance.plugins import OUTPUTS, VERSIONS
from ...instance.settings import FolderPath, setting
from .forms.api import Record
from .forms.settings import RecordSettings
from .settings import OutputSettings
from .target import DeliveryError, RejectedError

__all__ = [
    "API",
    "RECORDS",
    "Batch",
    "DeliveryError",
    "FolderPath",
    "Output",
    "OutputKind",
    "OutputSettings",
    "Record",
    "RecordSettings",
    "RejectedError",
    "setting",
]

API: Final = VERSIONS[OUTPUTS]
"""The version of this interface. Sluice uses classes whose ``api`` is this number, and refuses others."""
RECORDS: Final = "records"
"""The format of an output that takes records as a form lays them out."""


class Batch(NamedTuple):
    """Changes in the order of the stream: whole ones, but not always whole transactions."""

    data: bytes
    """The changes in the `OutputKind.format` of the output; empty with `RECORDS`."""
    records: Sequence[Record]
    """The records of the changes; empty with any other format."""
    from_: str
    """The position before the first change."""
    to: str
    """The position after the last change."""


class Output(Protocol):
    """The other side of an output. From `open` to `close` one thread makes all calls but `abandon`. They may wait.

    A method raises `DeliveryError` for what may pass by itself: Sluice closes the output and opens it again, after 0.2
    to 30 s. It raises `RejectedError` for what needs a person: Sluice reports an error, and tries again each 30 s.
    Anything else that is raised is tried again as a `DeliveryError` is, and logged as a bug of the package.
    """

    def open(self, epoch: int) -> str | None:
        """Connect. Return the place that the other side has; None if it has none, or keeps none.

        From here on no earlier `open` of this output, of any process, may write any more: its `send` fails. ``epoch``
        grows with each life of the destination, on all servers. With `OutputKind.exactly_once` an epoch that is less
        than that of another `open` is refused, by a `RejectedError`.
        """

    def send(self, batches: Sequence[Batch], place: str) -> None:
        """Return when the other side has all of the batches, durably and in this order.

        ``place`` is one line of text, which Sluice alone understands. With `OutputKind.exactly_once` the other side
        stores it as one with the batches: it has both, or nothing of both. There may be no batch, only a place. After
        an error it may have any number of the first batches, or, with `OutputKind.exactly_once`, all or none.
        """

    def abandon(self) -> None:
        """Let a waiting `open` or `send` end within two seconds, by an error. Any thread calls this; it never waits.

        Nothing is sent any more until the next `open`.
        """

    def close(self) -> None:
        """Disconnect, within two seconds; called after each `open`, also a failed one. It can be opened again."""

    def check(self) -> str:
        """Ask the other side whether it would take changes, and change nothing; return a line for `sluice check`.

        Called instead of `open`, and followed by `close`.
        """


class OutputKind(Protocol):
    """The class that an entry point of ``sluice.outputs`` names: it has these as attributes."""

    @property
    def api(self) -> int:
        """The version of this interface that the class is written for: 1."""

    @property
    def settings(self) -> type[OutputSettings]:
        """What can be configured: a subclass of `OutputSettings`, or of `RecordSettings` with the format `RECORDS`.

        It declares its keys by `setting`, as ``sluice.output.<name>.KEY``, with a type, a default and a docstring.
        """

    @property
    def format(self) -> str:
        """What `Batch.data` is: ``protobuf``, ``json``, ``ndjson``, or another of the SDK's formats; or `RECORDS`."""

    @property
    def exactly_once(self) -> bool:
        """Whether the other side stores the place as one with the batches, and refuses former owners.

        If not, Sluice keeps the place, and what was not confirmed before a crash comes again.
        """

    def __call__(self, settings: Any, identity: str) -> Output:
        """Make the output, without connecting. ``identity`` is ``destination/output``: no other output has it here.

        ``settings`` are of the class that `settings` names.
        """
