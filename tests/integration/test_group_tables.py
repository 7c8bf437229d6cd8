"""Tables of a group: those that members deliver as one, and their histories; on real servers."""

from pathlib import Path

import pytest

from sluice.client_sdk import Client
from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.groups import NAME, Group, configure
from tests.servers import Server
from tests.waiting import SECONDS

MEMBERS = ("my", "maria")


@pytest.fixture
def group(mysql97: Server, mariadb118: Server, database: Database) -> Group:
    return Group({name: (it, database(it)) for name, it in zip(MEMBERS, (mysql97, mariadb118), strict=True)})


@pytest.fixture
def sluice(group: Group, tmp_path: Path) -> Sluice:
    made = Sluice(tmp_path / "sluice")
    schemas = "|".join(schema for _, schema in group.members.values())
    configure(
        made,
        group.members,
        sluice__group__as=rf"all.orders: ({schemas})\\.orders",
        canal__instance__filter__regex=rf"({schemas}|all)\\..*",
    )
    return made


def read(client: Client, count: int) -> list[str]:
    """Take and ack batches until so much has come: rows, those that are late, and markers of the quarantine."""
    found: list[str] = []
    while len(found) < count:
        batch = client.get_without_ack(SECONDS)
        assert batch, found
        for change in batch.changes():
            if any(key == "sluice.quarantine" for key in change.header_props):
                found.append("marker")
            found += [
                f"{'late ' if it.late else ''}{it.member} {it.table} {(it.after or {})['id']}" for it in change.rows()
            ]
        client.ack(batch, durable=True)
    return found


def test_a_table_whose_columns_differ_from_those_of_another_member_waits_in_quarantine_until_they_agree(
    group: Group, sluice: Sluice
) -> None:
    with sluice.reading(), sluice.client() as client:
        client.subscribe()
        group.write("my", 1)
        assert read(client, 1) == ["my orders 1"]
        group.write("maria", 2)
        assert read(client, 1) == ["maria orders 2"]
        group.query("maria", f"ALTER TABLE {group.table('maria')} ADD more INT")
        group.query("maria", f"INSERT INTO {group.table('maria')} VALUES (3, 'note', 0)")
        assert read(client, 1) == ["marker"]
        (item,) = sluice.call("GET", f"/{NAME}/quarantine")
        assert f"{group.table('maria')} of member maria is delivered as all.orders" in item["error"]
        assert f"are not those of {group.table('my')} of member my (id int" in item["error"]
        group.query("my", f"ALTER TABLE {group.table('my')} ADD more INT")
        group.query("my", f"INSERT INTO {group.table('my')} VALUES (4, 'note', 0)")
        assert read(client, 1) == ["my orders 4"]
        group.query("maria", f"INSERT INTO {group.table('maria')} VALUES (5, 'note', 0)")
        assert read(client, 1) == ["maria orders 5"]
        (again,) = sluice.call("POST", f"/{NAME}/quarantine/retry")
        assert (again["reason"], len(again["clients"])) == ("", 1)
        assert read(client, 1) == ["late maria orders 3"]
        assert sluice.call("GET", f"/{NAME}/quarantine") == []


def test_each_member_has_a_history_of_its_tables(group: Group, sluice: Sluice) -> None:
    with sluice.reading(), sluice.client() as client:
        client.subscribe()
        group.write("maria", 1)
        assert read(client, 1) == ["maria orders 1"]
    shown = commands.run("schema", "show", NAME, group.table("maria"), "--member", "maria", "--conf", str(sluice.conf))
    assert "id int" in shown.stdout
