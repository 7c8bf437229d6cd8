import asyncio
import contextlib
from collections.abc import AsyncIterator

from sluice.server.network import address_text, listen
from sluice.server.resources import Resources
from tests.integration.line.config import LineConfig


@contextlib.asynccontextmanager
async def serving(config: LineConfig, resources: Resources) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(f"{' '.join(resources.embedded.instances)}\n".encode())
        writer.close()

    with listen(config.host, config.port, "line.host and line.port") as sock:
        server = await asyncio.start_server(answer, sock=sock)
        try:
            yield address_text(sock.getsockname())
        finally:
            server.close()
