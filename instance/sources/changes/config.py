"""The settings of a folder with files of changes as a source."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from ...config import lower
from ...settings import AnyFolder, setting
from ..plugin.config import EntriesConfig


class ChangesConfig(EntriesConfig):
    """The configuration of a destination whose source is a folder with files of changes."""

    source_title: ClassVar[str] = "files of changes in a folder"
    skips_gaps: ClassVar[bool] = True

    source: Annotated[Literal["changes"], BeforeValidator(lower)] = setting("sluice.instance.source", "changes")

    # The source.

    folder: AnyFolder = setting("sluice.instance.changes.folder")
    """Folder that an output of `type = file` with `format = pb` writes, or a copy of it; also the URL of one in an
    object store. Positions, GTIDs and names of sources are those of the original source."""
    at_end: Annotated[Literal["wait", "end"], BeforeValidator(lower)] = setting("sluice.instance.changes.atEnd", "wait")
    """What to do at the end of the last file. `wait` waits for more files. `end` finishes: the destination is then
    `finished`, and its clients get the remaining changes."""

    @property
    def place(self) -> str:
        """See `InstanceConfig.place`."""
        return f"files of changes in {self.folder}"
