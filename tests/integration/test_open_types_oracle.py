"""The oracle of DDL for `Catalog.only_open`: after each statement the server says what an open column is."""

import pytest

from sluice.instance.sources.mysql.history.statements import Context, apply
from sluice.instance.sources.mysql.history.tables import OPEN_TYPES, UNKNOWN, Catalog, Table
from tests.ddl import random_statements
from tests.ddl.oracle import Oracle
from tests.ddl.random_statements import Statements
from tests.servers import Server

TYPES = ("UUID", "INET6", "INET4", "BINARY(16)", "BINARY(4)", "CHAR(16) CHARACTER SET binary", "INT", "VARCHAR(9)")


class OpenOracle(Oracle):
    """Compares a second catalogue, of open columns."""

    def __init__(self, server: Server) -> None:
        self.open = Catalog(only_open=True)
        self.open.is_complete = True
        self.told = 0
        """Open columns of which the catalogue said what they are."""
        self.untold: list[str] = []
        """Statements after which it did not."""
        super().__init__(server)

    def logged(self) -> list[tuple[str, str]]:
        """Apply the statements to the second catalogue, too."""
        found = super().logged()
        for schema, text in found:
            apply(self.open, self.dialect, text, Context(schema))
        return found

    def compare(self, sql: str) -> None:
        """Compare both catalogues with the server."""
        super().compare(sql)
        before = len(self.untold)
        for key, actual in self.tables.items():
            state = self.open.get(*key)
            known = {it.name.lower(): it.type for it in state.columns} if isinstance(state, Table) else {}
            for column in actual.columns:
                if column.type in OPEN_TYPES:
                    type_ = known.get(column.name.lower())
                    assert type_ in (None, column.type), f"{sql}\n{key} {column.name}: {type_}, not {column.type}"
                    self.told += type_ is not None
                    if type_ is None and len(self.untold) == before:
                        self.untold.append(sql)
            if state is UNKNOWN or len(self.untold) > before:
                self.open.put(*key, actual)
        self.open.changes.clear()


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["mariadb118", "mariadb1011"])
def test_random_statements_lead_to_the_open_columns_that_the_server_has(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_statements, "TYPES", TYPES)
    with OpenOracle(request.getfixturevalue(name)) as oracle:
        statements = Statements(3, mariadb=True, version=oracle.dialect.version)
        while oracle.ran < 1000:
            oracle.run(statements.next(oracle.tables))
    assert oracle.told > 1000
    assert len(oracle.untold) < 50, oracle.untold
