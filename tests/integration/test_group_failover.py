"""A member of a group with two servers: another one is read, while the other members go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.protocol.cut import Cut, parse_place
from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.pair import DETECTING, Pair, address, pair_of
from tests.servers import Server
from tests.waiting import SECONDS, eventually

NAME = "shop"
STANDBY = "sluice__group__pair__canal__instance__standby__address"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with pair_of("mariadb118") as found:
        yield found


@pytest.fixture
def other(mysql97: Server, database: Database) -> tuple[Server, str]:
    """A server, and a table of it."""
    table = f"{database(mysql97)}.t"
    mysql97.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    return mysql97, table


@pytest.fixture
def sluice(tmp_path: Path) -> Iterator[Sluice]:
    made = Sluice(tmp_path / "sluice")
    yield made
    made.kill()


def configure(sluice: Sluice, pair: Pair, other: tuple[Server, str], **settings: object) -> None:
    """Configure a group of the pair, as the member `pair`, and of another server, as `other`."""
    servers, table = {"pair": pair.first, "other": other[0]}, other[1].replace(".", r"\\.")
    own = {
        f"sluice__group__{name}__canal__instance__{key}": value
        for name, it in servers.items()
        for key, value in (
            ("master__address", address(it)),
            ("dbUsername", it.user),
            ("dbPassword", it.password),
        )
    }
    given = {
        "sluice__instance__source": "group",
        "sluice__group__members": "pair,other",
        STANDBY: address(pair.second),
        "canal__instance__filter__regex": rf"shop\\.t,{table}",
    }
    sluice.configure(NAME, **own | given | settings)


def take(sluice: Sluice, most: int, client_id: int = 1001) -> list[tuple[str, str]]:
    """Take and ack rows until so many have come: the member of each, and its first column."""
    client, found = sluice.client(client_id), list[tuple[str, str]]()
    while len(found) < most:
        batch = client.get_without_ack(SECONDS)
        assert batch, f"only {found} came"
        found += [(it.member or "", str(next(iter((it.after or {}).values())))) for it in batch]
        client.ack(batch)
    return found


def of(rows: list[tuple[str, str]], member: str) -> list[str]:
    return [row for name, row in rows if name == member]


def write(server: Server, table: str, *ids: int) -> None:
    for number in ids:
        server.query(f"INSERT INTO {table} (id) VALUES ({number})")


def switch(sluice: Sluice, *arguments: str) -> tuple[int, str]:
    done = commands.run("source", "switch", NAME, *arguments, "--url", sluice.url)
    return done.returncode, done.stdout + done.stderr


def read_of(sluice: Sluice) -> str:
    return str(sluice.destination()["memberSources"]["pair"]["address"])


def test_a_member_is_switched_by_hand_while_the_other_goes_on_and_after_a_restart(
    sluice: Sluice, pair: Pair, other: tuple[Server, str]
) -> None:
    configure(sluice, pair, other)
    server, table = other
    with sluice:
        sluice.wait_running()
        sluice.client().subscribe()
        write(pair.first, "shop.t", 1, 2)
        write(server, table, 1, 2)
        before = take(sluice, 4)
        assert (of(before, "pair"), of(before, "other")) == (["1", "2"], ["1", "2"])
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        code, text = switch(sluice, "--member", "pair")
        assert code == 0, text
        assert read_of(sluice) == address(pair.second)
        sluice.wait_running()
        write(pair.second, "shop.t", 3)
        write(server, table, 3)
        after = take(sluice, 2)
        assert (of(after, "pair"), of(after, "other")) == (["3"], ["3"])
        place = parse_place(str(sluice.call("GET", f"/{NAME}/clients/1001")["acked"]))
        assert isinstance(place, Cut)
        shown = commands.run("status", NAME, "--url", sluice.url)
        assert f"source of pair {address(pair.second)}, can switch to {address(pair.first)}" in shown.stdout
    write(pair.second, "shop.t", 4)
    with sluice:
        sluice.wait_running()
        assert read_of(sluice) == address(pair.second), "it is stored"
        assert take(sluice, 1) == [("pair", "4")]


def fill(sluice: Sluice, pair: Pair, other: tuple[Server, str]) -> None:
    """Begin with a client that takes nothing, and write to both members until nothing more fits the ring."""
    configure(sluice, pair, other, canal__instance__memory__buffer__size=16)
    server, table = other
    sluice.start()
    sluice.wait_running()
    sluice.client().subscribe()
    write(pair.first, "shop.t", *range(1, 10))
    write(server, table, *range(1, 10))
    eventually(lambda: sluice.destination()["full"], "the ring is full")


def test_a_member_is_switched_while_a_client_that_takes_nothing_keeps_the_ring_full(
    sluice: Sluice, pair: Pair, other: tuple[Server, str]
) -> None:
    fill(sluice, pair, other)
    pair.catch_up(pair.second, pair.first)
    pair.promote(pair.second)
    code, text = switch(sluice, "--member", "pair")
    assert code == 0, text
    assert read_of(sluice) == address(pair.second)
    write(pair.second, "shop.t", 10)
    write(*other, 10)
    found, wanted = take(sluice, 20), [str(it) for it in range(1, 11)]
    assert (of(found, "pair"), of(found, "other")) == (wanted, wanted)
    assert not sluice.client().get_without_ack(0.5)


def test_a_transaction_that_was_given_in_part_and_not_acked_comes_whole_of_the_other_server(
    sluice: Sluice, pair: Pair, other: tuple[Server, str]
) -> None:
    configure(sluice, pair, other, canal__instance__memory__buffer__size=16)
    with sluice:
        sluice.wait_running()
        sluice.client().subscribe()
        rows = "".join(f"INSERT INTO shop.t (id) VALUES ({it});\n" for it in range(1, 31))
        pair.first.script(f"BEGIN;\n{rows}COMMIT;\n")
        eventually(lambda: sluice.destination()["full"], "the ring is full")
        assert sluice.client().get_without_ack(SECONDS)
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        code, text = switch(sluice, "--member", "pair")
        assert code == 0, text
        assert of(take(sluice, 30), "pair") == [str(it) for it in range(1, 31)]


def test_a_switch_of_a_member_that_is_refused_while_the_ring_is_full_loses_nothing(
    sluice: Sluice, pair: Pair, other: tuple[Server, str]
) -> None:
    pair.run(pair.second, "STOP REPLICA")
    fill(sluice, pair, other)
    for _ in range(2):
        code, text = switch(sluice, "--member", "pair")
        assert code == 2, text
        assert "transactions that were delivered" in " ".join(text.split()), text
    found, wanted = take(sluice, 18), [str(it) for it in range(1, 10)]
    assert (of(found, "pair"), of(found, "other")) == (wanted, wanted)
    assert not sluice.client().get_without_ack(0.5)


def test_a_member_whose_server_dies_is_read_of_the_other_one_by_itself(
    sluice: Sluice, pair: Pair, other: tuple[Server, str]
) -> None:
    configure(sluice, pair, other, **DETECTING)
    server, table = other
    with sluice:
        sluice.wait_running()
        sluice.client().subscribe()
        write(pair.first, "shop.t", 1)
        write(server, table, 1)
        assert sorted(take(sluice, 2)) == [("other", "1"), ("pair", "1")]
        pair.catch_up(pair.second, pair.first)
        pair.first.kill()
        write(server, table, 2)
        eventually(lambda: read_of(sluice) == address(pair.second), "the other one is read")
        sluice.wait_running()
        write(pair.second, "shop.t", 2)
        assert sorted(take(sluice, 2)) == [("other", "2"), ("pair", "2")]


def test_a_switch_of_a_member_that_would_lose_what_was_delivered_is_refused_by_its_name_until_it_is_accepted(
    sluice: Sluice, pair: Pair, other: tuple[Server, str]
) -> None:
    configure(sluice, pair, other)
    server, table = other
    with sluice:
        sluice.wait_running()
        sluice.client().subscribe()
        for arguments, answer in (
            ((), "name one of the members, pair, other"),
            (("--member", "third"), "name one of the members, pair, other"),
            (("--member", "other"), "member other: destination shop has no other source"),
            (("--member", "pair", "--to", "db9:3306"), "member pair: db9:3306 is not a source of destination shop"),
        ):
            code, text = switch(sluice, *arguments)
            assert code == 2, text
            assert answer in " ".join(text.split()), text
        pair.catch_up(pair.second, pair.first)
        pair.run(pair.second, "STOP REPLICA")
        write(pair.first, "shop.t", 1)
        assert take(sluice, 1) == [("pair", "1")]
        code, text = switch(sluice, "--member", "pair")
        text = " ".join(text.split())
        assert code == 2, text
        assert "member pair: " in text, text
        assert "does not have 1 transactions that were delivered" in text, text
        assert f"sluice source switch shop --member pair --to {address(pair.second)} --accept" in text, text
        status = commands.run("status", NAME, "--url", sluice.url)
        assert status.returncode == 1, status.stdout
        assert "shop, member pair: the switch to another server is refused" in status.stdout, status.stdout
        write(pair.first, "shop.t", 2)
        write(server, table, 1)
        assert sorted(take(sluice, 2)) == [("other", "1"), ("pair", "2")], "what was read before is read on"
        pair.run(pair.second, "RESET REPLICA ALL")
        code, text = switch(sluice, "--member", "pair", "--accept")
        assert code == 0, text
        sluice.wait_running()
        write(pair.second, "shop.t", 3)
        assert take(sluice, 1) == [("pair", "3")]
        assert commands.run("status", NAME, "--url", sluice.url).returncode == 0


@pytest.mark.parametrize("store", ["memory", "mixed"])
def test_clients_that_are_behind_get_all_of_both_servers_of_a_member_once(
    sluice: Sluice, pair: Pair, other: tuple[Server, str], store: str
) -> None:
    configure(sluice, pair, other, sluice__instance__store=store, sluice__instance__store__minFree=0)
    server, table = other
    with sluice:
        sluice.wait_running()
        for client_id in (1001, 1002, 1003):
            sluice.client(client_id).subscribe()
        write(pair.first, "shop.t", 1)
        write(server, table, 1)
        assert sorted(take(sluice, 2)) == [("other", "1"), ("pair", "1")]
        assert sorted(take(sluice, 2, 1002)) == [("other", "1"), ("pair", "1")]
        write(pair.first, "shop.t", 2)
        write(server, table, 2)
        assert sorted(take(sluice, 2)) == [("other", "2"), ("pair", "2")]
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        code, text = switch(sluice, "--member", "pair")
        assert code == 0, text
        sluice.wait_running()
        write(pair.second, "shop.t", 3)
        write(server, table, 3)
        for client_id, first in ((1001, 3), (1002, 2), (1003, 1)):
            wanted = [str(it) for it in range(first, 4)]
            found = take(sluice, 2 * len(wanted), client_id)
            assert (of(found, "pair"), of(found, "other")) == (wanted, wanted)
        for client_id in (1001, 1002, 1003):
            assert not sluice.client(client_id).get_without_ack(0.5)
    write(pair.second, "shop.t", 4)
    with sluice:
        sluice.wait_running()
        for client_id in (1001, 1002, 1003):
            assert take(sluice, 1, client_id) == [("pair", "4")]


def test_without_gtids_a_member_stays_with_its_server_and_the_error_says_what_to_set(
    sluice: Sluice, other: tuple[Server, str]
) -> None:
    server, table = other
    with Pair("mysql97", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", gtids=False) as plain:
        configure(sluice, plain, other)
        with sluice:
            sluice.wait_running()
            sluice.client().subscribe()
            write(plain.first, "shop.t", 1)
            assert take(sluice, 1) == [("pair", "1")]
            code, text = switch(sluice, "--member", "pair")
            assert code == 2, text
            assert "member pair: no GTIDs are known at" in text, text
            assert "set gtid_mode = ON at both servers" in " ".join(text.split()), text
            write(plain.first, "shop.t", 2)
            write(server, table, 1)
            assert sorted(take(sluice, 2)) == [("other", "1"), ("pair", "2")], "what was read before is read on"
