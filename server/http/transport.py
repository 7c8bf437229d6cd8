"""uvicorn's server and protocol, set up for bodies of megabytes and for a stop within seconds."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sluice.server.network import HIGH_WATER
from sluice.server.waiting import Stopping


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol with its transport in reach of the app, as ``scope["state"]["transport"]``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set the connection up."""
        # Low water 0: a paused sender goes on when all is handed to the kernel and no segment is pinned any more.
        transport.set_write_buffer_limits(high=HIGH_WATER, low=0)
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)


class Server(uvicorn.Server):
    """uvicorn's server, which ends streams and waiting calls when it stops and leaves the loop to its caller."""

    def __init__(self, config: uvicorn.Config, stopping: Stopping, grace: float) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._grace = grace

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: end all waiting, leave ``grace`` seconds for answers under way, then cut them off."""
        self._stopping.announce()
        cut = asyncio.get_running_loop().call_later(self._grace, self._cut)
        await super().shutdown(sockets)
        cut.cancel()

    def _cut(self) -> None:
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM. uvicorn would raise them again afterwards, before the cursors are saved."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
            yield
            return
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
