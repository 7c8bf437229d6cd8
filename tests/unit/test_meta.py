"""Stored subscriptions: Canal's file, whole at any moment, and errors that say what to do."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from sluice.instance.meta import MetaKind
from sluice.instance.meta.base import HeldError, InUse, epoch_by_clock
from sluice.instance.meta.canal import dumps, log_position, read_cursor
from sluice.instance.meta.file import FileMetaStore, client_data
from sluice.instance.meta.memory import MemoryMetaStore
from sluice.instance.meta.nodes import NodeError
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.protocol.cut import ONE, parse_executed
from sluice.protocol.errors import ConfigError
from sluice.protocol.gtid import parse_gtids
from sluice.protocol.position import Position
from sluice.store.allowance import Limits
from sluice.store.cursor import Changes, Cursor, StoredClient
from sluice.store.moves import Move, Reason

POSITION = Position("101", "mariadb-bin.000003", 1_700_000_000, 1520, 0)
CURSOR = Cursor("mariadb-bin.000003", 1489, 1_700_000_000_000, 101, "0-101-7", POSITION, POSITION)
CLIENT = StoredClient(1001, r"shop\..*", CURSOR)
UUID = "bc7850-2c16-11e6-a073-0242ac110002:1-5"  # without the first two digits


def make(folder: Path, destination: str = "example") -> FileMetaStore:
    return FileMetaStore(folder, destination, ("localhost", 3306))


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[FileMetaStore, int, list[StoredClient]]]:
    store = make(folder)
    epoch, clients = await store.open()
    yield store, epoch, clients
    await store.close()


def path(folder: Path) -> Path:
    return folder / "example" / "meta.dat"


def canals_file(*places: dict[str, object]) -> str:
    """A file with a client for each of these places, as Canal writes it."""
    clients = [
        {
            "clientIdentity": {"clientId": 1001 + number, "destination": "example", "filter": ""},
            "cursor": {"identity": {"slaveId": -1}, "postion": place},
        }
        for number, place in enumerate(places)
    ]
    return json.dumps({"clientDatas": clients, "destination": "example"})


async def test_jumps_are_read_again_and_outlive_their_client(tmp_path: Path) -> None:
    move = Move(Reason.SEEK, "a", "b", "alice", 1)
    async with opened(tmp_path) as (store, epoch, _):
        await store.write(Changes({1001: CLIENT}, {1001: [move]}), epoch)
        await store.write(Changes({1001: None}, {1002: [move, move]}), epoch)
    async with opened(tmp_path) as (store, epoch, clients):
        assert clients == []
        assert store.moves == {1001: (move,), 1002: (move, move)}
        await store.write(Changes({}, {1001: ()}), epoch)
    data = path(tmp_path).read_text()
    assert json.loads(data)["sluice"]["moves"].keys() == {"1002"}
    path(tmp_path).write_text(data.replace('"seek"', '"sought"'))
    with pytest.raises(ConfigError, match="is not a file of subscriptions"):
        async with opened(tmp_path):
            pass


async def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    without_cursor = StoredClient(
        -5,
        expire_after=600,
        memory='{"shop": "an id"}',
        moved="1767225600000-ab",
        protected=True,
        where="shop.orders: total > 10 AND note = 'ä\\\\'",
        output="mq",
        refused="2026-01-01T00:00:00+00:00 rollback",
        owner="billing",
        late=("101/binlog.000007@1700000000:4:1", "101/binlog.000007@1700000000:4:2"),
        limits=Limits(1000, 0),
        used="20000:77",
    )
    async with opened(tmp_path) as (store, epoch, clients):
        assert (epoch, clients) == (1, [])
        await store.write(Changes({1001: CLIENT, -5: without_cursor}), 1)
    async with opened(tmp_path) as (store, epoch, clients):
        assert (epoch, clients) == (2, [CLIENT, without_cursor])
        await store.write(Changes({-5: None}), 2)
    async with opened(tmp_path) as (_, epoch, clients):
        assert (epoch, clients) == (3, [CLIENT])


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ('moved 1767225600000-ab {\\"shop\\": \\"an id\\"}', ('{"shop": "an id"}', "1767225600000-ab")),
        ("moved 1767225600000-ab ", ("", "1767225600000-ab")),
        ('{\\"shop\\": \\"an id\\"}', ('{"shop": "an id"}', "")),
    ],
    ids=["with a text", "without a text", "none"],
)
async def test_a_move_by_hand_that_an_earlier_version_has_stored_is_read(
    tmp_path: Path, memory: str, expected: tuple[str, str]
) -> None:
    identity = '{"clientId":1001,"destination":"example","filter":""}'
    client = f'{{"clientIdentity":{identity},"sluice":{{"memory":"{memory}","output":"mq"}}}}'
    path(tmp_path).parent.mkdir()
    path(tmp_path).write_text(f'{{"clientDatas":[{client}],"destination":"example","sluice":{{"epoch":1}}}}')
    async with opened(tmp_path) as (_, _, [found]):
        assert (found.memory, found.moved) == expected


@pytest.mark.parametrize(("key", "value"), [("maxRate", "-1"), ("quota", "1" * 30), ("used", "77"), ("used", "1:x")])
async def test_limits_that_make_no_sense_are_refused(tmp_path: Path, key: str, value: str) -> None:
    limited = StoredClient(1001, limits=Limits(1000, 2000), used="20000:77")
    async with opened(tmp_path) as (store, epoch, _):
        await store.write(Changes({1001: limited}), epoch)
    data = json.loads(path(tmp_path).read_text())
    data["clientDatas"][0]["sluice"][key] = value
    path(tmp_path).write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="is not a file of subscriptions"):
        async with opened(tmp_path):
            pass


async def test_epoch_is_durable_before_the_first_batch(tmp_path: Path) -> None:
    async with opened(tmp_path):
        assert json.loads(path(tmp_path).read_text())["sluice"] == {"epoch": 1}


async def test_epoch_that_the_marks_have_reached_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _, _):
        await store.write(Changes({}), 5)
    async with opened(tmp_path) as (_, epoch, _):
        assert epoch == 6


async def test_file_is_canals(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _, _):
        await store.write(Changes({1001: CLIENT}), 1)
    assert json.loads(path(tmp_path).read_text()) == {
        "clientDatas": [
            {
                "clientIdentity": {"clientId": 1001, "destination": "example", "filter": r"shop\..*"},
                "cursor": {
                    "identity": {"slaveId": -1, "sourceAddress": {"address": "localhost", "port": 3306}},
                    "postion": {
                        "gtid": "0-101-7",
                        "included": False,
                        "journalName": "mariadb-bin.000003",
                        "position": 1489,
                        "serverId": 101,
                        "timestamp": 1_700_000_000_000,
                    },
                },
                "sluice": {"delivered": str(POSITION), "position": str(POSITION)},
            }
        ],
        "destination": "example",
        "sluice": {"epoch": 1},
    }


async def test_how_far_back_a_cursor_goes_is_kept(tmp_path: Path) -> None:
    client = replace(CLIENT, cursor=replace(CURSOR, restart=replace(POSITION, begin=4)))
    async with opened(tmp_path) as (store, _, _):
        await store.write(Changes({1001: client}), 1)
    async with opened(tmp_path) as (_, _, clients):
        assert clients == [client]


async def test_file_that_canal_wrote_is_understood(tmp_path: Path) -> None:
    path(tmp_path).parent.mkdir()
    path(tmp_path).write_text(
        '{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"example","filter":""},'
        '"cursor":{"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":3306}},'
        '"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000003","position":1520,"serverId":1,'
        '"timestamp":1700000000000}}},{"clientIdentity":{"clientId":2,"destination":"example"}}],'
        '"destination":"example"}'
    )
    async with opened(tmp_path) as (_, epoch, clients):
        assert clients == [
            StoredClient(1001, "", Cursor("mysql-bin.000003", 1520, 1_700_000_000_000, 1)),
            StoredClient(2),
        ]
        assert epoch > 1, "an unknown number of lives came before"


@pytest.mark.parametrize("file", ["", "mysql-bin", "mysql-bin.", "mysql-bin.x", "mysql-bin.²", "bin." + "9" * 5000])
async def test_cursor_of_canal_whose_file_has_no_number_stands_before_all_others(tmp_path: Path, file: str) -> None:
    path(tmp_path).parent.mkdir()
    places = ({"journalName": name, "position": 4} for name in ("mysql-bin.000003", file))
    path(tmp_path).write_text(canals_file(*places))
    store = FileMetaStore(tmp_path, "example", ("localhost", 3306), parse=True)
    epoch, clients = await store.open()
    assert [client.cursor and client.cursor.order for client in clients] == [(3, 4, 0), (0, 4, 0)]
    await store.write(Changes({client.client_id: client for client in clients}), epoch)
    await store.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"destination": "example", "clientDatas": [{}]}',
        '{"destination": "other"}',
        "\x00" * 100,
        "[" * 100_000,
        canals_file({"journalName": "mysql-bin.000003", "position": -1}),
        canals_file({"journalName": "mysql-bin.000003", "position": 1 << 63}),
        canals_file({"journalName": "mysql-bin.000003", "position": math.inf}),
        canals_file({"journalName": "mysql-bin.000003", "position": 4, "timestamp": math.inf}),
    ],
)
async def test_broken_or_foreign_file_is_an_error_and_stays_unchanged(tmp_path: Path, text: str) -> None:
    path(tmp_path).parent.mkdir()
    path(tmp_path).write_text(text)
    with pytest.raises(ConfigError, match=r"meta\.dat"):
        await make(tmp_path).open()
    assert path(tmp_path).read_text() == text


@pytest.mark.parametrize("text", ["-1", "soon", ""])
async def test_time_after_which_a_client_expires_is_refused_with_its_key_unless_it_is_one(
    tmp_path: Path, text: str
) -> None:
    path(tmp_path).parent.mkdir()
    identity = {"clientId": 1001, "destination": "example"}
    data = {"clientDatas": [{"clientIdentity": identity, "sluice": {"expireAfter": text}}], "destination": "example"}
    path(tmp_path).write_text(json.dumps(data))
    with pytest.raises(
        ConfigError, match=rf"meta\.dat is not a file .*expireAfter is not a number of seconds: '{text}'"
    ):
        await make(tmp_path).open()


async def test_two_processes_cannot_use_the_same_file(tmp_path: Path) -> None:
    async with opened(tmp_path):
        before = open_files()
        with pytest.raises(HeldError, match="another process") as held:
            await make(tmp_path).open()
        assert open_files() == before, "although the error is still referenced"
        assert str(held.value).startswith(f"another process uses {path(tmp_path)}: stop it")
        assert not held.value.is_over()
    assert held.value.is_over()
    async with opened(tmp_path) as (_, epoch, _):
        assert epoch == 2


async def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot keep cursors in .*; canal\.file\.data\.dir names another folder"):
        await make(tmp_path / "file").open()


async def test_file_that_cannot_be_read_is_an_error_and_not_held(tmp_path: Path) -> None:
    path(tmp_path).mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot keep cursors in") as failure:
        await make(tmp_path).open()
    path(tmp_path).rmdir()
    async with opened(tmp_path) as (_, epoch, _):
        assert epoch == 1, "although the store that failed is still referenced"
    del failure


@pytest.mark.parametrize(
    ("minutes", "above", "epoch"), [(0.0, 0, 1), (90.0, 0, 90), (90.99, 0, 90), (90.0, 89, 90), (90.0, 90, 91)]
)
def test_an_epoch_by_the_clock_is_minutes_since_2025_and_always_a_new_one(
    minutes: float, above: int, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
    monkeypatch.setattr(time, "time", lambda: start + 60 * minutes)
    assert epoch_by_clock(above) == epoch
    assert epoch_by_clock() == max(1, int(minutes))


def test_json_is_written_in_utf8_as_canal_does_and_a_cursor_need_not_have_a_time() -> None:
    assert dumps({"filter": "商店", "clientId": 1}) == '{"filter":"商店","clientId":1}'.encode()
    cursor = read_cursor({"postion": {"journalName": "mysql-bin.000003", "position": 4, "gtid": "what is this"}}, {})
    assert cursor == Cursor("mysql-bin.000003", 4, 0, 0)
    assert log_position(cursor, ("db", 3306))["postion"]["timestamp"] == 0


@pytest.mark.parametrize("text", [f"f4{UUID},24{UUID}", f"24{UUID.upper()}", f"24{UUID},\nf4{UUID}", "1-1-5,0-1-3"])
def test_the_gtids_of_a_cursor_of_canal_count_in_whatever_order_canal_wrote_them(text: str) -> None:
    place = {"journalName": "mysql-bin.000003", "position": 4, "gtid": text}
    cursor = read_cursor({"postion": place}, {})
    assert cursor.gtid == text
    assert parse_executed(cursor.gtid) == {ONE: parse_gtids(text)}


def test_error_of_a_node_says_what_is_wrong_with_it() -> None:
    error = NodeError("/otter is not there in ZooKeeper", "/otter")
    assert (str(error), error.path) == ("/otter is not there in ZooKeeper", "/otter")


def test_each_kind_says_when_an_ack_is_answered_and_cursors_are_written() -> None:
    assert [kind for kind in MetaKind if kind.ack_waits] == [MetaKind.ZOOKEEPER]
    assert [kind for kind in MetaKind if kind.writes_at_once] == [MetaKind.MIXED]
    assert [kind for kind in MetaKind if not kind.is_shared] == [MetaKind.FILE, MetaKind.MEMORY]


@pytest.mark.parametrize("log_position", ["parse", "failback"])
async def test_a_file_keeps_the_place_where_the_configuration_wants_it(
    tmp_path: Path, log_position: Literal["parse", "failback"]
) -> None:
    source = Address("127.0.0.1", 1)
    config = MysqlConfig(
        destination="example",
        master_address=source,
        db_username="cdc",
        log_position=log_position,
        file_data_dir=tmp_path,
    )
    assert MetaKind.FILE.make is not None
    store = MetaKind.FILE.make(config)
    epoch, _ = await store.open()
    await store.write(Changes({1001: CLIENT}), epoch)
    await store.close()
    assert store.place == (CURSOR if log_position == "parse" else None)


async def test_memory_forgets_the_clients_and_keeps_epochs_apart() -> None:
    store = MemoryMetaStore()
    epoch, clients = await store.open()
    assert clients == []
    await store.write(Changes({1001: CLIENT}), epoch)
    assert await store.open() == (epoch + 1, [])
    await store.write(Changes({}), epoch + 10)
    assert await store.open() == (epoch + 11, [])


async def test_client_that_subscribes_again_has_the_address_of_the_source_as_it_is_now(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, epoch, _):
        await store.write(Changes({1001: CLIENT}), epoch)

    def address() -> object:
        (client,) = json.loads(path(tmp_path).read_text())["clientDatas"]
        return client["cursor"]["identity"]["sourceAddress"]

    elsewhere = FileMetaStore(tmp_path, "example", ("other", 3307))
    epoch, _ = await elsewhere.open()
    assert address() == {"address": "localhost", "port": 3306}
    await elsewhere.write(Changes({1001: None}), epoch)
    await elsewhere.write(Changes({1001: CLIENT}), epoch)
    await elsewhere.close()
    assert address() == {"address": "other", "port": 3307}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_writing_keeps_no_file_open(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, epoch, _):
        await store.write(Changes({1001: CLIENT}), epoch)
        before = open_files()
        for _ in range(5):
            await store.write(Changes({1001: CLIENT}), epoch)
        assert open_files() == before


async def test_place_of_the_clients_is_kept_in_canals_file_when_they_are_gone(tmp_path: Path) -> None:
    def store() -> FileMetaStore:
        return FileMetaStore(tmp_path, "example", ("localhost", 3306), parse=True)

    first = store()
    epoch, _ = await first.open()
    assert first.place is None
    await first.write(Changes({1001: CLIENT}), epoch)
    await first.write(Changes({1001: None}), epoch)
    await first.close()
    second = store()
    assert (await second.open())[1] == []
    assert second.place == CLIENT.cursor
    await second.close()
    file = tmp_path / "example" / "parse.dat"
    assert json.loads(file.read_text())["postion"]["journalName"] == CURSOR.journal
    # What Canal's own manager writes when it has none.
    file.write_text("{}")
    third = store()
    await third.open()
    assert third.place is None
    await third.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from sluice.instance.meta.file import FileMetaStore, client_data
from sluice.store.cursor import Changes, Cursor, StoredClient

async def main():
    store = FileMetaStore(Path(sys.argv[1]), "example", ("localhost", 3306))
    epoch, clients = await store.open()
    number = clients[0].cursor.offset if clients else 0
    print(number, flush=True)
    while True:
        number += 1
        client = StoredClient(1001, "x" * (number % 1000), Cursor("binlog.000001", number, 0, 1))
        await store.write(Changes({1001: client}), epoch)
        print(number, flush=True)

asyncio.run(main())
"""


