"""What a server saves of cursors in ZooKeeper, and how it is written back when ZooKeeper has lost it."""

import asyncio
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sluice.instance import audit
from sluice.instance.meta.base import InUse
from sluice.instance.meta.nodes import UnknownOutcomeError, Watch
from sluice.instance.meta.zookeeper import ZooKeeperClients, epoch_data, read_epoch
from sluice.protocol.errors import ConfigError
from sluice.protocol.paths import GROUP, client_node, epoch_node, running_node
from sluice.protocol.position import Position
from sluice.server.archive import verify
from sluice.server.cli.command import argument_parser
from sluice.server.ha import backup as backup_module
from sluice.server.ha.backup import NO_EPOCH, Backup, Backups, Saved, path_of, read, read_all, write
from sluice.server.ha.cluster import Cluster
from sluice.server.ha.restore import Candidate, plan, write_back
from sluice.server.ha.zookeeper import ZooKeeperSession
from sluice.store.cursor import Changes, Cursor, StoredClient
from sluice.store.moves import SERVER, By, Gate, Move, MoveState, Reason
from tests import commands
from tests.faults.harness import Sluice
from tests.integration.test_cluster import CURSOR, NAME, ROOT, KeepingHost, configure, serves, taking_part
from tests.integration.test_zookeeper import session
from tests.servers import ZooKeeper, nodes
from tests.waiting import soon

FILE = path_of(Path(), NAME, "127.0.0.1:1")
ADDRESS = ("127.0.0.1", 1)
VIEW = "orders_eu"
CLIENT = StoredClient(1001, r"shop\..*", CURSOR)
OTHER = StoredClient(1002, "", CURSOR, 60, where="shop.orders: total > 10")
GAP = Move(Reason.PURGE, str(CURSOR.position), "", SERVER, 1_700_000_000_000, MoveState.OPEN)
LEFT = Move(Reason.UNSUBSCRIBE, str(CURSOR.position), "", "an operator", 1_700_000_001_000)
SOURCE = InUse("127.0.0.1:9", "")
BY = By("user alice", 1_700_000_002.0)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files of the servers be in a folder of the test, and be written often."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backup_module, "PERIOD", 0.05)


