"""The log of a pump as the source of a destination, beside the pump and without it: what comes, and from where."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sluice.client_sdk import Client
from sluice.instance.pump.log import PumpLog
from sluice.instance.sources.pump.config import PumpLogConfig
from sluice.protocol import props
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Change
from sluice.protocol.errors import PurgedError, UnknownTableError
from sluice.protocol.tidb import secondary_pb2 as secondary
from sluice.protocol.tidb.binlog_pb2 import Binlog, Commit, Prewrite
from sluice.protocol.tidb.transactions import TidbEncoder
from sluice.protocol.wire import varint
from sluice.server.embedded import EmbeddedServer
from tests import commands, tidb
from tests.integration.grpc.process import Server
from tests.integration.grpc.served import CLUSTER, calling, heartbeat
from tests.pump import INSERT, field, integer, mutation, pairs, text
from tests.reading import embedded
from tests.servers.kafka import Kafka
from tests.tidb_server import TidbServer
from tests.topics import take
from tests.unit.tidb.test_rows import as_drainer_but
from tests.waiting import soon

ORDERS, CLUSTERED, VERSION = 86, 92, 49
"""Ids of tables of the capture, and a version of the schema that has them."""
FILE = f"{CLUSTER}.tso.0"


def configure(server: Server, **settings: object) -> None:
    """Add a destination that reads the log of the server's own pump, from its beginning."""
    (server.folder / "jobs.json").write_bytes(tidb.history())
    file = server.folder / "canal.properties"
    file.write_text(f"{file.read_text()}\ncanal.destinations = tidb\n")
    keys = {
        "source": "pump",
        "timeZone": "UTC",
        "pump.history": "jobs.json",
        "pump.commitTs": 1,
        **settings,
    }
    (server.folder / "tidb").mkdir()
    lines = [f"sluice.instance.{key} = {value}\n" for key, value in keys.items()]
    (server.folder / "tidb" / "instance.properties").write_text("".join(lines))


def records(client: Client, last: bytes) -> list[bytes]:
    """Return what a client gets as records of TiDB's secondary binlog, up to one of them."""
    encoder, found = TidbEncoder(limit=1 << 20), list[bytes]()
    while last not in found:
        batch = client.get_without_ack(timeout=20)
        assert batch, f"{len(found)} records came"
        messages = Messages.FromString(batch.data).messages
        framed = Messages(messages=messages).SerializeToString()
        found += encoder.encode([framed], 1, positions=varint(4) * 2 * len(messages)).values
        client.ack(batch)
    return found


