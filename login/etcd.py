"""A client of etcd, by the JSON gateway of its API v3, as PD of a TiDB cluster serves it. It blocks.

Requests are POSTs with a JSON object. Keys and values are base64 in it, 64-bit numbers are texts, and what has its
default is left out (etcd 3.4, api/etcdserverpb/rpc.proto)::

    /v3/kv/range  {"key", "range_end", "limit"}
                  {"kvs": [{"key", "value", "mod_revision"}], "more"}
    /v3/kv/txn    {"compare": [{"key", "target": "MOD", "result": "EQUAL", "mod_revision"}],
                   "success": [{"request_put": {"key", "value"}}]}
                  {"succeeded"}
"""

import base64
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import urllib3

from ..protocol.errors import SourceError

TIMEOUT: Final = 5.0
"""Seconds for a request to one server."""
LONGEST: Final = 4 << 20
"""Bytes of an answer."""
MOST: Final = 1000
"""Keys that are read at once."""


class EtcdError(SourceError):
    """No server of etcd has answered as it should."""


class Value(NamedTuple):
    """What a key has."""

    data: bytes
    revision: int
    """Of its last change; 0 of a key that is not there."""


def tls_of(authorities: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return whom to trust and what to show, by PEM files; None: as the system does, and nothing.

    Raises OSError when the files cannot be read, or are no such files.
    """
    if authorities is None and cert is None:
        return None
    tls = ssl.create_default_context(cafile=authorities)
    if cert is not None:
        tls.load_cert_chain(cert, key)
    return tls


class Etcd:
    """The servers of one etcd. Any thread may call any method."""

    def __init__(self, urls: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        """``urls`` such as ``https://pd-1:2379``. ``tls``: whom to trust, and the own certificate."""
        self._urls = [it.rstrip("/") for it in urls]
        self._pool = urllib3.PoolManager(maxsize=4, retries=False, ssl_context=tls, timeout=TIMEOUT)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def get(self, key: str) -> Value:
        """Return what a key has. Raises EtcdError."""
        return self._range({"key": _encode(key)}).get(key, Value(b"", 0))

    def list(self, prefix: str) -> Mapping[str, Value]:
        """Return the keys that begin so, 1,000 at most. Raises EtcdError, also when there are more."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        return self._range({"key": _encode(prefix), "range_end": _encode(end), "limit": str(MOST)})

    def put(self, key: str, data: bytes, revision: int | None = None) -> bool:
        """Write a key. With a revision only if the key has that one now; return whether it was written.

        Raises EtcdError; it may have been written all the same.
        """
        put = {"request_put": {"key": _encode(key), "value": base64.b64encode(data).decode()}}
        same = {"key": _encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        answer = self._call("kv/txn", {"compare": [] if revision is None else [same], "success": [put]})
        return answer.get("succeeded") is True

    def _range(self, request: Mapping[str, Any]) -> dict[str, Value]:
        answer = self._call("kv/range", request)
        try:
            if answer.get("more"):
                raise EtcdError(f"etcd has more than {MOST} keys where the nodes of a cluster are")
            return {
                base64.b64decode(it["key"]).decode(): Value(
                    base64.b64decode(it.get("value", "")), int(it["mod_revision"])
                )
                for it in answer.get("kvs", ())
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EtcdError(f"the answer of etcd makes no sense ({type(error).__name__}: {error})") from error

    def _call(self, method: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask one server after the other; the one that answers is the first next time."""
        problems = []
        for url in list(self._urls):
            try:
                answer = self._ask(f"{url}/v3/{method}", request)
            except (urllib3.exceptions.HTTPError, ValueError, RecursionError) as error:
                problems.append(f"{url}: {error}")
                continue
            if url != self._urls[0]:
                self._urls = [url, *(it for it in self._urls if it != url)]
            return answer
        raise EtcdError(f"etcd does not answer: {'; '.join(problems)}")

    def _ask(self, url: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        response = self._pool.request("POST", url, json=request, preload_content=False, redirect=False)
        try:
            data = response.read(LONGEST + 1)
        finally:
            if response.length_remaining == 0:
                response.release_conn()
            else:  # what is left of it is not read
                response.close()
        if len(data) > LONGEST:
            raise ValueError(f"its answer has more than {LONGEST} bytes")
        if response.status != 200:
            raise ValueError(f"it answers {response.status}: {data[:300].decode(errors='replace')}")
        answer = json.loads(data)
        if not isinstance(answer, dict):
            raise ValueError("its answer is no object")  # noqa: TRY004  as of other answers that make no sense
        return answer


def _encode(key: str) -> str:
    return base64.b64encode(key.encode()).decode()
