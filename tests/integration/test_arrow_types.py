"""The page of Arrow types says the truth: its Arrow types, and values equal to what the server itself selects."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from sluice.protocol.canal.arrow import TableDecoder, arrow_type, columns_of
from tests.conftest import Database, each
from tests.delivery import Delivery, deliver
from tests.integration.samples import SAMPLES, Sample

if TYPE_CHECKING:
    from tests.servers import Server

PAGE = Path(__file__).resolve().parents[2] / "docs/arrow-types.md"


class Described(NamedTuple):
    """A type of the page."""

    arrow: str
    expression: str


def _page() -> dict[str, Described]:
    """The rows of the page's table by column type, in lower case."""
    _, _, rest = PAGE.read_text().partition("<!-- types -->")
    table, _, _ = rest.partition("<!-- end -->")
    found = {}
    for types, arrow, value in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE):
        for name in re.findall(r"`(.*?)`(?:,|$)", types):
            found[name.lower()] = Described(arrow, re.match(r"`(.*?)`", value)[1])  # type: ignore[index]
    return found


DESCRIBED = _page()


def described(mysql_type: str) -> Described:
    """What the page says of a type of the samples: of another length or precision it says the same."""
    if mysql_type in DESCRIBED:
        return DESCRIBED[mysql_type]
    if mysql_type.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", mysql_type))
        name = "decimal(39,0)" if precision > 38 else "decimal(10,2)"
        return DESCRIBED[name]._replace(arrow=f"decimal128({precision}, {scale})" if precision <= 38 else "string")
    if mysql_type.startswith("bit"):
        bits = int(mysql_type[4:-1])
        return DESCRIBED[next(name for name in DESCRIBED if name.startswith("bit") and int(name[4:-1]) >= bits)]
    plain = re.sub(r"\(.*\)|zerofill|compressed| character set \w+", "", mysql_type).strip()
    plain = plain.replace(" null", "") + (" unsigned" if "zerofill" in mysql_type else "")
    plain = {"float unsigned": "float"}.get(plain, plain)
    return next(it for name, it in DESCRIBED.items() if re.sub(r"\(.*\)| null", "", name).strip() == plain)


def selected(value: Any, kind: pa.DataType) -> Any:
    """What PyMySQL gives for the expression, as pyarrow gives a value of the Arrow type."""
    if value is None:
        return None
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return None  # a date that does not exist
    if pa.types.is_list(kind):
        return [label for label in value.split(",") if label]
    if isinstance(value, datetime) and kind.tz:
        return value.replace(tzinfo=UTC)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return int(value) if pa.types.is_integer(kind) else value


def types_of_the_page_alone() -> list[Sample]:
    """The types of the page that the samples do not have, with a value each."""
    values = {"bit": ("b'1'", "0"), "decimal": ("1", "-0.5"), "set": ("'a,it''s'",), "enum": ("'it''s'",)}
    known = {sample.type for sample in SAMPLES}
    return [
        Sample(name, values[word])
        for name in DESCRIBED
        if name not in known and (word := name.partition("(")[0]) in values
    ]


@pytest.mark.parametrize("name", each("mariadb118"))
def test_every_type_arrives_as_the_page_says(
    name: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    samples = {
        f"t{number}": sample
        for number, sample in enumerate([*SAMPLES, *types_of_the_page_alone()])
        if sample.runs_on(name)
    }
    connection = server.connect(
        database=schema, charset="utf8mb4", init_command="SET sql_mode = '', time_zone = '+00:00'"
    )
    wrong = []
    with (
        connection,
        connection.cursor() as cursor,
        deliver(server, tmp_path, filter_regex=f"{schema}\\..*") as delivery,
    ):
        for table, sample in samples.items():
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, c {sample.type})")
            for value in (*sample.values, "NULL"):
                cursor.execute(f"INSERT INTO {table} (c) VALUES ({value})")
        connection.commit()
        data = _everything(delivery)
        for table, sample in samples.items():
            says = described(sample.type)
            columns = columns_of(data, schema, table)
            batch = TableDecoder(schema, table, columns).decode(data)
            batch.validate(full=True)
            kind = batch.schema.field("c").type
            cursor.execute(f"SELECT {says.expression} FROM {table} ORDER BY id")
            right = [selected(value, kind) for (value,) in cursor.fetchall()]
            found = batch.column("c").to_pylist()
            if str(kind) != says.arrow:
                wrong.append(f"{sample.type} ({columns[1][1]}): is {kind}, not {says.arrow}")
            wrong += [
                f"{sample.type} ({columns[1][1]}), {literal[:60]}: {mine!r:.80} instead of {theirs!r:.80}"
                for literal, mine, theirs in zip((*sample.values, "NULL"), found, right, strict=True)
                if mine != theirs
            ]
    assert not wrong, "\n".join(wrong)


def _everything(delivery: Delivery) -> bytes:
    delivery.read()
    collected = delivery.ring.collect(0)
    return b"".join(collected.slices)


def test_the_types_of_the_page_are_those_of_the_codec() -> None:
    assert {name: str(arrow_type(name)) for name in DESCRIBED} == {name: it.arrow for name, it in DESCRIBED.items()}
