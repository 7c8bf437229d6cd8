"""A destination whose source is a topic of Kafka, as a test reads it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sluice.instance.sources.kafka.config import TopicConfig
from sluice.protocol.canal.rows import Change, decode_changes
from sluice.server.embedded import EmbeddedServer
from tests.reading import embedded
from tests.servers.kafka import Kafka


def keys(kafka: Kafka, topic: str, folder: Path, **settings: Any) -> dict[str, Any]:
    """What configures the destination ``example``."""
    return {
        "sluice.instance.kafka.brokers": kafka.servers,
        "sluice.instance.kafka.topic": topic,
        "canal.instance.destination": "example",
        "canal.file.data.dir": folder,
        **settings,
    }


@asynccontextmanager
async def serving(
    kind: type[TopicConfig], kafka: Kafka, topic: str, folder: Path, **settings: Any
) -> AsyncIterator[EmbeddedServer]:
    """Run the destination ``example``, and subscribe."""

    async with embedded(
        kind.model_validate(keys(kafka, topic, folder, **settings), context={"folder": folder})
    ) as server:
        await server.subscribe("example", 1001)
        yield server


async def take(server: EmbeddedServer, count: int, *, ack: bool = True) -> list[Change]:
    """Return the next changes, without the ends of transactions."""
    found: list[Change] = []
    while len(found) < count:
        batch = await server.get_without_ack("example", 1001, timeout=10)
        assert batch.entries, found
        found += [it for it in decode_changes(b"".join(batch.slices)) if it.entry_type == "ROWDATA"]
        if ack:
            await server.ack("example", 1001, batch_id=batch.batch_id)
    return found


def ids(changes: list[Change]) -> list[int]:
    """Return the ids of the rows that are there after the changes."""
    return [it.after["id"] for change in changes for it in change.rows() if it.after is not None]


def error_of(server: EmbeddedServer) -> str:
    """Return what is not well with the destination."""
    return server.destination_status("example").error