def test_file_is_whole_after_kill_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(7)
    durable = 0
    for _ in range(12):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline()) >= durable, "what was reported as durable is read again"
            time.sleep(chance.uniform(0.0, 0.1))
            os.kill(process.pid, signal.SIGKILL)
            lines = process.stdout.read().split(b"\n")
            durable = max([durable, *(int(line) for line in lines[:-1])])
    assert durable > 0
    data = json.loads(path(tmp_path).read_text())
    assert data["clientDatas"][0]["cursor"]["postion"]["position"] >= durable
    assert data["sluice"]["epoch"] == 12


async def test_a_cursor_without_a_time_is_written_with_one_for_canal_takes_0_for_no_cursor(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _, _):
        await store.write(Changes({1001: StoredClient(1001, "", replace(CURSOR, timestamp=0))}), 1)
    (client,) = json.loads(path(tmp_path).read_text())["clientDatas"]
    assert client["cursor"]["postion"]["timestamp"] == POSITION.created * 1000


async def test_a_file_is_on_disk_before_it_takes_the_place_of_the_old_one_and_its_name_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def spy_fsync(number: int) -> None:
        assert os.fstat(number).st_size > 0, "all is in the file"
        done.append(f"fsync {Path(f'/proc/self/fd/{number}').readlink().name}")
        fsync(number)

    def spy_replace(self: Path, target: Path) -> Path:
        done.append(f"replace {target.name}")
        return rename(self, target)

    async with opened(tmp_path) as (store, _, _):
        monkeypatch.setattr(os, "fsync", spy_fsync)
        monkeypatch.setattr(Path, "replace", spy_replace)
        await store.write(Changes({1001: CLIENT}), 1)
        monkeypatch.undo()
    assert done == ["fsync meta.tmp", "replace meta.dat", "fsync example"]


