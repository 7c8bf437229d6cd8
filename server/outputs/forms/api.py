"""What a form of another package is: the interface `sluice.forms`, version 1. See docs/howto/plugins.md.

A package names a class with what `FormKind` has, in its entry points of the group ``sluice.forms``. A configuration
names it as ``sluice.output.<name>.format``. Everything that such a class needs of Sluice can be imported from here.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from ....instance.plugins import FORMS, VERSIONS
from ....protocol.canal.rows import Change, Row, decode_changes
from ....protocol.errors import UnfitChangeError

__all__ = ["API", "Change", "Form", "FormKind", "Record", "Row", "UnfitChangeError", "decode_changes"]

API: Final = VERSIONS[FORMS]
"""The version of this interface. Sluice uses classes whose ``api`` is this number, and refuses others."""


class Record(NamedTuple):
    """What a queue takes."""

    value: bytes
    key: bytes | None = None
    topic: str = ""
    """Empty: the topic of the output."""
    partition: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()
    entry: int = 0
    """The number of the (first) entry of the batch that it is made of, from 0. It never falls from record to record."""


class Form(Protocol):
    """Lays changes out into records. One thread makes all calls, and nothing is sent until a call returns."""

    def records(self, data: bytes) -> Iterable[Record]:
        """Return the records of a batch, in their order; ``data`` has the entries, as `decode_changes` reads them.

        The same data gives the same records each time, whatever came before: a batch comes again after an error, and
        the next one may begin elsewhere. Raises `UnfitChangeError` for an entry that it has no place for: then
        ``onRefused`` of the output decides. Whatever else is raised is an error of the output, and tried again.
        """


class FormKind(Protocol):
    """The class that an entry point of ``sluice.forms`` names: it has these as attributes."""

    @property
    def api(self) -> int:
        """The version of this interface that the class is written for: 1."""

    def __call__(self) -> Form:
        """Make the form."""
