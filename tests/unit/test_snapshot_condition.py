"""Conditions on the rows of a snapshot: what of a client's text gets into the statement."""

import pytest

from sluice.instance.conditions.sql import LONGEST, translate
from sluice.login.columns import SnapshotColumn
from sluice.login.tables import SnapshotTable
from sluice.protocol.errors import BadParameterError

COLUMNS = ("id", "Status", "total", "raw", "odd`name")
TABLE = SnapshotTable("shop", "items", tuple(SnapshotColumn(name, "int") for name in COLUMNS))


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("", ""),
        ("id > 1000", "(`id` > 1000)"),
        ("status = 'paid' and TOTAL <> -1.50", "((`Status` = _utf8mb4 X'70616964') AND (NOT (`total` = -1.50)))"),
        ("id BETWEEN 1 AND 5 OR NOT id IN (7, 8)", "(((`id` >= 1) AND (`id` <= 5)) OR (NOT (`id` IN (7, 8))))"),
        ("`odd``name` IS NOT NULL", "(NOT (`odd``name` IS NULL))"),
        (r"status LIKE 'a\\_%'", "(`Status` LIKE _utf8mb4 X'615c5f25')"),
        ("status COLLATE latin1_bin IN ('a')", "(`Status` COLLATE latin1_bin IN (_utf8mb4 X'61'))"),
        ("status COLLATE c LIKE 'a'", "(`Status` COLLATE c LIKE _utf8mb4 X'61')"),
        ("raw = X'00ff'", "(`raw` = X'00ff')"),
        ("total < 1e3", "(`total` < 1000.0)"),
        ("status = ''' OR 1 = 1 -- '", "(`Status` = _utf8mb4 X'27204f522031203d2031202d2d20')"),
    ],
)
def test_tests_of_columns_are_written_anew(text: str, sql: str) -> None:
    assert translate(text, TABLE, [column.name for column in TABLE.columns]) == sql


@pytest.mark.parametrize(
    "text",
    [
        "other = 1",
        "id = 1; DROP TABLE items",
        "id IN (SELECT 1)",
        "sleep(9) = 0",
        "id = sleep(9)",
        "shop.id = 1",
        "id = @@version",
        "id = total",
        "(id = 1",
        "id = 1) OR (1 = 1",
        "id > 1 /* \ud800 */",
        "id IN",
        f"id IN ({', '.join(['1'] * LONGEST)})",
    ],
)
def test_all_else_is_refused(text: str) -> None:
    with pytest.raises(BadParameterError, match=r"the condition of shop\.items"):
        translate(text, TABLE, [column.name for column in TABLE.columns])
