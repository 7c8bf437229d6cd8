"""Options of the Spark source: what they read, and what they refuse."""

import pickle
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from sluice.client_sdk.spark.options import NAMES, Options
from sluice.client_sdk.spark.source import SluiceDataSource
from sluice.protocol.errors import BadParameterError

PAGE = Path(__file__).resolve().parents[2] / "docs/spark-reference.md"
COLUMNS = r"id bigint unsigned,`b ``x``` decimal(10, 2) ,c enum('a,)','it''s','\\') null"


@pytest.mark.parametrize(
    ("given", "attribute", "value"),
    [
        ({"clientid": "7"}, "client_id", 7),
        ({"VERIFY": "False"}, "verify", False),
        ({"tokenFile": "/t"}, "token_file", Path("/t")),
        ({"table": "shop.a.b"}, "table", ("shop", "a.b")),
        ({"table": "shop.a"}, "tables", r"shop\.a"),
        ({"table": "shop.a,b$"}, "tables", r"shop\.a\,b\$"),
        ({"table": "shop.a", "filter": r"shop\..*"}, "tables", r"shop\..*"),
        ({}, "tables", None),
        ({"from": "p"}, "from_", "p"),
        ({"startingPosition": "Latest"}, "starting_position", "latest"),
        ({"startingPosition": "1/bin.1@2:3:4"}, "starting_position", "1/bin.1@2:3:4"),
        ({"startingPosition": "1500"}, "starting_position", datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ({"startingPosition": "2026-01-31T14:00+02:00"}, "starting_position", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ({"onMarker": "SKIP"}, "on_marker", "skip"),
        ({"table": "a.b", "metadata": "none"}, "metadata", ()),
        ({"table": "a.b", "metadata": "_op, _pos"}, "metadata", ("_op", "_pos")),
        (
            {"table": "a.b", "columns": COLUMNS},
            "columns",
            (("id", "bigint unsigned"), ("b `x`", "decimal(10, 2)"), ("c", r"enum('a,)','it''s','\\') null")),
        ),
    ],
)
def test_values_are_read(given: dict[str, str], attribute: str, value: Any) -> None:
    assert getattr(Options.parse(given), attribute) == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clientID": "x"}, "option clientId: a number is expected, not 'x'"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger: 0 is less than 1"),
        ({"insecure": "yes"}, "option insecure: true or false is expected, not 'yes'"),
        ({"onmarker": "ignore"}, "option onMarker: fail or skip is expected, not 'ignore'"),
        ({"table": "goods"}, "option table: schema.table is expected, not 'goods'"),
        ({"url": "http://a:1", "zookeeper": "a:2181"}, "give either url or zookeeper"),
        ({"columns": "id int"}, "option columns goes with table"),
        ({"metadata": "none"}, "option metadata goes with table"),
        ({"columns": "id", "table": "a.b"}, r"option columns: a name and a type are expected, .*: 'id'"),
        ({"columns": "", "table": "a.b"}, "option columns: at least one column is expected"),
        (
            {"startingPosition": "2026-01-31T12:00"},
            "option startingPosition: earliest, oldest, latest, a position, or a time",
        ),
        ({"startingPosition": "9" * 30}, "option startingPosition: earliest, oldest, latest, a position, or a time"),
        ({"startingPositions": "latest"}, r"unknown option 'startingPositions': did you mean startingPosition\?"),
        ({"path": "/tmp"}, r"unknown option 'path'$"),
        ({"token": "a", "tokenFile": "b"}, "give either token or tokenFile"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadParameterError, match=message):
        Options.parse(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"from": "1/bin.1@2:3:4"}, "from and to are for a batch"),
        ({"to": "1/bin.1@2:3:4"}, "from and to are for a batch"),
        ({"snapshot": "mysql://reader@db"}, "a snapshot is read by spark.read"),
    ],
)
def test_a_stream_refuses_what_only_a_batch_has(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadParameterError, match=message):
        SluiceDataSource(given).streamReader(StructType())


def test_a_token_is_not_shown_and_one_in_a_file_is_read_when_it_is_needed(tmp_path: Path) -> None:
    options = Options.parse({"token": "very secret"})
    assert "secret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    file = tmp_path / "token"
    options = Options.parse({"tokenFile": str(file)})
    with pytest.raises(BadParameterError, match=r"option tokenFile: .*No such file"):
        options.client()
    file.write_text("first\n")
    assert options.client()._endpoint._token == "first"


def test_every_option_is_described() -> None:
    _, _, table = PAGE.read_text().partition("| option |")
    rows = re.findall(r"^\| (`.*?`) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(NAMES.values())
