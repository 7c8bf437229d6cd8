"""What answers as a TiDB does: the time by SQL; a key of TiKV, and DDL jobs, over HTTP. A TiDB itself cannot be had."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.peer import OK, Peer, Talk


class TidbServer:
    """One server; `with TidbServer() as tidb:`. The test says what it answers."""

    def __init__(self) -> None:
        self.time: int | str = 1
        """What it takes for a timestamp of the cluster."""
        self.keys: dict[bytes, Any] = {}
        """What TiKV has of a key, as TiDB shows it."""
        self.jobs: Any = []
        """The history of its DDL jobs."""
        self.asked = 0
        """Questions for the time."""
        self._sql = Peer(self._talk)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def sql(self) -> str:
        """Where SQL is asked."""
        return f"mysql://pump@127.0.0.1:{self._sql.port}/?sslMode=DISABLED"

    @property
    def status(self) -> str:
        """Where keys are asked."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._sql.__enter__()
        self._serving = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._serving.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._serving.join()
        self._sql.__exit__(*error)

    def _talk(self, talk: Talk) -> None:
        talk.greet()
        talk.send(OK)
        while True:
            if b"@@tidb_current_ts" in talk.receive():
                self.asked += 1
                talk.result(["@@tidb_current_ts"], [str(self.time)])
            else:
                talk.send(OK)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/ddl/history":
                    answer = json.dumps(server.jobs).encode()
                else:
                    key = bytes.fromhex(self.path.removeprefix("/mvcc/hex/"))
                    found = {"key": key.hex(), "region_id": 8, "value": server.keys.get(key, {})}
                    answer = json.dumps(found).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def committed(start_ts: int, commit_ts: int) -> dict[str, Any]:
    """Return what TiDB shows of a key that a transaction has written, and others before and after it."""
    writes: list[dict[str, Any]] = [{"type": 3, "start_ts": commit_ts + 5, "commit_ts": commit_ts + 5}]
    writes += [{"start_ts": start_ts, "commit_ts": commit_ts, "short_value": "AA=="}]
    writes += [{"type": 1, "start_ts": start_ts - 2, "commit_ts": start_ts - 1}]
    return {"info": {"writes": writes}}


def rolled_back(start_ts: int) -> dict[str, Any]:
    """Return what TiDB shows of a key whose transaction was rolled back."""
    return {"info": {"writes": [{"type": 3, "start_ts": start_ts, "commit_ts": start_ts}]}}


def locked(start_ts: int) -> dict[str, Any]:
    """Return what TiDB shows of a key while a transaction is under way."""
    return {"info": {"lock": {"start_ts": start_ts, "primary": "aw=="}}}
