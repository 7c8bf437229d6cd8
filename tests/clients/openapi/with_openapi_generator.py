"""What a consumer does, with a client that OpenAPI Generator has generated; prints what it saw as JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any

from generated import (
    Ack,
    ApiClient,
    ApiException,
    Configuration,
    ConsumersApi,
    DestinationsApi,
    ProcessApi,
    Rollback,
    Subscription,
)

url, token = sys.argv[1:]
client = ApiClient(Configuration(host=url, access_token=token))
consumers = ConsumersApi(client)
who = ("example", 1001)
seen: dict[str, Any] = {}


def refused(call: Callable[[], object]) -> list[object]:
    try:
        call()
    except ApiException as error:
        return [error.status, error.data.type, bool(error.data.advice)]
    raise AssertionError("it was not refused")


seen["health"] = ProcessApi(client).get_health().status
seen["destinations"] = [it.destination for it in DestinationsApi(client).list_destinations()]
seen["forbidden"] = refused(lambda: consumers.get_client("other", 7))
wrong = ConsumersApi(ApiClient(Configuration(host=url, access_token="wrong")))
seen["unauthorized"] = refused(lambda: wrong.get_client(*who))
seen["subscribed"] = consumers.subscribe(*who, subscription=Subscription(filter=r"shop\..*")).filter
batch = consumers.get_without_ack(*who, max_entries=1, timeout=5000)
entry = batch.entries[0]
seen["entry"] = [entry.database, entry.table, entry.type, entry.data]
seen["marks"] = consumers.get_client(*who).marks == [batch.batch_id]
consumers.ack(*who, ack=Ack(batch_id=batch.batch_id))
seen["unknown"] = refused(lambda: consumers.ack(*who, ack=Ack(batch_id=batch.batch_id)))
seen["invalid"] = refused(lambda: consumers.ack(*who, ack=Ack()))
second = consumers.get_without_ack(*who, max_entries=1)
consumers.rollback(*who, rollback=Rollback())
again = consumers.get_without_ack(*who, max_entries=1)
seen["repeated"] = [it.data[0] for it in (*second.entries, *again.entries)]
response = consumers.stream_batches_without_preload_content(*who, max_entries=1)
lines = iter(response)
seen["stream"] = [sorted(json.loads(next(lines)))[:2], sorted(json.loads(next(lines)))]
response.close()
seen["unsubscribed"] = consumers.unsubscribe_with_http_info(*who).status_code
seen["gone"] = refused(lambda: consumers.get_client(*who))
sys.stdout.write(json.dumps(seen))