async def test_what_a_tidb_writes_to_a_pump_is_what_the_real_drainer_writes_also_after_kill_9(tmp_path: Path) -> None:
    server = Server(tmp_path)
    configure(server)
    expected = [as_drainer_but(it.value).SerializeToString() for it in tidb.captured()]
    messages = tidb.written()
    found = list[bytes]()
    with server.running() as process:
        with Client(server.url, "tidb") as client:
            client.subscribe()
            async with calling(server.socket) as caller:
                for message in messages[:70]:
                    assert not (await caller.write(message.payload)).errmsg
            found += await asyncio.to_thread(records, client, expected[20])
            status = server.status()
            assert status.returncode == 0, status.stdout
        process.kill()
    with server.running() as process, Client(server.url, "tidb") as client:
        client.subscribe()
        async with calling(server.socket) as caller:
            for message in messages[70:]:
                assert not (await caller.write(message.payload)).errmsg
        found += await asyncio.to_thread(records, client, expected[-1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    found = list(dict.fromkeys(found))  # what was not acked durably comes again
    assert [secondary.Binlog.FromString(it) for it in found] == [secondary.Binlog.FromString(it) for it in expected]
    assert found == expected


async def test_an_output_in_the_form_of_tidb_keeps_the_commit_ts(tmp_path: Path, kafka: Kafka) -> None:
    server = Server(tmp_path)
    configure(server)
    topic = "of-a-pump"
    lines = [
        "sluice.outputs = obinlog",
        f"kafka.bootstrap.servers = {kafka.servers}",
        "sluice.output.obinlog.format = tidb",
        f"sluice.output.obinlog.topic = {topic}",
    ]
    with (server.folder / "tidb" / "instance.properties").open("a") as file:
        file.write("\n".join(lines))
    kafka.create(topic)
    with server.running():
        async with calling(server.socket) as caller:
            for message in tidb.written():
                assert not (await caller.write(message.payload)).errmsg
        expected = [as_drainer_but(it.value).SerializeToString() for it in tidb.captured()]
        await soon(lambda: len(kafka.read(topic)[0]) >= len(expected), lambda: server.status().stdout)
    assert kafka.read(topic) == [expected]


# --- without a server ------------------------------------------------------------------------------------------------


class Pump:
    """A pump's log, written to by a test."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder / "pump"
        self.folder.mkdir(exist_ok=True)
        self.log = PumpLog(self.folder, CLUSTER, **settings)

    def write(self, *payloads: bytes) -> None:
        assert self.log.store(payloads) == [None] * len(payloads)

    def commit(self, commit_ts: int, *mutations: bytes, version: int = VERSION) -> None:
        """Write both halves of a transaction."""
        value = field(1, version) + b"".join(field(2, it) for it in mutations)
        start = Binlog(tp=Prewrite, start_ts=commit_ts - 1, prewrite_key=b"k", prewrite_value=value)
        end = Binlog(tp=Commit, start_ts=commit_ts - 1, commit_ts=commit_ts, prewrite_key=b"k")
        self.write(start.SerializeToString(), end.SerializeToString())

    def insert(self, *commits: int, table: int = ORDERS, version: int = VERSION) -> None:
        """Insert a row with the id of its commit_ts, for each of them."""
        for it in commits:
            row = integer(it) + pairs([(2, text("x"))])
            self.commit(it, mutation(table, [(INSERT, row)]), version=version)


@pytest.fixture
async def pump(tmp_path: Path) -> AsyncIterator[Pump]:
    made = Pump(tmp_path)
    yield made
    await made.log.close()


@contextlib.asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[EmbeddedServer]:
    """Run the destination ``example``, and subscribe."""
    history = folder / "jobs.json"
    if not history.exists():
        history.write_bytes(tidb.history())
    keys = {
        "sluice.pump.dir": "pump",
        "sluice.pump.clusterId": CLUSTER,
        "sluice.instance.pump.history": "jobs.json",
        "canal.instance.destination": "example",
        "canal.file.data.dir": folder,
        "canal.file.flush.period": 10,
        **settings,
    }

    async with embedded(PumpLogConfig.model_validate(keys, context={"folder": folder})) as server:
        await server.subscribe("example", 1001)
        yield server


def ids(changes: list[Change]) -> list[int]:
    return [it.after["id"] for change in changes for it in change.rows() if it.after is not None]


async def running(server: EmbeddedServer) -> None:
    await soon(lambda: server.destination_status("example").state == "running")


async def test_a_change_comes_while_the_pump_writes_and_names_its_commit_ts_as_the_offset(
    pump: Pump, tmp_path: Path
) -> None:
    pump.insert(5 << 18)
    async with serving(tmp_path) as server:
        await running(server)
        pump.insert(7 << 18)
        (found,) = await take(server, 1)
    assert ids([found]) == [7 << 18]  # without a cursor it begins at the end
    assert (found.logfile_name, found.logfile_offset, found.execute_time) == (FILE, 7 << 18, 7)


async def test_it_goes_on_after_what_was_acked_also_without_the_pump(tmp_path: Path) -> None:
    pump = Pump(tmp_path)
    pump.insert(10)
    async with serving(tmp_path) as server:
        await running(server)
        pump.insert(20)
        assert ids(await take(server, 1)) == [20]
        await soon((tmp_path / "example" / "meta.dat").exists)
    pump.insert(30)
    await pump.log.close()
    async with serving(tmp_path) as server:
        assert ids(await take(server, 1)) == [30]


async def test_a_client_begins_at_a_time_or_with_the_oldest_transaction(pump: Pump, tmp_path: Path) -> None:
    pump.insert(5 << 18, 6 << 18, 7 << 18)
    async with serving(tmp_path) as server:
        await running(server)
        await server.seek("example", 1001, {"timestamp": 6})
        assert ids(await take(server, 2)) == [6 << 18, 7 << 18]
        await server.seek("example", 1001, "oldest")
        assert ids(await take(server, 3)) == [5 << 18, 6 << 18, 7 << 18]


async def test_heartbeats_move_a_client_on_that_has_acked_all(pump: Pump, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await running(server)
        pump.insert(10)
        assert ids(await take(server, 1)) == [10]
        pump.write(heartbeat(1000))
        await soon(lambda: f"tidb/{FILE}@0:1001:0" in (tmp_path / "example" / "meta.dat").read_text())


async def test_what_the_pump_has_removed_is_gone(tmp_path: Path) -> None:
    pump = Pump(tmp_path, file_size=200)
    async with serving(tmp_path, **{"sluice.instance.pump.commitTs": 1}) as server:
        pump.insert(10)
        assert ids(await take(server, 1)) == [10]
        await soon((tmp_path / "example" / "meta.dat").exists)
    pump.insert(*range(20, 90, 10))
    await pump.log.collect(70)
    collected = pump.log.collected
    assert 10 < collected <= 70
    async with serving(tmp_path) as server:
        await soon(lambda: "the changes in between were removed" in server.destination_status("example").error)
        with pytest.raises(PurgedError, match=r"has all that committed after \d+, and not all"):
            await server.seek("example", 1001, {"timestamp": 0})
    async with serving(tmp_path, **{"canal.auto.reset.latest.pos.mode": "true"}) as server:
        marker, *rest = await take(server, 2)
        assert "the changes in between were removed" in marker.header_props[props.GAP]
        assert ids(rest)[0] == collected + 10
    await pump.log.close()


async def test_a_later_history_is_read_for_a_statement_and_for_a_version_that_it_lacks(
    pump: Pump, tmp_path: Path
) -> None:
    jobs = [it for it in json.loads(tidb.history()) if it["binlog"]["SchemaVersion"] < VERSION]
    known = max(it["binlog"]["SchemaVersion"] for it in jobs)
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    async with serving(tmp_path) as server:
        await running(server)
        pump.insert(10, version=known)
        assert ids(await take(server, 1)) == [10]
        pump.insert(20)
        ddl = Binlog(tp=Prewrite, start_ts=29, ddl_query=b"DROP TABLE `t`;", ddl_job_id=1000)
        pump.write(ddl.SerializeToString(), Binlog(tp=Commit, start_ts=29, commit_ts=30).SerializeToString())
        await soon(lambda: f"a change is of version {VERSION}" in server.destination_status("example").error)
        (tmp_path / "jobs.json").write_bytes(tidb.history())
        assert ids(await take(server, 1)) == [20]
        await soon(lambda: "has no job 1000" in server.destination_status("example").error)
        job = {"id": 1000, "type": 4, "schema_id": 84, "table_id": 86, "schema_name": "shop"}
        last = {**job, "binlog": {"SchemaVersion": 1000, "TableInfo": {"id": 86, "name": {"O": "t"}, "cols": []}}}
        (tmp_path / "jobs.json").write_text(json.dumps([*json.loads(tidb.history()), last]))
        (found,) = await take(server, 1)
        assert (found.schema, found.table, found.sql) == ("shop", "t", "DROP TABLE `t`")
        await running(server)


async def test_a_tidb_is_asked_for_the_history(pump: Pump, tmp_path: Path) -> None:
    with TidbServer() as asked:
        asked.jobs = json.loads(tidb.history())
        newest = max(it["binlog"]["SchemaVersion"] for it in asked.jobs)
        settings = {"sluice.instance.pump.history": None, "sluice.pump.tidbStatus": asked.status}
        async with serving(tmp_path, **settings) as server:
            await running(server)
            pump.insert(10, version=newest + 5)  # a job is under way, which has made versions
            (found,) = await take(server, 1)
    assert (found.schema, found.table) == ("shop", "orders2")


async def test_a_history_that_does_not_come_is_named_and_it_goes_on_when_it_does(pump: Pump, tmp_path: Path) -> None:
    with TidbServer() as asked:
        settings = {
            "sluice.instance.pump.history": None,
            "sluice.pump.tidbStatus": f"http://127.0.0.1:9,{asked.status}",
        }
        asked.jobs = {}
        async with serving(tmp_path, **settings) as server:
            await soon(lambda: "not a history of TiDB's DDL jobs" in server.destination_status("example").error)
            asked.jobs = json.loads(tidb.history())
            await running(server)
        address = asked.status
    async with serving(tmp_path, **{**settings, "sluice.pump.tidbStatus": address}) as server:
        await soon(lambda: "TiDB does not report its DDL jobs" in server.destination_status("example").error)
        assert address in server.destination_status("example").error


async def test_tables_and_columns_are_those_of_the_history_and_of_the_last_change(pump: Pump, tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await running(server)
        assert "shop.orders2" in await server.tables("example")
        assert "shop.clustered" not in await server.tables("example")  # it was dropped
        columns = await server.columns("example", "shop", "orders2")
        assert [(it.name, it.is_key) for it in columns][:2] == [("id", True), ("customer", False)]
        with pytest.raises(UnknownTableError):
            await server.columns("example", "shop", "orders")
        pump.insert(10)
        assert ids(await take(server, 1)) == [10]
        assert [it.name for it in await server.columns("example", "shop", "orders")][-1] == "note"


async def test_changes_that_cannot_be_decoded_are_quarantined_and_given_when_the_history_explains_them(
    tmp_path: Path,
) -> None:
    jobs = json.loads(tidb.history())
    without = [it for it in jobs if it["table_id"] != ORDERS]
    server = Server(tmp_path)
    configure(server)
    (tmp_path / "jobs.json").write_text(json.dumps(without))
    with server.running(), Client(server.url, "tidb") as client:
        client.subscribe()
        row = integer(7) + pairs([(2, text("x"))])
        value = field(1, VERSION) + field(2, mutation(ORDERS, [(INSERT, row)]))
        async with calling(server.socket) as caller:
            start = Binlog(tp=Prewrite, start_ts=9, prewrite_key=b"k", prewrite_value=value)
            end = Binlog(tp=Commit, start_ts=9, commit_ts=10, prewrite_key=b"k")
            for it in (start, end):
                assert not (await caller.write(it.SerializeToString())).errmsg
        batch = client.get_without_ack(timeout=20)
        assert [props.QUARANTINE in it.header_props for it in batch.changes()] == [False, True, False]
        client.ack(batch)
        assert "1 row event in quarantine" in server.status().stdout
        (tmp_path / "jobs.json").write_bytes(tidb.history())
        done = commands.run("quarantine", "retry", "tidb", "--url", server.url)
        assert done.returncode == 0, done.stdout + done.stderr
        late = client.get_without_ack(timeout=20)
        assert list(Messages.FromString(late.data).positions) == [10, 1]
        assert [it.after for it in late.rows()] == [{"id": 7, "customer": "x", "amount": None, "note": None}]


async def test_changes_that_cannot_be_decoded_stop_a_destination_without_quarantine_or_are_dropped(
    pump: Pump, tmp_path: Path
) -> None:
    settings = {"sluice.instance.quarantine": "false", "sluice.instance.pump.commitTs": 1}
    pump.insert(10)
    pump.insert(20, table=999)
    pump.insert(30)
    async with serving(tmp_path, **settings) as server:
        assert ids(await take(server, 1, ack=False)) == [10]
        await soon(lambda: "table 999 at version 49 of the schema" in server.destination_status("example").error)
        assert server.destination_status("example").state == "error"
    async with serving(tmp_path, **{**settings, "sluice.instance.quarantine": "true"}) as server:
        found = await take(server, 3)
        assert [props.QUARANTINE in it.header_props for it in found] == [False, True, False]
        assert server.destination_status("example").parser.quarantined == 1
    settings = {"canal.instance.filter.table.error": "true", "canal.file.data.dir": tmp_path / "other"}
    async with serving(tmp_path, **settings, **{"sluice.instance.pump.commitTs": 1}) as server:
        assert ids(await take(server, 2)) == [10, 30]
        assert server.destination_status("example").parser.quarantined == 0


async def test_filters_and_a_table_that_is_left_out_needs_no_definition(pump: Pump, tmp_path: Path) -> None:
    settings = {"canal.instance.filter.regex": r"shop\.clustered", "sluice.instance.quarantine": "false"}
    async with serving(tmp_path, **settings) as server:
        await running(server)
        pump.insert(10)
        pump.commit(15, mutation(ORDERS, [(INSERT, b"\xff")]))
        pump.commit(20, mutation(CLUSTERED, [(INSERT, text("k") + pairs([(1, text("k"))]))]))
        (found,) = await take(server, 1)
        assert (found.table, found.logfile_offset) == ("clustered", 20)


async def test_a_log_of_another_cluster_or_none_is_refused_and_read_when_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "pump").mkdir()
    async with serving(tmp_path) as server:
        await soon(lambda: "no pump has written into" in server.destination_status("example").error)
        pump = Pump(tmp_path)
        await running(server)
        assert not server.destination_status("example").error
        await pump.log.close()
    other = {"sluice.pump.clusterId": 7, "canal.file.data.dir": tmp_path / "other"}
    async with serving(tmp_path, **other) as server:
        await soon(lambda: f"belongs to the cluster {CLUSTER}" in server.destination_status("example").error)


def test_check_names_the_log_and_a_missing_history(tmp_path: Path) -> None:
    server = Server(tmp_path)
    configure(server)
    done = commands.run("check", "--conf", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no pump has written into" in done.stdout
    with server.running():
        pass
    done = commands.run("check", "--conf", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the log of a pump in {tmp_path / 'pump'}, of the cluster {CLUSTER}: after 0, to commit_ts 0" in done.stdout
    (tmp_path / "jobs.json").unlink()
    done = commands.run("check", "--conf", str(tmp_path))
    assert done.returncode == 1
    assert "the history of TiDB's DDL jobs cannot be read" in done.stdout + done.stderr
