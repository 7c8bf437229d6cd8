"""Who looks after the servers of a run: gives commands, and moves clients that have lost their place."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import urllib3

from tests import commands
from tests.chaos.journal import OF_ANOTHER_SOURCE, Journal, Moved
from tests.chaos.plan import LONE, SHARED, VIEW

PATIENCE = 20.0
"""Seconds that a call may take: a switch waits for the replica."""


class Operator(threading.Thread):
    """Moves each client that is gone to the oldest change that is left, while the block lasts.

    Args:
        conf: a configuration that knows ZooKeeper and the destinations.
        urls: of the servers, reached without the proxies.
        journal: has each move.
        report: is told of it.
    """

    def __init__(self, conf: Path, urls: Sequence[str], journal: Journal, report: Callable[[str], object]) -> None:
        super().__init__(daemon=True, name="operator")
        self._conf = conf
        self._urls = urls
        self._journal = journal
        self._report = report
        self._ended = threading.Event()
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Look again and again."""
        while not self._ended.wait(1.0):
            for destination in (*SHARED, VIEW, LONE):
                status = self._call("GET", destination, "", quick=True) or {}
                if "transactions that were delivered" in status.get("error", ""):
                    self.switch(destination)
                for client in status.get("clients", ()) if status.get("state") == "running" else ():
                    if client["state"] == "gone" and "purged" in client["error"]:
                        self._move(destination, client["clientId"], client["error"])
                for output in status.get("outputs", ()):
                    if output["state"] == "error" and OF_ANOTHER_SOURCE in output["error"]:
                        self._send_again(destination, output["clientId"], output["error"])

    def _move(self, destination: str, client_id: int, error: str) -> None:
        """Do what the error advises."""
        name = f"{destination}-{client_id}"
        advice = re.search(rf"`sluice seek {destination} {client_id} (\S+)` goes on", error)
        assert advice is not None, error
        self._report(f"           {name} is gone, and moved to {advice[1]}: {error}")
        self._seek(destination, client_id, advice[1], error)

    def _send_again(self, destination: str, client_id: int, error: str) -> None:
        """Let an output that is inside a transaction of the former source send that again, as the error advises."""
        place = re.search(r"`sluice seek \S+ \S+ (\S+/\S+)`", error)
        start = place[1] if place else "oldest"
        self._report(f"           the output of {destination}-{client_id} sends again from {start}: {error}")
        self._seek(destination, client_id, start, error)

    def _seek(self, destination: str, client_id: int, start: str, error: str) -> None:
        asked = time.time()  # what follows may come before the answer
        if self._call("POST", destination, f"/clients/{client_id}/seek", {"start": start}) is not None:
            self._journal.write(Moved(asked, f"{destination}-{client_id}", error))

    def protect(self, destination: str, client_id: object) -> None:
        """Let the log keep what a client needs."""
        deadline = time.monotonic() + 30
        while self._call("POST", destination, f"/clients/{client_id}/protect", {"protect": True}) is None:
            assert time.monotonic() < deadline, f"{destination} is not served"
            time.sleep(0.2)

    def switch(self, destination: str) -> None:
        """Let a destination read the other source, if that loses nothing."""
        found = self._call("POST", destination, "/source/switch")
        self._report(f"           switch {destination}: {'refused' if found is None else found['source']['address']}")

    def source_of(self, destination: str) -> str:
        """Return the address of the source that a destination reads; empty when nobody says it."""
        found = self._call("GET", destination, "", quick=True) or {}
        return str((found.get("source") or {}).get("address", ""))

    def wait_for_switch(self, destination: str, former: str, seconds: float) -> None:
        """Wait until a destination reads another source than the former one, or for a time at most."""
        deadline = time.monotonic() + seconds
        while (found := self.source_of(destination)) in ("", former) and time.monotonic() < deadline:
            time.sleep(0.2)
        self._report(f"           {destination} reads {found}, and has read {former}")

    def has_copied(self, destination: str, client_id: str) -> bool:
        """Whether a client has got all rows of its snapshots."""
        found = self._call("GET", destination, f"/clients/{client_id}/snapshots")
        return found is not None and all(it["state"] == "done" for it in found)

    def moves(self, deadline: float) -> dict[str, Any]:
        """Return by destination where the places of its clients jumped."""
        found: dict[str, Any] = {}
        for destination in (*SHARED, VIEW, LONE):
            while (answer := self._call("GET", destination, "/moves")) is None and time.monotonic() < deadline:
                time.sleep(0.2)
            found[destination] = answer or []
        return found

    def command(self, *command: str) -> None:
        """Give a command, which may fail: ZooKeeper may be away just now."""
        done = commands.run(*command, "--conf", str(self._conf))
        assert "Traceback" not in done.stderr, done.stderr
        self._report(f"           {' '.join(command)}: {(done.stdout or done.stderr).strip()}")

    def _call(self, method: str, destination: str, path: str, body: object = None, *, quick: bool = False) -> Any:
        """Return what the server says that has the destination; None when none does, or it refuses."""
        for url in self._urls:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                options: dict[str, Any] = {"json": body} if body is not None else {}
                answer = self._http.request(
                    method, f"{url}/v1/destinations/{destination}{path}", timeout=1.0 if quick else PATIENCE, **options
                )
                try:
                    found = json.loads(answer.data) if answer.data else {}
                except ValueError:
                    raise AssertionError(
                        f"{method} {destination}{path}: {answer.status} {answer.data[:200]!r}"
                    ) from None
                if answer.status < 300 and _is_active(found):
                    return found
                if answer.status not in (404, 421, 503) and "detail" in found:
                    self._report(f"           {method} {destination}{path}: {found['detail']}")
        return None


def _is_active(found: Any) -> bool:
    return not isinstance(found, dict) or found.get("state") != "standby"
