"""Spark's exactly-once: each change reaches each sink once and in order, whatever of the chain is killed when.

A driver with several queries reads a server, which reads a source, while a writer goes on. What is killed: the
driver's process group, workers of its executor (their tasks are tried again), the processes that control a query's
source, the server; at random moments, and at those that are hard to hit: see PLACES.
"""

import math
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.spark_driver import Order, Ranges
from tests.faults.spark_harness import TABLES, Driver, Traffic, appended, count_logged, logged, older_spark, state
from tests.servers import Server, freeze
from tests.waiting import eventually

pytestmark = pytest.mark.extended

CLIENTS = {"ranges": "2001", "changelog": "2002", "mirror": "2003"}
SOURCES = ("mysql97", "mariadb118")
"""One is the source, the other the target."""
SEEDS = {1: ("gap", "reader"), 2: ("applied", "anywhere", "planned")}
"""Where a driver's lives end, the last apart."""

SPARK = ".".join(pyspark.__version__.split(".")[:2])
OLDER = (("4.1", 1), ("4.2", 2))
"""Older versions, each with the seed that `make test-all` tries."""
BACKLOG = 60
"""Transactions while a driver starts: what a slow machine can catch up with."""


class Play:
    """A source, a server and a driver, to be killed."""

    def __init__(self, sluice: Sluice, driver: Driver, seed: int) -> None:
        self.sluice = sluice
        self.driver = driver
        self.order = driver.order
        self.chance = random.Random(seed)

    def pause(self) -> None:
        """Let the killed one get some work done, or none."""
        time.sleep(self.chance.uniform(0.0, 1.5))

    def kill_server(self) -> None:
        self.sluice.kill()
        time.sleep(self.chance.uniform(0.0, 0.5))
        self.sluice.start()

    def kill_worker(self) -> None:
        os.kill(self.chance.choice(self.driver.workers()).pid, signal.SIGKILL)

    def trouble(self) -> None:
        """Kill servers and workers under the living driver."""
        victims = [self.kill_worker, self.kill_worker, self.kill_server]
        self.chance.shuffle(victims)
        for kill in victims:
            self.pause()
            kill()
        self.driver.wait(lambda: True, "the driver survives its workers and the server")

    # --- ends of a driver

    def anywhere(self) -> None:
        """At a random moment."""
        self.pause()
        self.driver.kill()

    def reader(self) -> None:
        """By the process that controls a query's source: the query ends, and the driver with an error."""
        self.pause()
        os.kill(self.chance.choice(self.driver.readers()).pid, signal.SIGKILL)
        eventually(lambda: self.driver.process.poll() is not None, self.driver.tail)
        assert self.driver.process.poll() == 1, self.driver.tail()
        self.driver.wait_gone()

    def planned(self) -> None:
        """Behind offsets/N, before anything of the micro-batch is applied."""
        batch = self.hold("planned")
        self.driver.kill()
        assert (self.order.planned("ranges"), self.order.done("ranges")) == (batch, batch - 1)

    def applied(self) -> None:
        """Behind the sink's transaction, before commits/N."""
        batch = self.hold("applied")
        self.driver.kill()
        assert (self.order.planned("ranges"), self.order.done("ranges")) == (batch, batch - 1)

    def gap(self) -> None:
        """Behind commits/N, before offsets/N+1: what comes next is asked of a server that does not answer now."""
        batch = self.hold("applied")
        freeze(self.sluice.process.pid)
        (Path(self.order.folder) / "hold").unlink()
        self.driver.wait(lambda: self.order.done("ranges") == batch, "commits/N")
        self.driver.kill()
        assert (self.order.planned("ranges"), self.order.done("ranges")) == (batch, batch)
        if self.chance.random() < 0.5:
            self.kill_server()  # it has not seen the ack
        else:
            self.sluice.process.send_signal(signal.SIGCONT)

    def hold(self, place: str) -> int:
        """Have the sink of ranges wait at a place, and return the number of its micro-batch."""
        folder = Path(self.order.folder)
        (folder / "hold").write_text(place)
        self.driver.wait((folder / "held").exists, "the sink waits")
        return self.order.planned("ranges")

    def release(self) -> None:
        """Let no sink wait any more."""
        for name in ("hold", "held"):
            (Path(self.order.folder) / name).unlink(missing_ok=True)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("spark", "seed"),
    [
        (SPARK, 1),
        *(
            pytest.param(SPARK, seed, marks=pytest.mark.extended if seed in SEEDS else pytest.mark.soak)
            for seed in range(2, 40)
        ),
        *(pytest.param(spark, seed, marks=pytest.mark.extended) for spark, seed in OLDER),
        *(pytest.param(spark, 3 - seed, marks=pytest.mark.soak) for spark, seed in OLDER),
    ],
)
def test_each_change_arrives_once_whatever_is_killed(
    request: pytest.FixtureRequest, sluice: Sluice, database: Database, tmp_path: Path, spark: str, seed: int
) -> None:
    source: Server = request.getfixturevalue(SOURCES[seed % 2])
    target: Server = request.getfixturevalue(SOURCES[1 - seed % 2])
    schema, copy = database(source), database(target)
    target.script(TABLES + Ranges.TABLES, database=copy)
    chance = random.Random(seed)
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
    (tmp_path / "spark").mkdir()
    python = sys.executable if spark == SPARK else older_spark(spark)
    order = order_of(tmp_path / "spark", sluice, schema, target, copy, python, limited=spark != "4.1")
    traffic = Traffic(source, schema, seed)
    places = SEEDS.get(seed) or chance.choices(("anywhere", "anywhere", "reader", "planned", "applied", "gap"), k=5)
    with sluice, Driver(order) as driver:
        sluice.wait_running()
        play = Play(sluice, driver, seed)
        with traffic:
            for place in places:
                traffic.allow(BACKLOG)
                driver.start()
                traffic.allow(math.inf)  # there is work wherever it ends
                play.trouble()
                getattr(play, place)()
                play.release()
            traffic.allow(BACKLOG)
            driver.start()
            traffic.allow(math.inf)
            play.trouble()
            traffic.finish()
        driver.wait(
            lambda: target.query("SELECT COUNT(*) FROM appended", database=copy)[0][0] >= len(traffic.changes),
            "all changes are appended",
        )
        if spark == "4.1":  # where the last ack waits for a next micro-batch
            driver.wait(lambda: state(target, copy) == traffic.state(), "all changes are mirrored")
            driver.wait(lambda: count_logged(order) >= len(traffic.changes), "all changes are logged")
        else:
            driver.wait(lambda: all(rows_behind(sluice, client) == 0 for client in CLIENTS.values()), "all is acked")
        driver.stop()
    check(order, traffic, target, copy)
    assert appended(target, copy) == traffic.changes
    assert logged(order) == traffic.changes
    assert state(target, copy) == traffic.state()


