"""TIMESTAMP is text in the destination's time zone, whatever the zones of the source and of its sessions are."""

from pathlib import Path

import pytest

from tests.conftest import Database
from tests.delivery import delivered, rows_of, values
from tests.servers import Server

MOMENTS = [
    (1_711_846_799, "2024-03-31 01:59:59", "2024-03-30 19:59:59"),
    (1_711_846_800, "2024-03-31 03:00:00", "2024-03-30 20:00:00"),  # an hour is left out in Berlin
    (1_729_990_799, "2024-10-27 02:59:59", "2024-10-26 19:59:59"),
    (1_729_990_800, "2024-10-27 02:00:00", "2024-10-26 20:00:00"),  # and comes twice
    (1_730_000_000, "2024-10-27 04:33:20", "2024-10-26 22:33:20"),
    (1, "1970-01-01 01:00:01", "1969-12-31 18:00:01"),
    (2_147_483_647, "2038-01-19 04:14:07", "2038-01-18 21:14:07"),
]


@pytest.mark.parametrize(("zone", "column"), [("Europe/Berlin", 1), ("America/Chicago", 2)])
def test_a_timestamp_is_what_the_clocks_of_the_zone_show(
    server: Server, database: Database, tmp_path: Path, zone: str, column: int
) -> None:
    schema = database(server)
    statements = ["CREATE TABLE t (s TIMESTAMP NULL, m TIMESTAMP(3) NULL, d DATETIME)", "SET time_zone = '+05:30'"]
    statements += [
        f"INSERT INTO t VALUES (FROM_UNIXTIME({moment[0]}), FROM_UNIXTIME({moment[0]}.5), '2024-03-31 02:30:00')"
        for moment in MOMENTS
    ]
    entries = delivered(server, tmp_path, schema, statements, time_zone=zone)
    rows = [values(row.afterColumns) for _, change in rows_of(entries) for row in change.rowDatas]
    expected = [str(moment[column]) for moment in MOMENTS]
    assert [row["s"] for row in rows] == expected
    assert [row["m"] for row in rows] == [f"{text}.500" for text in expected]
    assert {row["d"] for row in rows} == {"2024-03-31 02:30:00"}  # DATETIME is the same everywhere
