"""What librdkafka says of itself, under the names that Java's producer has for it."""

import json
from typing import Any, Final

INTERVAL: Final = 10_000
"""Milliseconds from one report of the library to the next."""


def read_statistics(text: str) -> dict[str, float]:
    """Return the figures of a report (STATISTICS.md of librdkafka): durations in ms, as in Java; averages of 10 s."""
    found = json.loads(text)
    brokers = [it for it in found["brokers"].values() if it["nodeid"] >= 0]
    return {
        "record-send-total": found["txmsgs"],
        "request-total": found["tx"],
        "outgoing-byte-total": found["tx_bytes"],
        "record-retry-total": sum(it["txretries"] for it in brokers),
        "request-timeout-total": sum(it["req_timeouts"] for it in brokers),
        "connection-count": sum(it["state"] == "UP" for it in brokers),
        "requests-in-flight": sum(it["waitresp_cnt"] for it in brokers),
        "buffer-available-bytes": found["msg_size_max"] - found["msg_size"],
        "record-queue-time-avg": _worst(brokers, "int_latency", "avg") / 1000,
        "record-queue-time-max": _worst(brokers, "int_latency", "max") / 1000,
        "request-latency-avg": _worst(brokers, "rtt", "avg") / 1000,
        "request-latency-max": _worst(brokers, "rtt", "max") / 1000,
        "batch-size-avg": _worst(list(found["topics"].values()), "batchsize", "avg"),
    }


def _worst(parts: list[dict[str, Any]], name: str, figure: str) -> float:
    return float(max((it[name][figure] for it in parts), default=0))
