"""Changes to Kafka: side by side with Canal 1.1.7 and its producer, and with a loop that sends ready values.

Forms that Canal does not have are measured side by side with ours that it has. A topic with TiDB's secondary binlog is
read, too: by its reader, and as the source of a server, side by side with the binlog that it was made of.

The clock runs while the second third of what is written to the source reaches the topic, by the offsets there; the rest
is to warm up and to go on after that. Nobody reads the topic meanwhile.
"""

import argparse
import contextlib
import functools
import itertools
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import latency, memory, peers
from bench.deliver import DESTINATION, TIMES, by_way, follow, lines_of, serve
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.processes import cpu_of, peak_of
from bench.sources import SOURCES, source, version_of
from bench.workloads import ROWS, SCHEMA, TABLES, Written, write
from scripts.serving import lines_for, started
from sluice.protocol.tidb.entries import commit_ts_of
from sluice.server.outputs.kafka.translation import DEFAULTS, FIXED
from tests.servers import Server
from tests.servers.kafka import Kafka

CANAL = "Canal 1.1.7 and its producer"
BARE = "a loop that sends ready values"
BINLOG = "the binlog"
CASES = {
    "flat-bulk": ("flat", "bulk"),
    "flat-single": ("flat", "single"),
    "canal-bulk": ("canal", "bulk"),
    "canal-single": ("canal", "single"),
    "wide": ("flat", "wide"),
    "mixed": ("flat", "mixed"),
    "text": ("flat", "text"),
    "tdsql-bulk": ("tdsql", "bulk"),
    "tdsql-single": ("tdsql", "single"),
    "tidb-bulk": ("tidb", "bulk"),
    "tidb-single": ("tidb", "single"),
}
"""The form of the records, and the workload."""
READERS = {"reader": "topic-rows", "reader-arrow": "topic-arrow"}
"""The ways of `bench.client` that read such a topic."""
READER_GOALS = {"reader": 300_000, "reader-arrow": 1_000_000}
"""Rows per second of these."""
SOURCE = "source-kafka"
OF_BINLOG = 0.5
"""Goal of such a topic as the source: of the rows per second of the binlog."""
LATENCIES = {
    "latency": (),
    "latency-transactional": ("sluice.output.mq.transactional = true", "sluice.output.mq.transactionalId = bench"),
}
"""What is set for the time from when a row was due to be committed until a consumer has its record."""
PACE = 1000
"""Commits a second of these."""
GOAL_MS = {"latency": 5}
OF_FLAT = 0.6
"""Goal of the forms that Canal does not have: of the rows per second of form flat."""
GOAL = 10
"""Times Canal's rows per second, with as many times less CPU of the server."""
RATES = {"bulk": 40_000, "single": 15_000, "wide": 15_000, "mixed": 15_000, "text": 2_000}
"""Rows per second of Canal, by which the time of a measurement is estimated."""
AS_SHIPPED = (
    *("canal.serverMode = kafka", "canal.mq.canalBatchSize = 50", "canal.mq.canalGetTimeout = 100"),
    *("canal.mq.database.hash = true", "canal.mq.send.thread.size = 30", "canal.mq.build.thread.size = 8"),
    *("kafka.acks = all", "kafka.compression.type = none", "kafka.batch.size = 16384", "kafka.linger.ms = 1"),
    *("kafka.max.request.size = 1048576", "kafka.buffer.memory = 33554432", "kafka.retries = 0"),
    "kafka.max.in.flight.requests.per.connection = 1",
)
"""What Canal's canal.properties says of Kafka."""
MEMORY = round(memory.RING + 2 * 32 * 1.048576, 1)
"""MB that an output may take beside an idle server: the ring, librdkafka's queue of 32 MiB, and 32 MiB."""
PAUSE = 0.01
"""Seconds from one look at the topic to the next."""
QUIET = 3.0
"""Seconds without another record after which all is there."""
READY = 100_000
"""Ready values at most; then they come again."""
_topics = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Moment:
    """What was seen at a time."""

    at: float
    records: int
    cpu: dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, (*CASES, *READERS, SOURCE, *LATENCIES))
    parser.add_argument(
        "--source", choices=SOURCES, default="mariadb1011", help="Canal cannot read MariaDB 11.8 (%(default)s)"
    )
    parser.add_argument("--rows", type=int, help="row changes that count; otherwise as many as the workload has")
    parser.add_argument("--seconds", type=float, default=10, help="of a latency that count (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds before these (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write each workload once; every run has a new server and a new topic."""
    wanted = [(name, *CASES[name]) for name in chosen(arguments) if name in CASES]
    latencies = [name for name in chosen(arguments) if name in LATENCIES]
    readings = [name for name in chosen(arguments) if name in (*READERS, SOURCE)]
    rows = {workload: arguments.rows or ROWS[workload] for workload in {"bulk", *(it for _, _, it in wanted)}}
    seconds = sum(20 + arguments.repeats * (25 + 2 * TIMES * rows[it] / RATES[it]) for _, _, it in wanted)
    seconds += len(latencies) * arguments.repeats * (arguments.seconds + arguments.warm_up + 6)
    seconds += 60 * bool(readings) + len(readings) * arguments.repeats * 10
    turns = sum(3 if form in ("flat", "canal") else 2 for _, form, _ in wanted) + len(latencies)
    turns += len(readings) + (SOURCE in readings)
    progress = Progress("kafka", arguments.repeats * turns, seconds)
    cases: list[Case] = []
    version = ""
    with Kafka() as kafka:
        warm_up(kafka)
        for workload, named in itertools.groupby(sorted(wanted, key=lambda it: it[2]), key=lambda it: it[2]):
            with source(arguments.source) as server:
                version = version_of(server)
                if "mariadb" in arguments.source:  # Canal sends the statements, too, as records of their own
                    server.query("SET GLOBAL binlog_annotate_row_events = OFF")
                written = write(server, workload, rows[workload], TIMES)
                for name, form, _ in named:
                    measuring = measure if form in ("flat", "canal") else compare
                    cases.append(measuring(kafka, server, written, name, form, arguments.repeats, progress))
        cases.sort(key=lambda it: list(CASES).index(it["case"]))
        if readings:
            with source(arguments.source) as server:
                version = version_of(server)
                written = write(server, "bulk", rows["bulk"], TIMES)
                topic = fill(kafka, server, written)
                cases += [read(kafka, server, written, topic, name, arguments.repeats, progress) for name in readings]
        if latencies:
            with source(arguments.source) as server:
                version = version_of(server)
                latency.make_table(server)
                cases += [arrive(arguments, kafka, server, name, progress) for name in latencies]
    versions = {arguments.source: version, "canal": "1.1.7", "kafka": "4.1.1", "java": peers.java_version()}
    return {"versions": versions, "cases": cases}


def measure(
    kafka: Kafka, server: Server, written: Written, name: str, form: str, repeats: int, progress: Progress
) -> Case:
    """Measure a case, and sum it up."""
    records: dict[str, list[int]] = {name: [], CANAL: [], BARE: []}
    values: list[bytes] = []

    def deliver(contender: str, start: Callable[[str], contextlib.AbstractContextManager[int]]) -> Run:
        topic = make_topic(kafka)
        with start(topic) as pid:
            found, count = watch(kafka, topic, written, database=server.pid, server=pid, broker=kafka.pid)
        records[contender].append(count)
        if contender == name and not values:
            values.extend(itertools.islice(itertools.chain(*kafka.read(topic)), READY))
        return found

    turns: dict[str, Callable[[], Run]] = {
        name: functools.partial(deliver, name, functools.partial(ours, kafka, server, written, form)),
        CANAL: functools.partial(deliver, CANAL, functools.partial(canal, kafka, server, written, form)),
        BARE: lambda: send(kafka, values, records[name][0], written.rows),
    }
    results = take_turns(name, turns, repeats, progress)
    result = case(name, results[name], CANAL, results[CANAL])
    count = statistics.median(records[name])
    server_cpu, other_cpu = result["cpu_s_per_mrow"]["server"], result["anchor_cpu_s_per_mrow"]["server"]
    idle = memory.stay_idle(server).peak_mb["server"]
    bare = case(name, results[name], BARE, results[BARE])
    return result | {
        "goal": GOAL * result["anchor"],
        "server_cpu_ratio": round(other_cpu / server_cpu, 3) if server_cpu else None,
        "bare_ratio": bare["ratio"],
        "bare": bare["anchor"],
        "bare_spread": bare["anchor_spread"],
        "records": round(count),
        "anchor_records": round(statistics.median(records[CANAL])),
        "server_cpu_us_per_record": round(server_cpu * written.rows / count, 2),
        "memory_mb": round(result["peak_mb"]["server"] - idle, 1),
        "memory_goal_mb": MEMORY,
        "bytes_per_record": round(statistics.mean(map(len, values))),
    }


def compare(
    kafka: Kafka, server: Server, written: Written, name: str, form: str, repeats: int, progress: Progress
) -> Case:
    """Measure a form beside flat, and sum it up."""
    records: dict[str, list[int]] = {form: [], "flat": []}

    def deliver(form: str) -> Run:
        topic = make_topic(kafka)
        with ours(kafka, server, written, form, topic) as pid:
            found, count = watch(kafka, topic, written, database=server.pid, server=pid, broker=kafka.pid)
        records[form].append(count)
        return found

    turns = {name: functools.partial(deliver, form), "flat": functools.partial(deliver, "flat")}
    results = take_turns(name, turns, repeats, progress)
    result = case(name, results[name], "flat", results["flat"])
    count, other = (round(statistics.median(records[it])) for it in (form, "flat"))
    server_cpu = result["cpu_s_per_mrow"]["server"]
    return result | {
        "goal": OF_FLAT * result["anchor"],
        "records": count,
        "anchor_records": other,
        "server_cpu_us_per_record": round(server_cpu * written.rows / count, 2),
    }


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic that holds TiDB's secondary binlog of a workload."""

    name: str
    ends: list[tuple[str, int]]
    """Its places when each of the times was written, as the file and begin of positions."""


def fill(kafka: Kafka, server: Server, written: Written) -> Filled:
    """Make a topic of what is written."""
    topic = make_topic(kafka)
    with ours(kafka, server, written, "tidb", topic) as pid:
        watch(kafka, topic, written, server=pid)
    (values,) = kafka.read(topic)
    last = (values[len(values) * third // TIMES - 1] for third in (1, 2))
    return Filled(topic, [(f"{topic}.0", commit_ts_of(it) + 1) for it in last])


def read(
    kafka: Kafka, server: Server, written: Written, topic: Filled, name: str, repeats: int, progress: Progress
) -> Case:
    """Measure what reads a topic, and sum it up."""
    task = {"ends": topic.ends, "table": f"{SCHEMA}.{TABLES['bulk']}", "batch_size": None}
    rows = written.rows // TIMES
    if name in READERS:
        task |= {"way": READERS[name], "brokers": kafka.servers, "topic": topic.name}
        turns = {name: functools.partial(follow, "bench.client", task, rows, broker=kafka.pid)}
        return case(name, take_turns(name, turns, repeats, progress)[name]) | {"goal": READER_GOALS[name]}
    lines = (
        "sluice.instance.source = kafka",
        f"sluice.instance.kafka.brokers = {kafka.servers}",
        f"sluice.instance.kafka.topic = {topic.name}",
        "sluice.instance.kafka.commitTs = 1",
    )
    task |= {"way": "stream"}
    turns = {
        name: functools.partial(serve, lines, task, rows, broker=kafka.pid),
        BINLOG: functools.partial(by_way, server, written, "stream", TABLES["bulk"], None),
    }
    results = take_turns(name, turns, repeats, progress)
    result = case(name, results[name], BINLOG, results[BINLOG])
    return result | {"goal": OF_BINLOG * result["anchor"]}


def arrive(arguments: argparse.Namespace, kafka: Kafka, server: Server, name: str, progress: Progress) -> Case:
    """Measure how late rows come, and sum it up."""
    runs = []
    for _ in range(arguments.repeats):
        topic = make_topic(kafka)
        main = "canal.serverMode = kafka", *LATENCIES[name], *to_topic(kafka, "flat", topic)
        place = lines_for(f"{server.host}:{server.port}", server.user, server.password)
        with started({DESTINATION: place}, main=main) as sluice:
            task = {"servers": kafka.servers, "topic": topic}
            runs.append(latency.beat(arguments, PACE, task, [server], sluice))
        progress.done(f"{name}: p50 {runs[-1].latency['p50_ms']} ms, p99 {runs[-1].latency['p99_ms']} ms")
    goal = {"goal": {"p50_ms": GOAL_MS[name]}} if name in GOAL_MS else {}
    return latency.summary(name, runs) | goal


def warm_up(kafka: Kafka) -> None:
    """Let the broker's JVM compile what it needs: the first contender would pay for that."""
    for size, count in ((500, 2_000_000), (100_000, 10_000)):
        send(kafka, [bytes(size)], count, count)


def make_topic(kafka: Kafka) -> str:
    """Make a topic with one partition; return its name."""
    topic = f"bench{next(_topics)}"
    kafka.create(topic)
    return topic


@contextlib.contextmanager
def ours(kafka: Kafka, server: Server, written: Written, form: str, topic: str) -> Iterator[int]:
    """Deliver by our server; gives its process."""
    main = "canal.serverMode = kafka", *to_topic(kafka, form, topic)
    with started({DESTINATION: lines_of(server, written)}, main=main) as sluice:
        yield sluice.pid


@contextlib.contextmanager
def canal(kafka: Kafka, server: Server, written: Written, form: str, topic: str) -> Iterator[int]:
    """Deliver by Canal's server; gives its process."""
    with peers.canal(server, written, *AS_SHIPPED, *to_topic(kafka, form, topic)) as (_, pid):
        yield pid


def to_topic(kafka: Kafka, form: str, topic: str) -> Iterator[str]:
    """Give the lines of the main file that say where the records go."""
    yield f"kafka.bootstrap.servers = {kafka.servers}"
    yield f"canal.mq.topic = {topic}"
    if form in ("flat", "canal"):
        yield f"canal.mq.flatMessage = {str(form == 'flat').lower()}"
    else:
        yield f"sluice.output.mq.format = {form}"


def watch(kafka: Kafka, topic: str, written: Written, **pids: int) -> tuple[Run, int]:
    """Watch a topic until all is there; return what the middle third took, and the number of records of all."""
    asker = Consumer({"bootstrap.servers": kafka.servers, "group.id": "bench"})
    moments: list[Moment] = []
    try:
        while not moments or not moments[-1].records or moments[-1].at < quiet_since(moments) + QUIET:
            _, end = asker.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
            cpu = {name: cpu_of(pid) for name, pid in pids.items()}
            moments.append(Moment(time.monotonic(), end, cpu))
            time.sleep(PAUSE)
    finally:
        asker.close()
    records = moments[-1].records
    first, last = (moment_of(moments, records * third // TIMES) for third in (1, 2))
    used = {name: last.cpu[name] - first.cpu[name] for name in pids}
    peaks = {name: peak_of(pid) for name, pid in pids.items()}
    seconds = max(last.at - first.at, PAUSE)  # a few rows come at once
    return Run(written.rows // TIMES, seconds, used, peaks), records


def quiet_since(moments: list[Moment]) -> float:
    """Return since when the number of records is what it is now."""
    return moments[bisect_left(moments, moments[-1].records, key=lambda it: it.records)].at


def moment_of(moments: list[Moment], records: int) -> Moment:
    """Return the first moment at which ``records`` records were there."""
    return moments[bisect_left(moments, records, key=lambda it: it.records)]


def send(kafka: Kafka, values: list[bytes], records: int, rows: int) -> Run:
    """Send values of an output as fast as the library can; the rate is that of the rows which they stand for."""
    topic = make_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.servers, **DEFAULTS, **FIXED})
    seconds = 0.0
    for _ in range(2):  # to warm up, and to measure
        begin = time.monotonic()
        for value in itertools.islice(itertools.cycle(values), records // TIMES):
            while True:
                try:
                    producer.produce(topic, value, None, 0)
                except BufferError:
                    producer.poll(0.1)
                    continue
                break
        while producer.flush(1):
            continue
        seconds = time.monotonic() - begin
    return Run(rows // TIMES, seconds)
