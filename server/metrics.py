"""What Prometheus is told: Canal's metrics under Canal's names, and Sluice's own in base units.

Canal exposes counters without the suffix ``_total`` and times in milliseconds. So that its dashboards go on working,
those are exposed under the same names, as untyped metrics, because a Prometheus counter must have the suffix.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Protocol

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..instance.config import BatchMode
from ..login.nodes import State
from ..store.batch import Batch
from . import conditions
from .embedded import EmbeddedServer
from .embedded.destinations import DestinationStatus
from .lag import age
from .pumps import PumpStanding

PACKETS = {
    "subscribe": "SUBSCRIPTION",
    "unsubscribe": "UNSUBSCRIPTION",
    "ack": "CLIENTACK",
    "rollback": "CLIENTROLLBACK",
}
"""Canal's packet type of each call. A GET is counted by the batch that it carried."""
LATENCIES = (2.5, 10.0, 25.0, 100.0)
"""Upper bounds of Canal's latency histogram, ms."""
COUNTED = {
    "transactions": "Transactions read",
    "sink_blocking_time": "Time that the parser has waited for room, ms",
    "store_produce_seq": "Sequence of the last entry stored, -1 for none",
    "store_consume_seq": "Sequence of the last entry that all clients have acked",
    "store_produce_mem": "Bytes of entries stored (MEMSIZE)",
    "store_consume_mem": "Bytes of entries that all clients have acked (MEMSIZE)",
    "put_rows": "Rows stored",
    "ack_rows": "Rows that all clients have acked",
}
"""Canal's counters that a destination itself keeps."""
DELAYS = {
    "traffic": "Age of the newest event read, ms; 0 while the source has nothing to send",
    "put": "Time since the event of the last entry stored, ms",
    "get": "Time since the event of the last entry given, ms",
    "ack": "Time since the event of the last entry that all clients have acked, ms",
}
"""Canal's delays."""
STATES = ("starting", "running", "error", "stopped", "standby", "finished")
DESTINATION = {
    "destination_state": ("1 for the state that the destination is in, 0 for the others", "state"),
    "source_lag_seconds": ("Everything that the source wrote longer ago than this is read",),
    "source_received_bytes": ("Bytes received from the source",),
    "source_events": ("Binlog events read",),
    "source_transactions": ("Transactions read",),
    "source_connections": ("Binlog dumps begun: 1, and 1 more after each loss of the connection",),
    "quarantined_events": ("Row events in the quarantine list",),
    "future_rows": ("Rows read with columns that may be younger than they are",),
    "statement_changes": ("Changes that the source logged as statements, whose rows cannot be delivered",),
    "member_late": ("Transactions of a member that came too late for their place in the order", "member"),
    "member_silent_seconds": ("Seconds since a member last brought anything, a heartbeat too", "member"),
    "member_transactions": ("Transactions of a member that are read and wait for their turn", "member"),
    "member_holds": ("1 while what the others have brought waits for the member", "member"),
    "ring_entries": ("Entries stored",),
    "ring_limit_entries": ("Bound of the entries stored",),
    "ring_bytes": ("Memory by use: entries held, segments allocated, segments pinned by slow readers only", "use"),
    "ring_limit_bytes": ("Bound of the bytes of entries stored",),
    "ring_fill": ("Part of the ring in use, of its entries or its bytes, whichever is more",),
    "ring_full": ("1 while the parser waits because the ring is full",),
    "condition": ("Number of places with each condition that needs attention", "condition", "severity"),
    "log_bytes": ("Bytes of the log on disk",),
    "log_gaps": ("Parts of the stream that are missing in the log on disk",),
    "ring_blocked_seconds": ("Seconds that the parser has waited because the ring was full",),
}
"""Our metrics of a destination: what they mean, and labels."""
STAGES = "by stage: given and not acked, or waiting; at least that, as what is not in memory is not counted"
CLIENT = {
    "client_attached": ("1 while the client is served, 0 while it waits for the stream or has left the ring", "client"),
    "client_gaps": ("Gaps of the client that nobody has confirmed: changes that it does not get", "client"),
    "client_outstanding_batches": ("Batches that the client was given and has not acked", "client"),
    "client_lag_seconds": (f"Age of the oldest change, {STAGES}", "client", "stage"),
    "client_lag_bytes": (f"Bytes of entries, {STAGES}", "client", "stage"),
    "client_lag_rows": (f"Rows, {STAGES}", "client", "stage"),
    "client_lag_transactions": (f"Transactions, {STAGES}", "client", "stage"),
    "client_backlog_bytes": (
        "Bytes, at most, between a client that is behind the ring and the ring, in the log or the source's binlog",
        "client",
        "where",
    ),
    "client_purge_seconds": (
        "Seconds until the source or the log may delete what is at the cursor, if that is soon; 0: any time",
        "client",
    ),
    "client_log_bytes": ("Bytes that the log on disk keeps for the client, which is protected", "client"),
    "client_limited_seconds": ("Seconds that calls of the client have waited because its rate is limited", "client"),
    "client_quota_bytes": ("Bytes a day that the client may be given, if it has a quota", "client"),
    "client_quota_used_bytes": ("Bytes of its quota that the client was given today", "client"),
    "client_batches": ("Batches given to the client, repetitions included", "client"),
    "client_rows": ("Rows given to the client, repetitions included", "client"),
    "client_bytes": ("Bytes of entries given to the client, repetitions included", "client"),
}
"""Our metrics of a client."""
OUTPUT = {
    "output_running": ("1 while the output delivers, 0 while it has an error", "output", "client"),
    "output_batches": ("Batches that the other side has confirmed, repetitions included", "output", "client"),
    "output_records": ("Records that the other side has confirmed, repetitions included", "output", "client"),
    "output_rows": ("Rows that the other side has confirmed, repetitions included", "output", "client"),
    "output_bytes": ("Bytes that the other side has confirmed, repetitions included", "output", "client"),
    "output_retries": ("How often the output began again after an error", "output", "client"),
    "output_skipped": ("Changes that were left out, as configured", "output", "client"),
    "output_statistic": ("What the library that sends says of itself, by name", "output", "client", "name"),
}
"""Our metrics of an output; its lag is that of the client that it is."""
PUMP = {
    "pump_online": ("1 while the pump takes transactions, 0 in its other states",),
    "pump_condition": ("1 for a condition of the pump that needs attention", "condition", "severity"),
    "pump_messages": ("Messages of TiDB that were stored",),
    "pump_message_bytes": ("Bytes of messages of TiDB that were stored",),
    "pump_refused": ("Messages of TiDB that were refused",),
    "pump_streams": ("Streams of transactions that are open",),
    "pump_log_bytes": ("Bytes of the pump's log",),
    "pump_open_prewrites": ("Prewrites without an end",),
    "pump_released_ts": ("The commit_ts up to which drainers get all transactions",),
    "pump_left_out": ("Messages left out: repeated, without a Prewrite, or too late", "reason"),
}
"""Our metrics of a pump for TiDB, each with the name of the pump."""
TOTALS = {
    *("pump_messages", "pump_message_bytes", "pump_refused", "pump_left_out"),
    *("source_received_bytes", "source_events", "source_transactions", "source_connections"),
    *(
        "future_rows",
        "statement_changes",
        "member_late",
        "ring_blocked_seconds",
        "client_limited_seconds",
        "client_batches",
        "client_rows",
        "client_bytes",
    ),
    *("output_batches", "output_records", "output_rows", "output_bytes", "output_retries", "output_skipped"),
}
"""Those that only grow; Prometheus gives their names the suffix ``_total``."""
DURATIONS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper bounds of our own, seconds."""


Sample = tuple[str, float] | tuple[str, float, str] | tuple[str, float, str, str] | tuple[str, float, str, str, str]


class Reach(Protocol):
    """Which destinations a caller may see."""

    def covers(self, destination: str | None) -> bool:
        """Whether that one; None asks for all destinations."""


class ReachedCollector(Collector):
    """The samples of some destinations; those of the process would tell of the others."""

    def __init__(self, registry: Collector, reach: Reach) -> None:
        self._registry = registry
        self._reach = reach

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics that have such samples."""
        for metric in self._registry.collect():
            metric.samples = [it for it in metric.samples if self._reached(it.labels.get("destination"))]
            if metric.samples:
                yield metric

    def _reached(self, destination: str | None) -> bool:
        return destination is not None and self._reach.covers(destination)


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
        self._packets = prometheus.Histogram(
            "sluice_tcp_request_duration_seconds",
            "Time from a packet of a Canal client to the end of its answer, waiting for changes included",
            ("packet", "code"),
            buckets=DURATIONS,
            registry=self.registry,
        )
        self.connections = prometheus.Gauge(
            "sluice_tcp_connections", "Connections of Canal's clients", registry=self.registry
        )
        self.canal = CanalCollector(embedded)
        self.registry.register(self.canal)
        self.own = DestinationCollector(embedded)
        self.registry.register(self.own)
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.PlatformCollector(registry=self.registry)
        prometheus.GCCollector(registry=self.registry)

    def reached(self, grant: Reach) -> Collector:
        """Return the metrics that a token may see: all, or of the destinations that it reaches and nothing else."""
        return self.registry if grant.covers(None) else ReachedCollector(self.registry, grant)

    def called(self, call: str, status: int, seconds: float, destination: str) -> None:
        """Count a call. ``call`` is the method and the route, not the path; empty when there was no such route."""
        self._calls.labels(call, str(status)).observe(seconds)
        if destination in self._embedded.instances:
            error = status if status >= 400 else 0
            self.canal.called(destination, PACKETS.get(call.rpartition("/")[2], ""), error, seconds * 1000)

    def answered(self, packet: str, code: int, seconds: float, destination: str) -> None:
        """Count a packet of a Canal client. ``packet`` is the name of its type, ``code`` that of the error, or 0."""
        self._packets.labels(packet, str(code)).observe(seconds)
        if destination in self._embedded.instances:
            self.canal.called(destination, "" if packet == "GET" else packet, code, seconds * 1000)

    def delivered(self, destination: str, client_id: int, batch: Batch) -> None:
        """Count a batch that goes to a client."""
        self.canal.delivered(destination, batch)
        self.own.delivered(destination, client_id, batch)