async def test_which_of_several_sources_is_read_is_kept_and_cursors_are_of_that(tmp_path: Path) -> None:
    chosen = InUse("db2:3307", "0-1-4-5", "1/bin.000001@1700000000:4:0")
    async with opened(tmp_path) as (store, epoch, _):
        assert store.source is None
        await store.write(Changes({1001: CLIENT}), epoch)
        await store.keep_source(chosen, epoch)
    async with opened(tmp_path) as (store, epoch, clients):
        assert store.source == chosen
        assert clients == [CLIENT]
        (data,) = json.loads(path(tmp_path).read_text())["clientDatas"]
        assert data["cursor"]["identity"]["sourceAddress"] == {"address": "db2", "port": 3307}
        await store.keep_source(InUse("[::1]:3306"), epoch)
    async with opened(tmp_path) as (store, *_):
        assert store.source is not None
        assert store.source.host_and_port == ("::1", 3306)


async def test_which_server_of_each_member_is_read_is_kept_and_that_of_a_single_source_goes_over(
    tmp_path: Path,
) -> None:
    single = InUse("db2:3307", "0-1-4-5", "1/bin.000001@1700000000:4:0")
    chosen = single.with_member("b", InUse("db4:3306"), was="a")
    async with opened(tmp_path) as (store, epoch, _):
        await store.keep_source(chosen, epoch)
    async with opened(tmp_path) as (store, epoch, _):
        assert store.source == chosen
        assert (chosen.of("a"), chosen.of("b"), chosen.of("c")) == (single, InUse("db4:3306"), None)
        assert chosen.host_and_port == ("", 0)
        await store.keep_source(chosen.with_member("b", InUse("db3:3306")), epoch)
    async with opened(tmp_path) as (store, *_):
        assert store.source == InUse(members={"a": single, "b": InUse("db3:3306")})
    text = path(tmp_path).read_text()
    path(tmp_path).write_text(text.replace("db3:3306", "db3"))
    with pytest.raises(ConfigError, match=r"meta\.dat"):
        await make(tmp_path).open()


