"""The example of an output to Elasticsearch, on a stand-in that takes the bulk API as its documentation describes it.

No Elasticsearch runs here: the stand-in checks what a request has to look like, and keeps the documents.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sluice.instance import plugins
from sluice.instance.plugins import OUTPUTS, load
from sluice.server.conformance import output_faults
from sluice.server.outputs.api import Batch, DeliveryError, RejectedError
from tests.plugins import on_path

EXAMPLE = Path(__file__).parents[3] / "examples" / "elasticsearch"


class Node:
    """Keeps documents, as a node with `POST /_bulk` does; ``wrong`` has what a request had that it may not have."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.wrong: list[str] = []
        self.failing: dict[str, int] = {}
        """Statuses by the ids of documents."""
        self.status = 200
        self.lock = threading.Lock()

    def bulk(self, kind: str, body: bytes) -> dict[str, Any]:
        """Write a request, action by action."""
        if kind not in ("application/json", "application/x-ndjson"):
            self.wrong.append(f"content type {kind}")
        if not body.endswith(b"\n"):
            self.wrong.append("the last line does not end")
        lines = iter(body.splitlines())
        items = [self._act(line, lines) for line in lines]
        return {"took": 1, "errors": any("error" in it for item in items for it in item.values()), "items": items}

    def _act(self, line: bytes, lines: Iterator[bytes]) -> dict[str, Any]:
        ((action, name),) = json.loads(line).items()
        if action not in ("index", "delete") or set(name) != {"_index", "_id"} or not name["_index"].islower():
            self.wrong.append(f"action {line!r}")
        document = json.loads(next(lines)) if action == "index" else None
        answer = {"_index": name["_index"], "_id": name["_id"]}
        if name["_id"] in self.failing:
            return {action: answer | {"status": self.failing[name["_id"]], "error": {"type": "refused"}}}
        documents = self.documents.setdefault(name["_index"], {})
        was_there = documents.pop(name["_id"], None) is not None
        if document is not None:
            documents[name["_id"]] = document
            return {action: answer | {"status": 200 if was_there else 201}}
        return {action: answer | {"status": 200 if was_there else 404}}


@contextmanager
def serving(node: Node) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({"version": {"number": "8.0.0"}})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with node.lock:
                self._answer(node.bulk(self.headers["content-type"], body) if self.path == "/_bulk" else {})

        def _answer(self, found: object) -> None:
            data = json.dumps(found).encode()
            self.send_response(node.status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class, found by its entry point."""
    monkeypatch.setattr(plugins, "PATIENCE", 60.0)  # its import is not what is tried
    info = tmp_path / "sluice_elasticsearch-1.0.dist-info"
    info.mkdir()
    text = (EXAMPLE / "pyproject.toml").read_text()
    entry = next(line for line in text.splitlines() if line.startswith("elasticsearch = ")).replace('"', "")
    (info / "entry_points.txt").write_text(f"[{OUTPUTS}]\n{entry}\n")
    with on_path(tmp_path, EXAMPLE):
        yield load(OUTPUTS, "elasticsearch")


def message(type_: str, data: list[dict[str, Any]], old: list[dict[str, Any]] | None = None) -> bytes:
    found = {"database": "Shop", "table": "orders", "type": type_, "isDdl": False, "pkNames": ["a", "b"]}
    return json.dumps(found | {"data": data, "old": old}).encode()


def test_rows_become_documents_by_their_keys(kind: Any, node: Node) -> None:
    with serving(node) as url:
        output = kind(kind.settings(client_id=1, url=url), "shop/search")
        output.open(1)
        lines = [
            message("INSERT", [{"a": "1", "b": "x", "n": "ü"}, {"a": "2", "b": "y", "n": None}]),
            json.dumps({"type": "ALTER", "isDdl": True, "pkNames": None, "old": None}).encode(),
            message("UPDATE", [{"a": "3", "b": "x", "n": "2"}], [{"a": "1", "n": "ü"}]),
            message("DELETE", [{"a": "2", "b": "y", "n": None}]),
        ]
        for _ in range(2):  # what comes again changes nothing
            output.send([Batch(b"\n".join([*lines, b"{}"]), (), "", "")], "place")
    assert (node.documents, node.wrong) == ({"shop.orders": {"3/x": {"a": "3", "b": "x", "n": "2"}}}, [])


def test_keys_with_slashes_have_documents_of_their_own(kind: Any, node: Node) -> None:
    keys = [("1/2", "3"), ("1", "2/3"), ("1~12", "3"), ("1~1", "2/3")]
    with serving(node) as url:
        output = kind(kind.settings(client_id=1, url=url), "shop/search")
        data = [{"a": a, "b": b} for a, b in keys]
        output.send([Batch(message("INSERT", data) + b"\n{}", (), "", "")], "place")
    assert [(it["a"], it["b"]) for it in node.documents["shop.orders"].values()] == keys


@pytest.mark.parametrize(("status", "error"), [(429, DeliveryError), (400, RejectedError)])
def test_a_document_that_is_refused_stops_what_follows(
    kind: Any, node: Node, status: int, error: type[Exception]
) -> None:
    node.failing = {"1/x": status}
    with serving(node) as url:
        output = kind(kind.settings(client_id=1, url=url), "shop/search")
        with pytest.raises(error, match=r"shop\.orders, document 1/x: .*refused"):
            output.send([Batch(message("INSERT", [{"a": "1", "b": "x"}]) + b"\n{}", (), "", "")], "place")


@pytest.mark.parametrize(("status", "error"), [(503, DeliveryError), (401, RejectedError)])
def test_a_node_that_refuses_is_tried_again_if_that_may_help(
    kind: Any, node: Node, status: int, error: type[Exception]
) -> None:
    node.status = status
    with serving(node) as url:
        output = kind(kind.settings(client_id=1, url=url), "shop/search")
        with pytest.raises(error, match=str(status)):
            output.open(1)


def test_a_table_without_a_primary_key_is_refused(kind: Any) -> None:
    keyless = json.loads(message("INSERT", [{"a": "1"}])) | {"pkNames": []}
    with pytest.raises(RejectedError, match="has no primary key: leave it out by the output's filter"):
        list(sys.modules["sluice_elasticsearch"].actions(keyless))
    assert kind.format == "ndjson"


@pytest.mark.extended
def test_the_output_keeps_the_promises_of_its_interface(kind: Any, node: Node) -> None:
    def ids() -> list[int]:
        return [int(it["id"]) for it in node.documents.get("conformance.changes", {}).values()]

    with serving(node) as url:
        faults = output_faults(kind, kind.settings(client_id=1, url=url), ids)
    assert (faults, node.wrong) == ([], [])
