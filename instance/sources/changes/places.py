"""Where in a folder with files of changes the stream begins."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ....protocol.errors import BadPositionError, DecodeError, PurgedError, SluiceError, SourceChangedError, SourceError
from ....protocol.position import Position
from ....store.archive import Index, read_indexes
from ....store.cursor import Cursor
from .. import starts
from .config import ChangesConfig

FORMAT: Final = "pb"
"""Of the files that can be read."""


class Start(NamedTuple):
    """Where to read from."""

    number: int
    """Of the first file, among the indexes."""
    position: Position
    """What is before it is left out."""
    gtids: str
    """What was executed there, or at least before that file; empty if unknown."""


def find_files(config: ChangesConfig, after: int = 0) -> list[Index]:
    """Return the indexes of the files with a greater number.

    Raises SourceError when the folder has no file at all, or one that cannot be read.
    """
    try:
        found = read_indexes(config.folder, after)
    except (OSError, DecodeError) as error:
        raise SourceError(f"{config.place} cannot be read: {error}") from error
    if not found and not after:
        raise SourceError(f"{config.folder} has no whole file of changes yet: an output of type file writes them")
    for it in found:
        if it.format != FORMAT:
            raise SourceError(
                f"{config.folder / it.file} has the format {it.format}: only files of format {FORMAT} can be read"
            )
        try:
            Position.parse(it.from_position), Position.parse(it.to_position or it.from_position)
        except BadPositionError as error:
            raise SourceError(
                f"{config.folder / it.file} has places that cannot be read on, such as those of a group: {error}"
            ) from None
    return found


def end_of(files: Sequence[Index]) -> Position:
    """Return the place after the last change."""
    return Position.parse(next((it.to_position for it in reversed(files) if it.to_position), files[0].from_position))


def find_first(
    config: ChangesConfig, files: Sequence[Index], places: Sequence[Cursor | None]
) -> tuple[Start | None, dict[Cursor | None, SluiceError]]:
    """See `sluice.instance.sources.starts.find_first`."""
    oldest = Start(0, Position.parse(files[0].from_position), files[0].gtids_before)
    return starts.find_first(
        places, lambda place: oldest if place is None else find(config, files, place), lambda: oldest
    )


def find(config: ChangesConfig, files: Sequence[Index], place: Cursor) -> Start:
    """Find a place. Raises PurgedError and SourceChangedError when the files do not have it."""
    position = place.position
    if position is None:
        raise SourceChangedError(f"{place.journal} is not a place of {config.place}: name it as a position")
    before = False
    for number, it in enumerate(files):
        begin, end = Position.parse(it.from_position), Position.parse(it.to_position or it.from_position)
        if position.is_comparable(begin) and position < begin:
            before = True
            break
        is_before_end = position.is_comparable(end) and (position < end or (position == end and it is files[-1]))
        if is_before_end or position == begin:  # what follows may be of another source
            return Start(number, position, place.gtid or it.gtids_before)
    if before and number == 0:
        raise PurgedError(f"{config.place} begin at {files[0].from_position}, after {position}: changes are missing")
    if before:
        raise PurgedError(f"{config.place} lack what follows {position}, up to {files[number].from_position}")
    raise SourceChangedError(f"{position} is not a place of {config.place}, which end at {end_of(files)}")