@pytest.fixture
def empty(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client of a ZooKeeper that no server has used yet."""
    with nodes(zookeeper.hosts) as zk:
        if zk.exists("/otter"):
            zk.delete("/otter", recursive=True)
        yield zk


def at(offset: int, server_id: str = "1") -> Cursor:
    return replace(CURSOR, offset=offset, position=Position(server_id, "binlog.000003", 1_700_000_000, offset, 0))


def canals(offset: int, files: str = "binlog") -> Cursor:
    """A cursor that Canal wrote."""
    return Cursor(f"{files}.000003", offset, 1_700_000_000_000, 1)


def test_a_backup_is_read_as_it_was_written_and_is_private() -> None:
    clients = {1001: CLIENT, 1002: OTHER}
    backup = Backup(NAME, 8, 4711, "10.0.0.2:11111", True, "a name", SOURCE, CURSOR)
    backup.saved = {
        NAME: Saved(7, 1_700_000_000.5, "10.0.0.1:11111", clients, {1002: (GAP, LEFT)}),
        VIEW: Saved(6, 1_600_000_000.0, "10.0.0.1:11111", {}),
    }
    write(FILE, backup, ADDRESS)
    assert read_all(Path(), NAME) == backup
    assert stat.S_IMODE(FILE.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="belongs to the destination 'orders'"):
        read(FILE, "shop")
    FILE.write_bytes(b'{"destination":"orders"}')
    with pytest.raises(ConfigError, match=r"dat is not a backup of cursors \(KeyError"):
        read_all(Path(), NAME)


def test_the_newest_of_all_backups_in_a_folder_counts() -> None:
    """Servers may have the same folder, or an address that changes; or a file is copied from elsewhere."""
    one, other = (path_of(Path(), NAME, f"127.0.0.1:{number}") for number in (1, 2))
    older, newer = ({1001: StoredClient(1001, text)} for text in ("older", "newer"))
    write(one, Backup(NAME, 8, 50, "127.0.0.1:2", saved={NAME: Saved(7, 9.0, "127.0.0.1:1", older)}), ADDRESS)
    saved = {NAME: Saved(8, 5.0, "127.0.0.1:2", newer), VIEW: Saved(8, 5.0, "127.0.0.1:2", {})}
    write(other, Backup(NAME, 8, 40, "127.0.0.1:2", lost=True, group="a name", saved=saved), ADDRESS)
    found = read_all(Path(), NAME)
    assert found == Backup(NAME, 8, 50, "127.0.0.1:2", lost=True, group="a name", saved=saved)
    assert read_all(Path(), "shop") == Backup("shop")


class TestNoticing:
    @pytest.mark.parametrize(
        ("epoch", "zxid", "lost"),
        [
            (NO_EPOCH, 5, "now there is none"),
            (6, 200, "an older state (epoch 6)"),
            (7, 99, "an older state (epoch 7)"),
            (7, 100, ""),
            (8, 5, ""),
        ],
    )
    async def test_an_older_state_is_told_by_the_epoch_or_by_the_last_transaction(
        self, epoch: int, zxid: int, lost: str
    ) -> None:
        backups = Backups("127.0.0.1:1", configure)
        assert await backups.compare(NAME, 7, 100, "") == ""
        said = await backups.compare(NAME, epoch, zxid, "")
        assert bool(said) == bool(lost)
        assert lost in said
        assert not said or f"sluice cluster restore {NAME}" in said

    async def test_it_stays_lost_until_the_epoch_is_raised(self) -> None:
        backups = Backups("127.0.0.1:1", configure)
        await backups.compare(NAME, 7, 100, "")
        assert await backups.compare(NAME, 7, 50, "")
        backups.left(120)
        assert await backups.compare(NAME, 7, 150, ""), "the new transactions are others"
        assert await backups.compare(NAME, 8, 151, "") == ""
        assert await backups.compare(NAME, 8, 152, "") == ""

    async def test_it_is_said_when_an_epoch_has_begun_after_a_loss(self, caplog: pytest.LogCaptureFixture) -> None:
        backups = Backups("127.0.0.1:1", configure)
        await backups.compare(NAME, 7, 100, "")
        await backups.compare(NAME, 8, 110, "")
        assert caplog.messages == []
        assert await backups.compare(NAME, 9, 20, "10.0.0.2:11111") == ""
        assert "had lost the data of epoch 8, and epoch 9 has begun" in caplog.text
        await backups.compare(NAME, 10, 21, "10.0.0.2:11111")
        assert len(caplog.messages) == 1

    async def test_a_new_destination_has_lost_nothing(self) -> None:
        assert await Backups("127.0.0.1:1", configure).compare(NAME, NO_EPOCH, 1, "") == ""


@pytest.mark.parametrize(
    ("saved", "present", "may_be_newer"),
    [
        (at(100), at(99), False),
        (at(100), at(100), False),
        (at(100), at(101), True),
        (at(100), at(99, "2"), True),  # of another source: they have no order
        (at(100), None, False),
        (None, at(1), True),
        (None, None, False),
        (canals(100), canals(99), False),
        (canals(100), canals(100), False),
        (canals(100), canals(101), True),
        (canals(100), canals(99, "mysql"), True),
    ],
)
def test_what_may_be_newer_in_zookeeper_is_known(
    saved: Cursor | None, present: Cursor | None, may_be_newer: bool
) -> None:
    candidate = Candidate(StoredClient(1001, "", saved), StoredClient(1001, "", present))
    assert candidate.may_be_newer == may_be_newer


def test_a_client_is_known_by_what_was_saved_or_by_what_zookeeper_has() -> None:
    saved, present, both = Candidate(CLIENT, None), Candidate(None, CLIENT), Candidate(CLIENT, replace(CLIENT))
    assert [it.client_id for it in (saved, present, both)] == [1001] * 3
    assert [it.is_same for it in (saved, present, both)] == [False, False, True]


async def test_the_greatest_epoch_in_which_this_server_has_stored_is_saved() -> None:
    backups = Backups("127.0.0.1:1", configure)
    await backups.compare(NAME, 7, 100, "")
    backups.loaded(NAME, NAME, 7, [CLIENT], {})
    backups.stored(NAME, NAME, Changes({1002: OTHER}), 9)
    saving = asyncio.create_task(backups.run())
    backups.stop()
    await saving
    found = read_all(Path(), NAME)
    assert (found.epoch, found.saved[NAME].epoch) == (9, 9)
    assert found.saved[NAME].clients == {1001: CLIENT, 1002: OTHER}


async def test_the_last_owner_that_was_seen_in_an_epoch_is_saved() -> None:
    backups = Backups("127.0.0.1:1", configure)
    for zxid, owner in ((100, "10.0.0.1:1"), (101, "10.0.0.2:1"), (102, "")):
        assert await backups.compare(NAME, 7, zxid, owner) == ""
    saving = asyncio.create_task(backups.run())
    backups.stop()
    await saving
    found = read_all(Path(), NAME)
    assert (found.owner, found.zxid) == ("10.0.0.2:1", 102)


async def test_what_becomes_known_later_is_saved_as_well(caplog: pytest.LogCaptureFixture) -> None:
    backups = Backups("127.0.0.1:1", configure)
    await backups.compare(NAME, 7, 100, "")
    saving = asyncio.create_task(backups.run())
    await soon(lambda: read_all(Path(), NAME).zxid == 100)
    backups.group = "a name"
    await soon(lambda: read_all(Path(), NAME).group == "a name")
    backups.left(120)
    await soon(lambda: read_all(Path(), NAME).zxid == 120)
    backups.left(110)
    assert await backups.compare(NAME, 7, 115, ""), "120 was seen before"
    await soon(lambda: read_all(Path(), NAME).lost)
    backups.left(500)
    await backups.compare(NAME, 8, 130, "")
    await soon(lambda: not read_all(Path(), NAME).lost)
    assert caplog.messages == [], "500 was of what is lost"
    backups.loaded(NAME, VIEW, 9, [CLIENT], {})
    await soon(lambda: VIEW in read_all(Path(), NAME).saved)
    assert read_all(Path(), NAME).epoch == 9
    backups.stored(NAME, VIEW, Changes({1001: None}, {1001: [LEFT], 1002: []}), None)
    await soon(lambda: read_all(Path(), NAME).saved[VIEW].clients == {})
    assert {it: list(moves) for it, moves in read_all(Path(), NAME).saved[VIEW].moves.items()} == {1001: [LEFT]}
    backups.stop()
    await saving


async def kept(zookeeper: ZooKeeper) -> int:
    """Let a server have the destination, and a view of it, and store clients; return the epoch."""
    host = KeepingHost()
    async with taking_part(zookeeper, host=host) as cluster:
        await soon(lambda: serves(cluster))
        epoch, _ = await host.meta.open()
        await host.meta.write(Changes({1001: CLIENT, 1002: OTHER, 1003: StoredClient(1003)}, {1002: [GAP]}), epoch)
        await host.meta.write(Changes({1003: None}, {1002: [GAP, LEFT], 1003: [LEFT]}), epoch)
        await host.meta.keep_source(SOURCE, epoch)
        view = cluster.view_store(configure(VIEW).model_copy(update={"route": NAME}))
        await view.open()
        await view.write(Changes({2001: replace(CLIENT, client_id=2001)}), epoch)
        await cluster.group()
    return epoch


async def restore(zookeeper: ZooKeeper) -> None:
    async with session(zookeeper) as zk:
        found = await plan(zk, configure(NAME), read_all(Path(), NAME))
        assert found.loss
        clients = {
            name: [it.saved for it in candidates if it.saved is not None]
            for name, candidates in found.candidates.items()
        }
        await write_back(zk, configure(NAME), found.backup, clients, BY)


async def lost(cluster: Cluster) -> None:
    await soon(lambda: cluster.lost == [NAME])
    assert "ZooKeeper has lost cursors" in cluster.problem_of(NAME)


async def test_what_zookeeper_has_lost_is_taken_over_when_it_is_written_back(
    zookeeper: ZooKeeper, empty: KazooClient
) -> None:
    epoch = await kept(zookeeper)
    group = empty.get(GROUP)[0]
    empty.delete("/otter", recursive=True)
    host = KeepingHost()
    async with taking_part(zookeeper, host=host) as cluster:
        await lost(cluster)
        assert empty.exists(running_node(NAME)) is None
        await restore(zookeeper)
        await soon(lambda: serves(cluster))
        raised, clients = await host.meta.open()
        assert raised > epoch
        assert sorted(clients, key=lambda it: it.client_id) == [CLIENT, OTHER]
        assert host.meta.source == SOURCE
        assert {it: list(moves) for it, moves in host.meta.moves.items()} == {1002: [GAP, LEFT], 1003: [LEFT]}
        assert cluster.lost == []
        assert cluster.problem_of(NAME) == ""
    assert empty.get(GROUP)[0] == group
    async with session(zookeeper) as zk:
        found = await ZooKeeperClients(zk, VIEW, ADDRESS).read()
    assert found == (replace(CLIENT, client_id=2001),)


async def test_clients_that_are_given_up_have_a_record_of_it_and_others_keep_theirs(
    zookeeper: ZooKeeper, empty: KazooClient
) -> None:
    await kept(zookeeper)
    empty.delete("/otter", recursive=True)
    async with session(zookeeper) as zk:
        found = await plan(zk, configure(NAME), read_all(Path(), NAME))
        assert await write_back(zk, configure(NAME), found.backup, {}, BY) == {NAME: [1001, 1002], VIEW: [2001]}
        stores = {name: ZooKeeperClients(zk, name, ADDRESS) for name in (NAME, VIEW)}
        assert [await store.read() for store in stores.values()] == [(), ()]
    detail = "its saved cursor was given up after ZooKeeper had lost it"
    given_up = Move(Reason.UNSUBSCRIBE, str(CURSOR.position), "", BY.who, BY.ms, detail=detail)
    moves = {name: {it: list(moves) for it, moves in store.moves.items()} for name, store in stores.items()}
    assert moves == {
        NAME: {1001: [given_up], 1002: [GAP, LEFT, given_up], 1003: [LEFT]},
        VIEW: {2001: [given_up]},
    }
    gate = Gate(moves[NAME])
    assert gate.is_unsettled(1001), "it is refused at `earliest`, which might skip changes"
    assert gate.gaps(1002) == (GAP,)


async def test_a_server_that_never_had_it_takes_nothing_over_either(zookeeper: ZooKeeper, empty: KazooClient) -> None:
    empty.create(epoch_node(NAME), epoch_data(9), makepath=True)
    empty.create(running_node(NAME), b'{"active":true,"address":"10.0.0.2:11111"}', ephemeral=True)
    empty.set(epoch_node(NAME), epoch_data(9))
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await soon(lambda: cluster.active(NAME))
        empty.delete(epoch_node(NAME))
        empty.delete(running_node(NAME))
        await lost(cluster)
        assert empty.exists(running_node(NAME)) is None
    backup = read_all(Path(), NAME)
    assert (backup.epoch, backup.owner, backup.saved, backup.lost) == (9, "10.0.0.2:11111", {}, True)


async def test_nothing_is_written_while_a_server_has_it(zookeeper: ZooKeeper, empty: KazooClient) -> None:
    await kept(zookeeper)
    backup = read_all(Path(), NAME)
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await soon(lambda: serves(cluster))
        before = empty.get(epoch_node(NAME))[0]
        async with session(zookeeper) as zk:
            with pytest.raises(ConfigError, match="a server has orders now, so nothing was written"):
                await write_back(zk, configure(NAME), backup, {NAME: [replace(CLIENT, filter="other")]}, BY)
        assert empty.get(epoch_node(NAME))[0] == before
        assert empty.get(f"{ROOT}/1001/filter")[0] == CLIENT.filter.encode()


async def test_a_restoration_that_was_interrupted_counts_for_nothing_and_can_be_done_again(
    zookeeper: ZooKeeper, empty: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await kept(zookeeper)
    empty.delete("/otter", recursive=True)
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await lost(cluster)
        with monkeypatch.context() as context:
            stores = 0
            store = ZooKeeperClients.store

            async def failing(self: ZooKeeperClients, *arguments: object) -> int:
                nonlocal stores
                stores += 1
                if stores == 3:
                    raise UnknownOutcomeError("the connection was lost")
                return await store(self, *arguments)  # type: ignore[arg-type]

            context.setattr(ZooKeeperClients, "store", failing)
            with pytest.raises(UnknownOutcomeError):
                await restore(zookeeper)
        assert read_epoch(empty.get(epoch_node(NAME))[0], NAME) < epoch
        await lost(cluster)
        await restore(zookeeper)
        await soon(lambda: serves(cluster))


async def test_the_place_is_written_back_where_no_client_has_one(zookeeper: ZooKeeper, empty: KazooClient) -> None:
    config = configure(NAME).model_copy(update={"log_position": "parse"})
    backup = Backup(NAME, 7, place=CURSOR, saved={NAME: Saved(7, 0.0, "", {})})
    async with session(zookeeper) as zk:
        await write_back(zk, config, backup, {NAME: []}, BY)
        store = ZooKeeperClients(zk, NAME, ADDRESS, parse=True)
        await store.read()
    assert store.place == CURSOR
    assert read_epoch(empty.get(epoch_node(NAME))[0], NAME) > 7


async def test_a_client_that_cannot_be_written_does_not_end_the_saving() -> None:
    backups = Backups("127.0.0.1:1", configure)
    await backups.compare(NAME, 7, 100, "")
    saving = asyncio.create_task(backups.run())
    backups.loaded(NAME, NAME, 7, [StoredClient(1001, "\ud800")], {})
    await soon(lambda: "UnicodeEncodeError" in backups.problem(NAME))
    backups.stored(NAME, NAME, Changes({1001: CLIENT}), None)
    await soon(lambda: backups.problem(NAME) == "")
    backups.stop()
    await saving
    assert read_all(Path(), NAME).saved[NAME].clients == {1001: CLIENT}


async def test_a_file_that_cannot_be_written_or_read_is_said(
    zookeeper: ZooKeeper, empty: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    FILE.parent.mkdir()
    FILE.with_suffix(".tmp").mkdir()
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        text = f"the cursors are not saved in {FILE}, for when ZooKeeper loses them: Is a directory"
        await soon(lambda: cluster.problem_of(NAME) == text)
        await asyncio.sleep(0.2)
        assert [it for it in caplog.messages if it == text] == [text], "it is tried again, and said once"
        FILE.with_suffix(".tmp").rmdir()
        await soon(lambda: cluster.problem_of(NAME) == "")
        assert serves(cluster)
    FILE.write_bytes(b"{")
    async with taking_part(zookeeper, host=KeepingHost()) as cluster:
        await soon(lambda: "is not a backup of cursors" in cluster.problem_of(NAME))
        assert empty.exists(running_node(NAME)) is None


def conf(folder: Path, zookeeper: ZooKeeper) -> Path:
    """A configuration of the destination."""
    server = Sluice(folder)
    server.settings |= {"canal__zkServers": zookeeper.hosts, "sluice__ha__sessionTimeout": 1, "canal__ip": "127.0.0.1"}
    server.configure(NAME, canal__instance__master__address="127.0.0.1:1", canal__instance__dbUsername="cdc")
    return server.conf


async def clients_of(zookeeper: ZooKeeper) -> dict[int, StoredClient]:
    async with session(zookeeper) as zk:
        return {it.client_id: it for it in await ZooKeeperClients(zk, NAME, ADDRESS).read()}


async def test_the_command_leaves_what_may_be_newer_unless_it_is_told_otherwise(
    zookeeper: ZooKeeper, empty: KazooClient, tmp_path: Path
) -> None:
    folder = conf(tmp_path, zookeeper)
    saved = {it: StoredClient(it, "", at(100)) for it in (1001, 1002, 1003)}
    there = {1001: at(99), 1002: at(101), 1004: at(50)}
    backup = Backup(NAME, 7, saved={NAME: Saved(7, 1_700_000_000.0, "10.0.0.1:11111", saved)})
    write(path_of(tmp_path / "data", NAME, "10.0.0.1:11111"), backup, ADDRESS)
    empty.create(epoch_node(NAME), epoch_data(6), makepath=True)
    async with session(zookeeper) as zk:
        await ZooKeeperClients(zk, NAME, ADDRESS).store(
            0, Changes({client_id: StoredClient(client_id, "", cursor) for client_id, cursor in there.items()}), None
        )

    def restore(*arguments: str) -> str:
        return commands.run("cluster", "restore", *arguments, "--yes", "--conf", str(folder), check=True).stdout

    said = await asyncio.to_thread(restore)
    expected = {1001: at(100), 1002: at(101), 1003: at(100), 1004: at(50)}
    assert {it.client_id: it.cursor for it in (await clients_of(zookeeper)).values()} == expected
    lines = {int(words[1]): line for line in said.splitlines() if (words := line.split())[0] == "client"}
    assert "is written: ZooKeeper has" in lines[1001]
    assert "is not written" in lines[1002]
    assert "--overwrite" in lines[1002]
    assert "ZooKeeper does not have it" in lines[1003]
    assert "not saved" in lines[1004]
    assert "as 10.0.0.1:11111 stored it in epoch 7, 2023-11-1" in said
    (record,) = audit.read(audit.path_of(tmp_path / "data", NAME), 10)
    assert (record.action, record.detail) == ("cluster restore", "2 clients written to ZooKeeper")
    raised = read_epoch(empty.get(epoch_node(NAME))[0], NAME)
    assert raised > 7

    assert "not known to have lost" in await asyncio.to_thread(restore, NAME, "--overwrite")
    expected[1002] = at(100)
    assert {it.client_id: it.cursor for it in (await clients_of(zookeeper)).values()} == expected
    assert read_epoch(empty.get(epoch_node(NAME))[0], NAME) > raised


async def test_a_backup_of_cursors_in_zookeeper_is_written_back_to_one_that_has_lost_all(
    zookeeper: ZooKeeper, empty: KazooClient, tmp_path: Path
) -> None:
    folder = conf(tmp_path, zookeeper)
    empty.create(epoch_node(NAME), epoch_data(6), makepath=True)
    async with session(zookeeper) as zk:
        await ZooKeeperClients(zk, NAME, ADDRESS).store(0, Changes({1001: CLIENT, 1002: OTHER}, {1002: [GAP]}), None)

    async def run(*arguments: str) -> str:
        done = await asyncio.to_thread(commands.run, *arguments, "--conf", str(folder), check=True)
        return done.stdout

    file, then = str(tmp_path / "backup.tar"), f"write the cursors to ZooKeeper: sluice cluster restore {NAME} --conf"
    assert f"client 1001  {CURSOR.position}" in await run("backup", "--to", file)
    empty.delete("/otter", recursive=True)
    assert then in await run("restore", "--from", file)
    assert "2 clients written to ZooKeeper" in await run("cluster", "restore", "--yes")
    assert await clients_of(zookeeper) == {1001: CLIENT, 1002: OTHER}
    assert read_epoch(empty.get(epoch_node(NAME))[0], NAME) > 6


async def test_a_client_that_goes_while_a_backup_reads_it_takes_no_other_with_it(
    zookeeper: ZooKeeper, empty: KazooClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = conf(tmp_path, zookeeper), tmp_path / "backup.tar"
    empty.create(epoch_node(NAME), epoch_data(6), makepath=True)
    async with session(zookeeper) as zk:
        await ZooKeeperClients(zk, NAME, ADDRESS).store(0, Changes({1001: CLIENT, 1002: OTHER}), None)
    children = ZooKeeperSession.children

    async def and_one_goes(self: ZooKeeperSession, path: str, watch: Watch | None = None) -> list[str]:
        names = await children(self, path, watch)
        if "1002" in names:
            empty.delete(client_node(NAME, 1002), recursive=True)
        return names

    monkeypatch.setattr(ZooKeeperSession, "children", and_one_goes)
    options = argument_parser("backup").parse_args(["backup", "--to", str(file), "--conf", str(folder)])
    assert await asyncio.to_thread(options.run, options) == 0
    assert verify(file, lambda _: None).destinations[NAME].clients == {1001: str(CURSOR.position)}


@pytest.mark.extended
async def test_the_command_writes_nothing_where_another_server_has_newer_cursors_or_is_told_to_discard(
    zookeeper: ZooKeeper, empty: KazooClient, tmp_path: Path
) -> None:
    folder = conf(tmp_path, zookeeper)
    backup = Backup(NAME, 8, owner="10.0.0.2:11111", saved={NAME: Saved(7, 0.0, "10.0.0.1:11111", {1001: CLIENT})})
    write(path_of(tmp_path / "data", NAME, "10.0.0.1:11111"), backup, ADDRESS)
    empty.create(epoch_node(NAME), epoch_data(6), makepath=True)

    def restore(*arguments: str) -> commands.Ended:
        return commands.run("cluster", "restore", *arguments, "--yes", "--conf", str(folder))

    refused = await asyncio.to_thread(restore)
    assert refused.returncode == 1
    assert "10.0.0.2:11111 had it later, in epoch 8" in refused.stdout
    assert empty.get(epoch_node(NAME))[0] == epoch_data(6)
    assert await clients_of(zookeeper) == {}
    done = await asyncio.to_thread(restore, "--discard")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"client 1001  {CURSOR.position}" in done.stdout
    assert "is given up: ZooKeeper does not have it" in done.stdout
    (record,) = audit.read(audit.path_of(tmp_path / "data", NAME), 10)
    assert record.detail == f"0 clients written to ZooKeeper; given up: 1001 of {NAME}"
    assert read_epoch(empty.get(epoch_node(NAME))[0], NAME) > 8
    assert await clients_of(zookeeper) == {}
