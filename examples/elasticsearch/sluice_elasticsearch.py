"""An output that keeps an index of Elasticsearch equal to each table, through its bulk API.

A row is a document of the index `schema.table` in lower case, with the primary key as its id. What comes again after a
crash writes the same documents. Values are texts, as in Canal's FlatMessage: index templates say what else they are.
DDL is left out: delete an index, and begin anew, when its mapping has to change.

    pip install examples/elasticsearch
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import urllib3
from pydantic import SecretStr

from sluice.server.outputs.api import Batch, DeliveryError, OutputSettings, RejectedError, setting

TIMEOUT = 30.0  # seconds for an answer
TRANSIENT = (408, 429, 502, 503, 504)


class ElasticsearchSettings(OutputSettings):
    """What can be configured of the output."""

    url: str = setting("sluice.output.<name>.url", "http://127.0.0.1:9200", pattern="^https?://")
    """Address of a node."""
    api_key: SecretStr = setting("sluice.output.<name>.apiKey", SecretStr(""))
    """Key of the API, which may write the indexes; empty for none."""


class Elasticsearch:
    """Writes each batch as one request."""

    api = 1
    settings = ElasticsearchSettings
    format = "ndjson"
    exactly_once = False

    def __init__(self, settings: ElasticsearchSettings, identity: str) -> None:
        key = settings.api_key.get_secret_value()
        self._headers = {"content-type": "application/x-ndjson"} | ({"authorization": f"ApiKey {key}"} if key else {})
        self._url = settings.url.rstrip("/")
        self._http = urllib3.PoolManager(retries=False, timeout=TIMEOUT)
        self._abandoned = False

    def open(self, epoch: int) -> str | None:
        """Nothing is kept open: each request stands for itself."""
        self._abandoned = False
        self.check()
        return None

    def check(self) -> str:
        """Ask the node who it is."""
        return f"Elasticsearch {self._ask('GET', '/')['version']['number']} at {self._url}"

    def send(self, batches: Sequence[Batch], place: str) -> None:
        """Write the rows of each batch, and look at the answer for each of them."""
        for batch in batches:
            messages = batch.data.splitlines()[:-1]  # the last line is about the batch
            lines = [line for it in messages for line in actions(json.loads(it))]
            if not lines:
                continue
            answer = self._ask("POST", "/_bulk", "".join(f"{json.dumps(it)}\n" for it in lines).encode())
            for item in answer["items"] if answer["errors"] else ():
                ((action, result),) = item.items()
                if result["status"] >= 300 and not (action == "delete" and result["status"] == 404):
                    kind = DeliveryError if result["status"] in TRANSIENT else RejectedError
                    raise kind(f"{result['_index']}, document {result['_id']}: {result.get('error')}")

    def abandon(self) -> None:
        """Let no further request begin; one that goes on does no harm, since it is repeated."""
        self._abandoned = True

    def close(self) -> None:
        """Close the connections."""
        self._http.clear()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        if self._abandoned:
            raise DeliveryError("it was abandoned")
        try:
            answer = self._http.request(method, self._url + path, body=body, headers=self._headers)
        except urllib3.exceptions.HTTPError as error:
            raise DeliveryError(f"{self._url}: {error}") from error
        if answer.status >= 300:
            kind = DeliveryError if answer.status in TRANSIENT else RejectedError
            raise kind(f"{self._url}{path}: {answer.status} {answer.data[:500].decode(errors='replace')}")
        return answer.json()


def actions(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give what the bulk API is told of a change: an action, and after an `index` the document."""
    keys, olds = message["pkNames"], message["old"] or ()
    if message["isDdl"] or message["type"] not in ("INSERT", "UPDATE", "DELETE"):
        return
    index = f"{message['database']}.{message['table']}".lower()
    if not keys:
        raise RejectedError(f"{index} has no primary key: leave it out by the output's filter")
    for number, row in enumerate(message["data"]):
        name = {"_index": index, "_id": id_of(row[it] for it in keys)}
        before = row | (olds[number] if number < len(olds) else {})
        former = {"_index": index, "_id": id_of(before[it] for it in keys)}
        if message["type"] == "DELETE" or former != name:
            yield {"delete": former}
        if message["type"] != "DELETE":
            yield {"index": name}
            yield row


def id_of(key: Iterable[Any]) -> str:
    """Return the id of a document; no two keys have the same one, whatever slashes they have."""
    return "/".join(str(it).replace("~", "~0").replace("/", "~1") for it in key)