class CanalCollector(Collector):
    """The metrics that Canal has."""

    def __init__(self, embedded: EmbeddedServer) -> None:
        self._embedded = embedded
        self._packets: Counter[tuple[str, ...]] = Counter()
        self._bytes: Counter[tuple[str, ...]] = Counter()
        self._rows: Counter[tuple[str, ...]] = Counter()
        self._given: dict[str, int] = {}  # by destination: event timestamp of the last entry given, ms
        self._empty: Counter[tuple[str, ...]] = Counter()
        self._errors: Counter[tuple[str, ...]] = Counter()
        self._latencies: dict[str, list[float]] = {}  # by destination: a count for each bound, all, and their sum

    def called(self, destination: str, packet: str, error: int, milliseconds: float) -> None:
        """Count a call, by Canal's packet type if there is one, with the code of its error or 0."""
        if packet:
            self._packets[destination, packet] += 1
        if error:
            self._errors[destination, str(error)] += 1
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
        self._given[destination] = max(batch.timestamp, self._given.get(destination, 0))

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._destinations()
        text = "Calls by Canal's packet type; gets that found nothing are not counted"
        yield untyped("client_packets", text, self._packets, "packetType")
        yield untyped("client_bytes", "Bytes of entries given to clients", self._bytes)
        yield untyped("get_rows", "Rows given to clients", self._rows)
        yield untyped("client_empty_batches", "Gets that found nothing", self._empty)
        yield untyped("client_request_error", "Calls refused, by code or status", self._errors, "errorCode")
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
        counted: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in COUNTED}
        received: dict[tuple[str, ...], float] = {}
        delays = {
            name: GaugeMetricFamily(f"canal_instance_{name}_delay", text, labels=("destination",))
            for name, text in DELAYS.items()
        }
        now = time.time() * 1000  # noqa: TID251  shown
        for name, instance in self._embedded.instances.items():
            config, ring, parser = instance.config, instance.ring, instance.parser_status
            gauges[""].add_metric([name, "spring"], 1)
            gauges["_subscriptions"].add_metric([name], len(instance.cursors.clients.ids))
            gauges["_parser_mode"].add_metric([name, "false"], 1)
            gauges["_store"].add_metric([name, config.memory_batch_mode, str(ring.size)], 1)
            values: dict[str, float] = {
                "transactions": parser.transactions,
                "sink_blocking_time": round(ring.blocked_seconds * 1000),
                "store_produce_seq": ring.next - 1,
                "store_consume_seq": ring.first - 1,
                "put_rows": ring.put_rows,
                "ack_rows": ring.freed_rows,
            }
            if config.memory_batch_mode == BatchMode.MEMSIZE:
                values |= {"store_produce_mem": ring.put_bytes, "store_consume_mem": ring.freed_bytes}
            for counter, value in values.items():
                counted[counter][(name,)] = value
            received[name, "0"] = parser.received_bytes
            if parser.behind is not None:
                delays["traffic"].add_metric([name], round(parser.behind * 1000))
            # As in Canal: what was given was put before, what was acked was given.
            given = min(self._given.get(name, 0), ring.put_execute_ms)
            times = {"put": ring.put_execute_ms, "get": given, "ack": min(given, ring.freed_execute_ms)}
            for stage, milliseconds in times.items():
                if milliseconds:
                    delays[stage].add_metric([name], max(0.0, round(now - milliseconds)))
        yield from gauges.values()
        yield from delays.values()
        yield from (untyped(name, text, counted[name]) for name, text in COUNTED.items())
        yield untyped("received_binlog_bytes", "Bytes received from the source", received, "parser")