def order_of(
    folder: Path, sluice: Sluice, schema: str, target: Server, copy: str, python: str, *, limited: bool
) -> Order:
    """Three queries, each a client of its own, with micro-batches of several sizes."""
    options = {name: {"url": sluice.url, "destination": "shop", "clientId": client} for name, client in CLIENTS.items()}
    if limited:
        options["ranges"] |= {"maxRowsPerTrigger": "1000"}
    connect: dict[str, Any] = {
        "host": target.host,
        "port": target.port,
        "user": target.user,
        "password": target.password,
        "database": copy,
        "charset": "utf8mb4",
    }
    return Order(str(folder), connect, schema, options, python)


def rows_behind(sluice: Sluice, client: str) -> int:
    """How many rows a client has not acked of those that the server has."""
    return int(sluice.call("GET", f"/shop/clients/{client}")["lag"]["rows"])


def check(order: Order, traffic: Traffic, target: Server, copy: str) -> None:
    """Compare what was written with what the source has, and a range with its repetitions."""
    assert state(traffic.source, traffic.schema) == traffic.state()
    assert len(traffic.changes) > 500
    attempts = target.query("SELECT batch, begin, end, digest FROM attempts ORDER BY n", database=copy)
    batches = {batch: (begin, end, digest) for batch, begin, end, digest in attempts}
    assert set(attempts) == {(batch, *rest) for batch, rest in batches.items()}, "a repeated range is the same"
    assert list(batches) == list(range(len(batches)))
    print(f"{len(traffic.changes)} changes, {len(batches)} micro-batches, {len(attempts) - len(batches)} repeated")  # noqa: T201
