"""What Prometheus is told: Canal's metrics under Canal's names, and Sluice's own in base units.

Canal exposes counters without the suffix ``_total`` and times in milliseconds. So that its dashboards go on working,
those are exposed under the same names, as untyped metrics, because a Prometheus counter must have the suffix.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sluice.server.embedded import EmbeddedServer
from sluice.store.cursors import Batch

PACKETS = {
    "subscribe": "SUBSCRIPTION",
    "unsubscribe": "UNSUBSCRIPTION",
    "ack": "CLIENTACK",
    "rollback": "CLIENTROLLBACK",
}
"""Canal's packet type of each call. A GET is counted by the batch that it carried."""
LATENCIES = (2.5, 10.0, 25.0, 100.0)
"""Upper bounds of Canal's latency histogram, ms."""
DURATIONS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper bounds of our own, seconds."""


class Metrics:
    """The metrics of a server: those counted here as calls come in, and those read from the destinations when asked."""

    def __init__(self, embedded: EmbeddedServer) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._embedded = embedded
        self._calls = prometheus.Histogram(
            "sluice_http_request_duration_seconds",
            "Time from the request to the end of its response, waiting for changes included",
            ("call", "status"),
            buckets=DURATIONS,
            registry=self.registry,
        )
        self.canal = CanalCollector(embedded)
        self.registry.register(self.canal)
        self.registry.register(DestinationCollector(embedded))
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.PlatformCollector(registry=self.registry)
        prometheus.GCCollector(registry=self.registry)

    def called(self, call: str, status: int, seconds: float, destination: str) -> None:
        """Count a call. ``call`` is the method and the route, not the path; empty when there was no such route."""
        self._calls.labels(call, str(status)).observe(seconds)
        if destination in self._embedded.instances:
            self.canal.called(destination, call.rpartition("/")[2], status, seconds * 1000)

    def delivered(self, destination: str, batch: Batch) -> None:
        """Count a batch that goes to a client."""
        self.canal.delivered(destination, batch)


class CanalCollector(Collector):
    """The metrics that Canal has."""

    def __init__(self, embedded: EmbeddedServer) -> None:
        self._embedded = embedded
        self._packets: Counter[tuple[str, ...]] = Counter()
        self._bytes: Counter[tuple[str, ...]] = Counter()
        self._rows: Counter[tuple[str, ...]] = Counter()
        self._empty: Counter[tuple[str, ...]] = Counter()
        self._errors: Counter[tuple[str, ...]] = Counter()
        self._latencies: dict[str, list[float]] = {}  # by destination: a count for each bound, all, and their sum

    def called(self, destination: str, call: str, status: int, milliseconds: float) -> None:
        """Count a call."""
        if call in PACKETS:
            self._packets[destination, PACKETS[call]] += 1
        if status >= 400:
            self._errors[destination, str(status)] += 1
        row = self._latencies.setdefault(destination, [0.0] * (len(LATENCIES) + 2))
        for index, bound in enumerate(LATENCIES):
            row[index] += milliseconds <= bound
        row[-2] += 1
        row[-1] += milliseconds

    def delivered(self, destination: str, batch: Batch) -> None:
        """Count a batch."""
        if not batch.entries:
            self._empty[(destination,)] += 1
            return
        self._packets[destination, "GET"] += 1
        self._bytes[(destination,)] += batch.bytes
        self._rows[(destination,)] += batch.rows

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._destinations()
        text = "Calls by Canal's packet type; gets that found nothing are not counted"
        yield untyped("client_packets", text, self._packets, "packetType")
        yield untyped("client_bytes", "Bytes of entries given to clients", self._bytes)
        yield untyped("get_rows", "Rows given to clients", self._rows)
        yield untyped("client_empty_batches", "Gets that found nothing", self._empty)
        yield untyped("client_request_error", "Calls refused, by status", self._errors, "errorCode")
        latency = HistogramMetricFamily(
            "canal_instance_client_request_latency", "Time of calls in ms, waiting included", labels=("destination",)
        )
        for destination, row in self._latencies.items():
            buckets = [(f"{bound:g}", count) for bound, count in zip(LATENCIES, row, strict=False)]
            latency.add_metric([destination], [*buckets, ("+Inf", row[-2])], row[-1])
        yield latency

    def _destinations(self) -> Iterator[Metric]:
        gauges = {
            name: GaugeMetricFamily(f"canal_instance{name}", text, labels=("destination", *labels))
            for name, text, labels in (
                ("", "1 for each destination that is there", ("mode",)),
                ("_subscriptions", "Clients that have subscribed", ()),
                ("_parser_mode", "1", ("parallel",)),
                ("_store", "1", ("batchMode", "size")),
            )
        }
        produced: dict[tuple[str, ...], float] = {}
        consumed: dict[tuple[str, ...], float] = {}
        for name, instance in self._embedded.instances.items():
            config, ring = instance.config, instance.ring
            gauges[""].add_metric([name, "spring"], 1)
            gauges["_subscriptions"].add_metric([name], len(instance.cursors.client_ids))
            gauges["_parser_mode"].add_metric([name, "false"], 1)
            gauges["_store"].add_metric([name, config.memory_batch_mode, str(ring.size)], 1)
            produced[(name,)] = ring.next - 1
            consumed[(name,)] = ring.first - 1
        yield from gauges.values()
        yield untyped("store_produce_seq", "Sequence of the last entry stored, -1 for none", produced)
        yield untyped("store_consume_seq", "Sequence of the last entry that all clients have acked", consumed)


class DestinationCollector(Collector):
    """Sluice's own metrics of destinations and clients."""

    def __init__(self, embedded: EmbeddedServer) -> None:
        self._embedded = embedded

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        up = GaugeMetricFamily(
            "sluice_destination_state", "1 for the state that the destination is in", labels=("destination", "state")
        )
        held = GaugeMetricFamily(
            "sluice_ring_bytes",
            "Memory by use: entries held, segments allocated, segments pinned by readers only",
            labels=("destination", "use"),
        )
        limit = GaugeMetricFamily("sluice_ring_limit_bytes", "Bound of the entries held", labels=("destination",))
        full = GaugeMetricFamily(
            "sluice_ring_full", "1 while the parser waits because the ring is full", labels=("destination",)
        )
        lags = {
            unit: GaugeMetricFamily(f"sluice_client_lag_{unit}", text, labels=("destination", "client"))
            for unit, text in (
                ("seconds", "Age of the oldest change stored that the client has not acked"),
                ("bytes", "Bytes of entries stored that the client has not acked"),
                ("transactions", "Transactions stored that the client has not acked"),
                ("batches", "Batches that the client has not acked"),
            )
        }
        now = time.time()
        for name, instance in self._embedded.instances.items():
            ring = instance.ring
            up.add_metric([name, instance.state], 1)
            held.add_metric([name, "entries"], ring.bytes)
            held.add_metric([name, "allocated"], ring.pool.allocated)
            held.add_metric([name, "pinned"], ring.pool.pinned)
            limit.add_metric([name], ring.memory)
            full.add_metric([name], ring.waiting)
            for client_id in instance.cursors.client_ids:
                status = instance.cursors.status(client_id)
                labels = [name, str(client_id)]
                age = max(0.0, now - status.lag.oldest / 1000) if status.lag.oldest else 0.0
                lags["seconds"].add_metric(labels, age)
                lags["bytes"].add_metric(labels, status.lag.bytes)
                lags["transactions"].add_metric(labels, status.lag.transactions)
                lags["batches"].add_metric(labels, len(status.marks))
        yield from (up, held, limit, full, *lags.values())


def untyped(name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Make a metric of Canal's by its values for each destination and further labels."""
    metric = Metric(f"canal_instance_{name}", text, "unknown")
    names = ("destination", *labels)
    for key, value in values.items():
        metric.add_sample(metric.name, dict(zip(names, key, strict=True)), value)
    return metric
