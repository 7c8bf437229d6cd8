"""A TCP proxy that misbehaves: it cuts connections at chosen or random bytes, delays and stalls them."""

import contextlib
import random
import socket
import threading
import time
from typing import Self

_CHUNK = 65536


class Proxy:
    """Listens on `port` of `host` and passes on to `target`; faults apply to every connection while they are set.

    Stand it between server and source, or between client and server:

        with Proxy(("127.0.0.1", server.port)) as proxy:
            proxy.cut_after(1000)        # every connection dies after 1000 more bytes from the target
            proxy.cut_randomly(50_000)   # ... after a random number of bytes, 50,000 on average, in either direction
            proxy.delay = 0.2            # seconds before each chunk is passed on
            proxy.stall()                # accept, but pass on nothing, until resume()
            proxy.damage(b"goods")       # the next chunk from the target with these bytes comes with others there, once
            proxy.cut()                  # cut what is connected now
            proxy.heal()                 # no faults any more
    """

    def __init__(
        self, target: tuple[str, int], *, seed: int | None = None, listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        """Name the target's address; `seed` makes the random cuts repeatable, `listen` is where, port 0 for any."""
        self.target = target
        self.delay = 0.0
        self.connections = 0
        """Connections accepted since the start."""
        self.cuts = 0
        """Connections cut by a fault."""
        self.damages = 0
        """Chunks that were changed by a fault."""
        self._damaged = b""
        self._random = random.Random(seed)
        self._flowing = threading.Event()
        self._flowing.set()
        self._cut_after: int | None = None
        self._cut_mean: int | None = None
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(listen)
        self.host, self.port = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True, name=f"proxy-{self.port}").start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and cut everything."""
        self._shut(self._listener)  # a close alone does not end the accept
        self._listener.close()
        self.resume()
        self.cut()

    def cut_after(self, count: int) -> None:
        """Cut each connection when `count` more bytes have come from the target (the last chunk is passed in part)."""
        self._cut_after = count

    def damage(self, part: bytes) -> None:
        """Change these bytes, the next time that they come from the target within a chunk."""
        self._damaged = part

    def cut_randomly(self, mean: int) -> None:
        """Cut each connection, in either direction, after a random number of bytes with this mean."""
        self._cut_mean = mean

    def stall(self) -> None:
        """Pass nothing on any more, without closing anything."""
        self._flowing.clear()

    def resume(self) -> None:
        """End a stall."""
        self._flowing.set()

    def heal(self) -> None:
        """Take all faults away; connections that live go on."""
        self._cut_after = self._cut_mean = None
        self.delay = 0.0
        self.resume()

    def cut(self) -> None:
        """Cut all connections of now; new ones are accepted."""
        with self._lock:
            doomed = list(self._open)
        for side in doomed:
            self._shut(side)

    @staticmethod
    def _shut(side: socket.socket) -> None:
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            self.connections += 1
            try:
                target = socket.create_connection(self.target, 5)
            except OSError:  # the target is down: the client sees a closed connection, as it would without us
                client.close()
                continue
            target.settimeout(None)
            threading.Thread(target=self._serve, args=(client, target), daemon=True).start()

    def _serve(self, client: socket.socket, target: socket.socket) -> None:
        with client, target:
            with self._lock:
                self._open |= {client, target}
            answers = threading.Thread(target=self._pass_on, args=(target, client, True), daemon=True)
            answers.start()
            self._pass_on(client, target, False)
            answers.join()
            with self._lock:
                self._open -= {client, target}

    def _budget(self, answers: bool) -> int | None:
        """Return how many bytes this direction may still carry, None for no limit."""
        if self._cut_mean is not None:
            return int(self._random.expovariate(1 / self._cut_mean))
        return self._cut_after if answers else None

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        limits = (self._cut_mean, self._cut_after)
        budget = self._budget(answers)
        try:
            while chunk := source.recv(_CHUNK):
                if answers and self._damaged and self._damaged in chunk:
                    chunk = chunk.replace(self._damaged, bytes(len(self._damaged)))
                    self._damaged, self.damages = b"", self.damages + 1
                time.sleep(self.delay)
                self._flowing.wait()
                if limits != (self._cut_mean, self._cut_after):  # a fault was set or taken away meanwhile
                    limits = (self._cut_mean, self._cut_after)
                    budget = self._budget(answers)
                if budget is None:
                    sink.sendall(chunk)
                    continue
                sink.sendall(chunk[:budget])
                budget -= len(chunk)
                if budget <= 0:
                    self.cuts += 1
                    return
        except OSError:
            return
        finally:
            for side in source, sink:
                self._shut(side)