async def test_a_write_encodes_only_the_clients_that_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of a client would take the longer, the more clients there are."""
    encoded: list[int] = []

    def noting(client: StoredClient, destination: str, address: Address) -> dict[str, object]:
        encoded.append(client.client_id)
        return client_data(client, destination, address)

    monkeypatch.setattr("sluice.instance.meta.file.client_data", noting)
    async with opened(tmp_path) as (store, epoch, _):
        for client_id in (1, 2, 3):
            await store.write(Changes({client_id: replace(CLIENT, client_id=client_id)}), epoch)
        assert encoded == [1, 2, 3]
        await store.write(Changes({2: replace(CLIENT, client_id=2, filter=r"crm\..*"), 3: None}), epoch)
        assert encoded[3:] == [2]
        await store.keep_source(InUse("db2:3307"), epoch)
        assert sorted(encoded[4:]) == [1, 2], "their cursors are of another source"
    async with opened(tmp_path) as (_, _, clients):
        assert {it.client_id: it.filter for it in clients} == {1: CLIENT.filter, 2: r"crm\..*"}


async def test_a_source_that_could_not_be_stored_is_not_the_one_that_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, epoch, _):
        (path(tmp_path).parent / "meta.tmp").mkdir()
        with pytest.raises(OSError, match="directory"):
            await store.keep_source(InUse("db2:3307"), epoch)
        assert store.source is None


@pytest.mark.parametrize("source", ["", "7", '{"address":"db2"}', '{"address":"db2:x","accepted":""}'])
async def test_a_source_that_is_none_is_an_error(tmp_path: Path, source: str) -> None:
    async with opened(tmp_path) as (store, epoch, _):
        await store.keep_source(InUse("db2:3307"), epoch)
    text = path(tmp_path).read_text()
    assert '{"accepted":"","address":"db2:3307"}' in text
    path(tmp_path).write_text(text.replace('{"accepted":"","address":"db2:3307"}', source or '"db2"'))
    with pytest.raises(ConfigError, match=r"meta\.dat"):
        await make(tmp_path).open()


@pytest.mark.parametrize(("port", "is_one"), [(0, False), (1, True), (65_535, True), (65_536, False)])
async def test_the_port_of_a_source_is_one_that_tcp_has(port: int, is_one: bool, tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, epoch, _):
        await store.keep_source(InUse("db2:3307"), epoch)
    path(tmp_path).write_text(path(tmp_path).read_text().replace("db2:3307", f"db2:{port}"))
    if is_one:
        async with opened(tmp_path) as (store, _, _):
            assert store.source == InUse(f"db2:{port}")
    else:
        with pytest.raises(ConfigError, match=rf"not the address of a source: 'db2:{port}'"):
            await make(tmp_path).open()


async def test_memory_keeps_the_source_as_long_as_it_lives() -> None:
    store = MemoryMetaStore()
    epoch, _ = await store.open()
    await store.keep_source(InUse("db2:3307"), epoch)
    await store.open()
    assert store.source == InUse("db2:3307")
