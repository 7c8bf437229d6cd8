"""Row events in quarantine, decoded again, for those who are to be given them and those who only look."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...instance.config import InstanceConfig
from ...instance.quarantine import Item, path_of, read
from ...instance.source import Reread
from ...instance.sources.registry import examine
from ...protocol.errors import BadParameterError, SourceChangedError, SourceError

MOST = 1000
"""How many are decoded for one call: what each client is still to be given is stored with its cursor."""


@dataclass(frozen=True, slots=True)
class Retried:
    """What has become of an item."""

    item: Item
    reason: str
    """Why it still cannot be decoded; empty if it could."""
    clients: list[int]
    """The clients that have passed its place, and are given its rows now."""


def listed(config: InstanceConfig) -> list[Item]:
    """Return what is in quarantine; a view has that of its main destination, of its own tables.

    The places of a group have the name of the member before them.
    """
    items = [
        replace(it, position=f"{name}/{it.position}") if name else it
        for name, source in config.main.sources().items()
        for it in read(path_of(source.file_data_dir, source.destination))
    ]
    if not config.route:
        return items
    passes = config.table_filter().accepts
    return [it for it in items if passes(it.schema, it.table)]


def decode_again(config: InstanceConfig, position: str | None) -> Iterator[tuple[Item, Reread]]:
    """Decode what is in quarantine, or the item at a position, with the tables as they are now.

    Raises BadParameterError if nothing is there at that position.
    """
    items = [it for it in listed(config) if position in (None, it.position)]
    if position and not items:
        raise BadParameterError(f"{position} is not in quarantine; sluice quarantine list shows what is", "position")
    for item in items[:MOST]:
        try:
            with examine(config) as source:
                found = source.reread(item)
        except (SourceError, SourceChangedError) as error:
            found = Reread(b"", str(error))
        yield item, found
