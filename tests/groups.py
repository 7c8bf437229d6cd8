"""A group of real servers as a destination of a server that runs, for tests of what reads it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluice.client_sdk import Batch, Client
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import SECONDS

NAME = "shop"
Row = tuple[str, str]
"""The member of a row, and its first column."""


def configure(sluice: Sluice, members: Mapping[str, tuple[Server, str]], **settings: object) -> None:
    """Configure a group as a destination: servers with a schema each, by the names of the members."""
    own = {
        f"sluice__group__{name}__canal__instance__{key}": value
        for name, (server, _) in members.items()
        for key, value in (
            ("master__address", f"{server.host}:{server.port}"),
            ("dbUsername", server.user),
            ("dbPassword", server.password),
        )
    }
    common = {
        "sluice__instance__source": "group",
        "sluice__group__members": ",".join(members),
        "canal__instance__filter__regex": ",".join(rf"{schema}\\..*" for _, schema in members.values()),
    }
    sluice.configure(NAME, **common | own | settings)


@dataclass(frozen=True, slots=True)
class Group:
    """Members, by their names, each with a table `orders` in a schema of its own."""

    members: Mapping[str, tuple[Server, str]]

    def __post_init__(self) -> None:
        for name, (server, _) in self.members.items():
            server.query(f"CREATE TABLE {self.table(name)} (id INT PRIMARY KEY, note VARCHAR(200))")

    def table(self, name: str) -> str:
        """The name of a member's table."""
        return f"{self.members[name][1]}.orders"

    def query(self, name: str, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement at a member."""
        return self.members[name][0].query(sql)

    def write(self, name: str, *ids: int) -> None:
        """Insert rows into a member's table, in one transaction."""
        rows = ",".join(f"({it}, 'note {it}')" for it in ids)
        self.query(name, f"INSERT INTO {self.table(name)} VALUES {rows}")


def rows_of(batch: Batch) -> list[Row]:
    """The member of each row, and its first column."""
    return [(it.member or "", str(next(iter((it.after or it.before or {}).values())))) for it in batch]


def take(client: Client, most: int, **options: Any) -> tuple[list[Row], list[Batch]]:
    """Take batches until `most` rows have come; they are not acked."""
    found: list[Row] = []
    batches: list[Batch] = []
    while len(found) < most:
        batch = client.get_without_ack(SECONDS, **options)
        assert batch, f"only {found} came"
        batches.append(batch)
        found += rows_of(batch)
    return found, batches