class DestinationCollector(Collector):
    """Sluice's own metrics of destinations and clients."""

    def __init__(self, embedded: EmbeddedServer) -> None:
        self._embedded = embedded
        self._delivered: dict[tuple[str, int], list[int]] = {}  # by destination and client: batches, rows, bytes

    def delivered(self, destination: str, client_id: int, batch: Batch) -> None:
        """Count a batch."""
        if batch.entries:
            counts = self._delivered.setdefault((destination, client_id), [0, 0, 0])
            for index, value in enumerate((1, batch.rows, batch.bytes)):
                counts[index] += value

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        families = _families(DESTINATION | CLIENT | OUTPUT, "destination")
        for destination in self._embedded.names:
            status = self._embedded.destination_status(destination)
            found = [*_conditions(status), *self._clients(status), *_outputs(status)]
            if destination in self._embedded.instances:
                found += self._destination(status)
            for name, value, *labels in found:
                families[name].add_metric([destination, *labels], value)
        yield from families.values()

    def _destination(self, status: DestinationStatus) -> Iterator[Sample]:
        """Yield name, value and labels."""
        parser, ring = status.parser, self._embedded.instances[status.destination].ring
        if parser.behind is not None:
            yield "source_lag_seconds", parser.behind
        yield "source_received_bytes", parser.received_bytes
        yield "source_events", parser.events
        yield "source_transactions", parser.transactions
        yield "source_connections", parser.connections
        yield "quarantined_events", parser.quarantined
        yield "future_rows", parser.future_rows
        yield "statement_changes", parser.dml_statements
        for it in parser.members:
            yield "member_late", it.late, it.name
            yield "member_silent_seconds", it.silent, it.name
            yield "member_transactions", it.transactions, it.name
            yield "member_holds", it.holds, it.name
        yield "ring_entries", status.entries
        yield "ring_limit_entries", ring.size
        yield "ring_bytes", status.bytes, "entries"
        yield "ring_bytes", ring.pool.allocated, "allocated"
        yield "ring_bytes", status.pinned, "pinned"
        yield "ring_limit_bytes", ring.memory
        yield "ring_fill", status.fill
        yield "ring_full", status.full
        yield "ring_blocked_seconds", status.blocked
        if status.log is not None:
            yield "log_bytes", status.log.bytes
            yield "log_gaps", max(0, len(status.log.stretches) - 1)
            for client_id, hold in status.log.holds.items():
                yield "client_log_bytes", hold.bytes, str(client_id)

    def _clients(self, status: DestinationStatus) -> Iterator[Sample]:
        """Yield name, value and labels."""
        now = time.time()  # noqa: TID251  shown
        for client in status.clients:
            label = str(client.client_id)
            yield "client_attached", client.state == "attached", label
            yield "client_gaps", len(status.gaps.get(client.client_id, ())), label
            yield "client_outstanding_batches", len(client.marks), label
            for stage, amount in (("given", client.given), ("waiting", client.waiting)):
                yield "client_lag_seconds", age(amount, now), label, stage
                yield "client_lag_bytes", amount.bytes, label, stage
                yield "client_lag_rows", amount.rows, label, stage
                yield "client_lag_transactions", amount.transactions, label, stage
            if client.state == "catching-up" and (backlog := status.backlogs.get(client.client_id)):
                yield "client_backlog_bytes", backlog.bytes, label, backlog.where
            if threat := status.threats.get(client.client_id):
                yield "client_purge_seconds", max(0.0, threat.at - now), label
            if client.allowance.max_rate:
                yield "client_limited_seconds", client.allowance.seconds, label
            if client.allowance.quota:
                yield "client_quota_bytes", client.allowance.quota, label
                yield "client_quota_used_bytes", client.allowance.used_on(now), label
            batches, rows, size = self._delivered.get((status.destination, client.client_id), (0, 0, 0))
            yield "client_batches", batches, label
            yield "client_rows", rows, label
            yield "client_bytes", size, label


