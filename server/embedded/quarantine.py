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
    return [it for it, _, _ in _items(config)]


def _items(config: InstanceConfig) -> list[tuple[Item, Item, InstanceConfig]]:
    """Return what is in quarantine, each also as its source has it, and how that is read."""
    passes = config.table_filter().accepts if config.route else None
    return [
        (replace(it, position=f"{name}/{it.position}") if name else it, it, source)
        for name, source in config.main.sources().items()
        for it in read(path_of(source.file_data_dir, source.destination))
        if passes is None or passes(it.schema, it.table)
    ]


def decode_again(config: InstanceConfig, position: str | None) -> Iterator[tuple[Item, Reread]]:
    """Decode what is in quarantine, or the item at a position, with the tables as they are now.

    Raises BadParameterError if nothing is there at that position.
    """
    items = [it for it in _items(config) if position in (None, it[0].position)]
    if position and not items:
        raise BadParameterError(f"{position} is not in quarantine; sluice quarantine list shows what is", "position")
    for item, own, part in items[:MOST]:
        try:
            with examine(part) as source:
                found = source.reread(own)
        except (SourceError, SourceChangedError) as error:
            found = Reread(b"", str(error))
        yield item, found