class PumpCollector(Collector):
    """The metrics of a pump for TiDB."""

    def __init__(self, standing: Callable[[], PumpStanding]) -> None:
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        pump = self._standing()
        families = _families(PUMP, "pump")
        for name, value, *labels in _pump(pump):
            families[name].add_metric([pump.node_id, *labels], value)
        yield from families.values()


def _families(metrics: Mapping[str, tuple[str, ...]], first: str) -> dict[str, CounterMetricFamily | GaugeMetricFamily]:
    """Return the metrics of a table, without samples; their first label has that name."""
    return {
        name: (CounterMetricFamily if name in TOTALS else GaugeMetricFamily)(
            f"sluice_{name}", text, labels=(first, *labels)
        )
        for name, (text, *labels) in metrics.items()
    }


def _pump(pump: PumpStanding) -> Iterator[Sample]:
    """Yield name, value and labels."""
    log, served = pump.log, pump.served
    found = {it.condition.name for it in conditions.find_of_pump(pump)}
    yield "pump_online", pump.state == State.ONLINE
    for condition in conditions.PUMPS:
        yield "pump_condition", condition.name in found, condition.name, condition.severity
    yield "pump_messages", served.messages
    yield "pump_message_bytes", served.bytes
    yield "pump_refused", served.refused
    yield "pump_streams", served.streams
    yield "pump_log_bytes", log.bytes
    yield "pump_open_prewrites", log.open
    yield "pump_released_ts", log.released
    for reason, count in asdict(log.counts).items():
        yield "pump_left_out", count, reason


def _conditions(status: DestinationStatus) -> Iterator[Sample]:
    """Yield name, value and labels."""
    for state in STATES:
        yield "destination_state", state == status.state, state
    found = Counter(it.condition.name for it in conditions.find(status))
    for condition in conditions.TABLE:
        yield "condition", found[condition.name], condition.name, condition.severity


def _outputs(status: DestinationStatus) -> Iterator[Sample]:
    """Yield name, value and labels."""
    for it in status.outputs:
        labels = it.name, str(it.client_id)
        yield "output_running", it.state == "running", *labels
        for name, value in (
            ("batches", it.batches),
            ("records", it.records),
            ("rows", it.rows),
            ("bytes", it.bytes),
            ("retries", it.retries),
            ("skipped", it.skipped),
        ):
            yield f"output_{name}", value, *labels
        for name, figure in it.statistics.items():
            yield "output_statistic", figure, *labels, name


def untyped(name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Make a metric of Canal's by its values for each destination and further labels."""
    metric = Metric(f"canal_instance_{name}", text, "unknown")
    names = ("destination", *labels)
    for key, value in values.items():
        metric.add_sample(metric.name, dict(zip(names, key, strict=True)), value)
    return metric
