"""Records of TiDB's secondary binlog that are made of entries: what they say, where a transaction goes on in the next
batch, and what cannot be sent."""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.canal.entry_pb2 import (
    ALTER,
    DELETE,
    INSERT,
    QUERY,
    RENAME,
    ROWDATA,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
    XACOMMIT,
    Column,
    Entry,
    RowChange,
    TransactionEnd,
)
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_changes, decode_rows
from sluice.protocol.errors import (
    DecodeError,
    MarkerError,
    PartialRowsError,
    RecordTooLargeError,
    RefusedError,
    TransactionTooLargeError,
    UnfitChangeError,
)
from sluice.protocol.tidb import secondary_pb2 as secondary
from sluice.protocol.tidb.entries import EntryEncoder
from sluice.protocol.tidb.tags import LOGICAL_BITS
from sluice.protocol.tidb.transactions import TidbEncoder
from sluice.protocol.wire import varint
from tests.tidb import Record, captured
from tests.unit.entries import TYPES, encode_change, entries, frame, mutated, plain_value, texts

Place = tuple[int, int]
Part = tuple[Entry, Place]
TIME = 1_700_000_000
STAMP = TIME * 1000 << LOGICAL_BITS


def entry(kind: int, seconds: int = TIME, props: Mapping[str, str] = {}) -> Entry:
    made = Entry(entryType=kind)  # type: ignore[arg-type]
    made.header.executeTime = seconds * 1000
    for key, value in props.items():
        made.header.props.add(key=f"sluice.{key}", value=value)
    return made


def begin() -> Entry:
    return entry(TRANSACTIONBEGIN)


def end(seconds: int = TIME) -> Entry:
    made = entry(TRANSACTIONEND, seconds)
    made.storeValue = TransactionEnd(transactionId="7").SerializeToString()
    return made


Cells = Sequence[tuple[str, str, str | None]]
"""Name, with ``*`` before that of a column of the key, mysqlType and text of each column."""


def fill(image: Any, cells: Cells) -> None:
    for index, (name, mysql_type, text) in enumerate(cells):
        column = image.add(index=index, name=name.lstrip("*"), isKey=name[0] == "*", mysqlType=mysql_type)
        column.sqlType = 2004 if "blob" in mysql_type or "binary" in mysql_type else 12
        if text is None:
            column.isNull = True
        else:
            column.value = text


def change(kind: int, *rows: tuple[Cells, Cells], table: str = "goods", **props: str) -> Entry:
    """Each row as it was before and after."""
    made = entry(ROWDATA, props=props)
    made.header.schemaName, made.header.tableName = "shop", table
    row_change = RowChange(eventType=kind)  # type: ignore[arg-type]
    for before, after in rows:
        row = row_change.rowDatas.add()
        fill(row.beforeColumns, before)
        fill(row.afterColumns, after)
    made.storeValue = row_change.SerializeToString()
    return made


def row(number: int, name: str = "bob") -> Cells:
    return [("*id", "int(11)", str(number)), ("name", "varchar(20)", name)]


def insert(*numbers: int, table: str = "goods", size: int = 3) -> Entry:
    return change(INSERT, *(([], row(it, "b" * size)) for it in numbers), table=table)


def update(number: int, table: str = "goods") -> Entry:
    return change(UPDATE, (row(number), row(number, "alice")), table=table)


def delete(number: int, table: str = "goods") -> Entry:
    return change(DELETE, (row(number), []), table=table)


def statement(sql: str, *, kind: int = ALTER, is_ddl: bool = True, schema: str = "shop", **props: str) -> Entry:
    made = entry(ROWDATA, props=props)
    made.header.schemaName, made.header.tableName = schema, "goods" if schema else ""
    made.storeValue = RowChange(
        eventType=kind,  # type: ignore[arg-type]
        sql=sql,
        isDdl=is_ddl,
        ddlSchemaName="other",
    ).SerializeToString()
    return made


def encode(made: TidbEncoder, parts: Sequence[Part], start: int = 0) -> Any:
    positions = b"".join(varint(it) for _, place in parts for it in place)
    return made.encode([frame([it for it, _ in parts])], 1, begin=start, positions=positions)


def encoder(limit: int = 1 << 20) -> TidbEncoder:
    return TidbEncoder(limit=limit)


def read(value: bytes) -> secondary.Binlog:
    found = secondary.Binlog.FromString(value)
    assert found.SerializeToString() == value, "the fields are in another order, or lengths are padded"
    return found


def said(values: Sequence[bytes]) -> list[Any]:
    """The statement of each record, or its tables with the type of each change and the text of its first column."""
    found: list[Any] = []
    for it in map(read, values):
        if it.type == secondary.DDL:
            found.append(it.ddl_data.ddl_query.decode())
            continue
        tables = it.dml_data.tables
        found.append(
            {
                table.table_name: " ".join(
                    f"{secondary.MutationType.Name(it.type)[0]}{it.row.columns[0].int64_value}"
                    for it in table.mutations
                )
                for table in tables
            }
        )
        assert len(found[-1]) == len(tables), "a table is there twice"
    return found


def stamps(values: Sequence[bytes]) -> list[int]:
    """The commit_ts of each record, after that of `TIME`."""
    return [read(it).commit_ts - STAMP for it in values]


# --- what Drainer wrote ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("it", captured(), ids=lambda it: f"{it.offset}-{it.label}")
def test_of_the_entries_of_what_drainer_wrote_it_is_made_again_byte_for_byte(it: Record) -> None:
    """But for what entries do not say: the counter in a commit_ts, unique keys beside the primary one, and labels."""
    data = b"".join(part.data for part in EntryEncoder("1_obinlog.0").encode(it.value, 0).entries)
    (found,) = encoder().encode([data], 1, positions=varint(4) * 2 * len(Messages.FromString(data).messages)).values
    expected = secondary.Binlog.FromString(it.value)
    expected.commit_ts = expected.commit_ts >> LOGICAL_BITS << LOGICAL_BITS
    expected.ddl_data.ddl_query = expected.ddl_data.ddl_query.removesuffix(b";")
    if expected.type == secondary.DML:
        expected.ClearField("ddl_data")
    for table in expected.dml_data.tables:
        for info in table.column_info:
            if info.mysql_type in ("enum", "set"):
                info.flen = -1
        for key in [key for key in table.unique_keys if key.name != "PRIMARY"]:
            table.unique_keys.remove(key)
    assert read(found) == expected
    assert found == expected.SerializeToString()


# --- transactions ----------------------------------------------------------------------------------------------------

STREAM: list[Part] = [
    (begin(), (4, 1)),
    (insert(1, 2), (4, 3)),
    (insert(3, table="orders"), (4, 5)),
    (update(1), (4, 7)),
    (delete(3, table="orders"), (4, 9)),
    (insert(8, table="items"), (4, 11)),
    (delete(2), (4, 13)),
    (end(), (4, 14)),
    (statement("ALTER TABLE goods ADD n INT"), (500, 1)),
    (begin(), (700, 1)),
    (end(), (700, 2)),
    (begin(), (800, 1)),
    (insert(9), (800, 3)),
    (update(9), (800, 5)),
    (end(TIME + 1), (800, 6)),
]
WHOLE = [
    {"goods": "I1 I2 U1 D2", "orders": "I3 D3", "items": "I8"},
    "ALTER TABLE goods ADD n INT",
    {"goods": "I9 U9"},
]
TIMES = [0, 1, 1000 << LOGICAL_BITS]


class TestTransactions:
    def test_each_is_a_record_with_each_table_once_in_the_order_of_their_first_changes(self) -> None:
        found = encode(encoder(), STREAM)
        assert said(found.values) == WHOLE
        assert [list(it) for it in WHOLE if isinstance(it, dict)] == [
            [table.table_name for table in read(it).dml_data.tables] for it in found.values if read(it).dml_data.tables
        ]
        assert list(found.rows) == [7, 0, 2]
        assert list(found.entries) == [0, 8, 11]
        assert set(found.topics) == set(found.partitions) == {0}
        assert found.keys is None

    @given(st.sets(st.integers(1, len(STREAM) - 1)))
    def test_batches_may_end_anywhere(self, cuts: set[int]) -> None:
        found: list[bytes] = []
        made = encoder()
        for first, last in itertools.pairwise([0, *sorted(cuts), len(STREAM)]):
            found += encode(made, STREAM[first:last]).values
        assert said(found) == WHOLE
        assert stamps(found) == TIMES

    @given(st.integers(0, len(STREAM)), st.sets(st.integers(0, len(STREAM))))
    def test_what_is_undone_comes_again_as_if_it_had_not_been(self, first: int, stops: set[int]) -> None:
        made = encoder()
        found = list(encode(made, STREAM[:first]).values)
        for stop in stops:
            encode(made, STREAM[first:stop])
            made.undo()
        found += encode(made, STREAM[first:]).values
        assert said(found) == WHOLE
        assert stamps(found) == TIMES

    def test_another_encoder_goes_on_between_two_transactions(self) -> None:
        made, other = encoder(), encoder()
        encode(made, STREAM[:10])
        encode(made, STREAM[10:13])
        other.state = made.state
        assert stamps(encode(other, STREAM[11:]).values) == TIMES[2:]

    def test_one_that_has_no_end_was_not_committed(self) -> None:
        parts = [*STREAM[:4], (begin(), (90, 1)), (insert(5), (90, 3)), (end(), (90, 4))]
        assert said(encode(encoder(), parts).values) == [{"goods": "I5"}]
        assert said(encode(encoder(), [*STREAM[:4], STREAM[8]]).values) == [WHOLE[1]]

    def test_one_that_is_joined_in_the_middle_has_what_follows(self) -> None:
        assert said(encode(encoder(), STREAM[5:8]).values) == [{"items": "I8", "goods": "D2"}]

    def test_a_ddl_inside_one_ends_what_is_before_it(self) -> None:
        ddl = statement("CREATE TABLE n (id INT) START TRANSACTION"), (4, 4)
        parts = [*STREAM[:2], ddl, (insert(3), (4, 5)), (end(), (4, 6))]
        found = encode(encoder(), parts)
        assert said(found.values) == [{"goods": "I1 I2"}, "CREATE TABLE n (id INT) START TRANSACTION", {"goods": "I3"}]
        assert list(found.rows) == [2, 0, 1]

    def test_a_table_that_has_changed_in_between_is_another_one(self) -> None:
        wider = change(INSERT, ([], [*row(3), ("n", "int", None)]))
        parts = [STREAM[0], STREAM[1], STREAM[7], STREAM[0], (wider, (4, 3)), STREAM[7]]
        found = [read(it).dml_data.tables[0] for it in encode(encoder(), parts).values]
        assert [len(it.column_info) for it in found] == [2, 3]

    def test_the_texts_of_statements_that_stand_before_their_rows_are_left_out(self) -> None:
        text = statement("INSERT ...", kind=QUERY, is_ddl=False), (4, 2)
        assert said(encode(encoder(), [STREAM[0], text, *STREAM[1:8]]).values) == WHOLE[:1]


class TestCommitTs:
    def made(self, *seconds: int, state: str = "") -> tuple[list[int], str]:
        parts = [it for one in seconds for it in ((begin(), (4, 1)), (insert(1), (4, 3)), (end(one), (4, 4)))]
        maker = encoder()
        maker.state = state
        return [read(it).commit_ts for it in encode(maker, parts).values], maker.state

    def test_it_is_the_time_of_the_commit_and_ascends(self) -> None:
        found, state = self.made(5, 5, 7, 6, 8)
        assert [divmod(it, 1 << LOGICAL_BITS) for it in found] == [
            (5000, 0),
            (5000, 1),
            (7000, 0),
            (7000, 1),
            (8000, 0),
        ]
        assert state == str(found[-1])

    def test_it_is_the_same_in_a_repetition_from_the_same_state(self) -> None:
        first, state = self.made(5, 5)
        assert self.made(5, 4, 5, 6, state=state) == self.made(5, 4, 5, 6, state=state)
        assert self.made(5, state=state)[0] == [first[-1] + 1]

    def test_it_is_never_zero(self) -> None:
        assert self.made(0, 0)[0] == [1, 2]


# --- rows ------------------------------------------------------------------------------------------------------------


def table_of(*cells: tuple[str, str, str | None]) -> secondary.Table:
    """The table of a record with one inserted row."""
    parts = [STREAM[0], (change(INSERT, ([], cells)), (4, 3)), STREAM[7]]
    (found,) = encode(encoder(), parts).values
    return read(found).dml_data.tables[0]


@pytest.mark.parametrize(
    ("mysql_type", "text", "info", "cell"),
    [
        ("tinyint(4)", "-128", ("tinyint", 4, 0), {"int64_value": -128}),
        ("tinyint(1)", "1", ("tinyint", 1, 0), {"int64_value": 1}),
        ("tinyint unsigned", "255", ("tinyint", 3, 0), {"uint64_value": 255}),
        ("smallint", "-32768", ("smallint", 6, 0), {"int64_value": -32768}),
        ("mediumint unsigned", "1", ("mediumint", 8, 0), {"uint64_value": 1}),
        ("int(10) unsigned zerofill", "7", ("int", 10, 0), {"uint64_value": 7}),
        ("bigint", "-9223372036854775808", ("bigint", 20, 0), {"int64_value": -(2**63)}),
        ("bigint(20) unsigned", "18446744073709551615", ("bigint", 20, 0), {"uint64_value": 2**64 - 1}),
        ("float", "0.1", ("float", 12, -1), {"double_value": 0.10000000149011612}),
        ("float(7,2)", "1.5", ("float", 7, 2), {"double_value": 1.5}),
        ("double", "-2.25E100", ("double", 22, -1), {"double_value": -2.25e100}),
        ("double unsigned", "1.0E-3", ("double", 22, -1), {"double_value": 0.001}),
        ("decimal(30,10)", "-0.0000000001", ("decimal", 30, 10), {"string_value": "-0.0000000001"}),
        ("bit(10)", "682", ("bit", 10, 0), {"bytes_value": b"\x02\xaa"}),
        ("bit(64)", str(2**64 - 2), ("bit", 64, 0), {"bytes_value": b"\xff" * 7 + b"\xfe"}),
        ("date", "0000-01-01", ("date", 10, 0), {"string_value": "0000-01-01"}),
        ("datetime", "2024-02-29 23:59:59", ("datetime", 19, 0), {"string_value": "2024-02-29 23:59:59"}),
        ("datetime(3)", "2024-02-29 23:59:59.120", ("datetime", 23, 3), {"string_value": "2024-02-29 23:59:59.120"}),
        ("timestamp(6)", "1970-01-01 00:00:01.5", ("timestamp", 26, 6), {"string_value": "1970-01-01 00:00:01.5"}),
        ("time(2)", "-123:04:05.67", ("time", 13, 2), {"string_value": "-123:04:05.67"}),
        ("year(4)", "2024", ("year", 4, 0), {"string_value": "2024"}),
        ("char(10)", "", ("char", 10, 0), {"string_value": ""}),
        ("varchar(50)", "vär", ("varchar", 50, 0), {"string_value": "vär"}),
        ("mediumtext", "😀", ("mediumtext", 16777215, 0), {"string_value": "😀"}),
        ("longtext", "", ("longtext", -1, 0), {"string_value": ""}),
        ("binary(4)", "aÿ", ("binary", 4, 0), {"bytes_value": b"a\xff\0\0"}),
        ("varbinary(20)", "\0ÿ\x10", ("varbinary", 20, 0), {"bytes_value": b"\0\xff\x10"}),
        ("blob", "Þ\xad", ("blob", 65535, 0), {"bytes_value": b"\xde\xad"}),
        ("enum('red','green','blue')", "2", ("enum", 5, 0), {"uint64_value": 2}),
        ("set('a','b','c','d')", "5", ("set", 7, 0), {"uint64_value": 5}),
        ("enum", "2", ("enum", -1, 0), {"uint64_value": 2}),
        ("json", '{"k": [1, null]}', ("json", -1, 0), {"bytes_value": b'{"k": [1, null]}'}),
        ("json", "", ("json", -1, 0), {"bytes_value": b"null"}),
        ("uuid", "123e4567-e89b-12d3-a456-4266", ("char", 36, 0), {"string_value": "123e4567-e89b-12d3-a456-4266"}),
        ("inet6", "::1", ("char", 39, 0), {"string_value": "::1"}),
        ("geometry blob", "\x01", ("longblob", -1, 0), {"bytes_value": b"\x01"}),
        ("tuple", "x", ("longtext", -1, 0), {"string_value": "x"}),
    ],
)  # fmt: skip
def test_a_value_is_in_the_field_of_its_type(
    mysql_type: str, text: str, info: tuple[str, int, int], cell: dict[str, Any]
) -> None:
    found = table_of(("c", mysql_type, text), ("d", mysql_type, None))
    for it, name in zip(found.column_info, "cd", strict=True):
        assert (it.name, it.mysql_type, it.flen, it.decimal, it.is_primary_key) == (name, *info, False)
    assert list(found.mutations[0].row.columns) == [secondary.Column(**cell), secondary.Column(is_null=True)]
    assert not found.unique_keys


def test_the_primary_key_is_named() -> None:
    found = table_of(("a", "int", "1"), ("*b", "int", "2"), ("*c", "int", "3"))
    assert [it.is_primary_key for it in found.column_info] == [False, True, True]
    assert [(it.name, list(it.column_names)) for it in found.unique_keys] == [("PRIMARY", ["b", "c"])]


def with_source(unique_keys: str, commit_ts: str) -> list[Part]:
    """A transaction whose entries say what TiDB has said."""
    inserted = change(INSERT, ([], row(1)), uniqueKeys=unique_keys)
    return [STREAM[0], (inserted, (4, 3)), (entry(TRANSACTIONEND, props={"commitTs": commit_ts}), (4, 4))]


def test_unique_keys_and_the_commit_ts_are_those_that_entries_say() -> None:
    parts = with_source('[["PRIMARY","id"],["u_name","name","id"]]', str(STAMP + 9))
    (found,) = encode(encoder(), parts).values
    keys = read(found).dml_data.tables[0].unique_keys
    assert [(it.name, list(it.column_names)) for it in keys] == [("PRIMARY", ["id"]), ("u_name", ["name", "id"])]
    assert stamps([found]) == [9]


@pytest.mark.parametrize(
    ("unique_keys", "commit_ts"),
    [("[", "5"), ("{}", "5"), ("[[]]", "5"), ("[[1]]", "5"), ('[["PRIMARY","id"]]', "x"), ('[["PRIMARY","id"]]', "0")],
)
def test_keys_and_a_commit_ts_that_are_none_are_refused(unique_keys: str, commit_ts: str) -> None:
    with pytest.raises(DecodeError):
        encode(encoder(), with_source(unique_keys, commit_ts))


def test_of_an_update_the_row_is_the_new_one() -> None:
    (found,) = encode(encoder(), [STREAM[0], (update(7), (4, 3)), STREAM[7]]).values
    (mutation,) = read(found).dml_data.tables[0].mutations
    assert [it.string_value for it in (mutation.row.columns[1], mutation.change_row.columns[1])] == ["alice", "bob"]


def test_an_update_of_the_key_is_a_delete_and_an_insert() -> None:
    rows = [(row(1), row(2)), (row(3), row(3, "eve")), (row(4), row(5, "eve"))]
    (found,) = encode(encoder(), [STREAM[0], (change(UPDATE, *rows), (4, 3)), STREAM[7]]).values
    assert said([found]) == [{"goods": "D1 I2 U3 D4 I5"}]


def test_a_long_row_and_a_short_one_have_lengths_of_their_own() -> None:
    sizes = [0, 100, 130, 20_000, 3_000_000]
    parts = [STREAM[0], *((insert(it, size=it), (4, 3)) for it in sizes), STREAM[7]]
    (found,) = encode(encoder(limit=1 << 23), parts).values
    mutations = read(found).dml_data.tables[0].mutations
    assert [len(it.row.columns[1].string_value) for it in mutations] == sizes


@st.composite
def whole_tables(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """Columns: name, mysqlType, sqlType."""
    names = draw(st.lists(texts.filter(bool), unique=True, min_size=1, max_size=6))
    return [(name, *draw(st.sampled_from(list(TYPES)))) for name in names]


@st.composite
def whole_images(draw: st.DrawFn, table: list[tuple[str, str, int]]) -> list[Column]:
    columns = []
    for index, (name, mysql_type, sql_type) in enumerate(table):
        column = Column(index=index, sqlType=sql_type, name=name, mysqlType=mysql_type, isNull=draw(st.booleans()))
        if not column.isNull:
            column.value = draw(TYPES[mysql_type, sql_type])
        columns.append(column)
    return columns


def expected(image: Sequence[Column]) -> dict[str, Any] | None:
    """What a reader of records gives: numbers in the place of labels."""
    found = {
        it.name: int(it.value) if it.mysqlType[:3] in ("enu", "set") and not it.isNull else plain_value(it)
        for it in image
    }
    return found or None


@given(st.data())
def test_a_reader_gives_the_rows_that_were_written(data: st.DataObject) -> None:
    table = data.draw(whole_tables())
    kind = data.draw(st.sampled_from([INSERT, UPDATE, DELETE]))
    row_change = RowChange(eventType=kind)
    for _ in range(data.draw(st.integers(1, 3))):
        made = row_change.rowDatas.add()
        if kind != INSERT:
            made.beforeColumns.extend(data.draw(whole_images(table)))
        if kind != DELETE:
            made.afterColumns.extend(data.draw(whole_images(table)))
    rows = entry(ROWDATA)
    rows.header.schemaName, rows.header.tableName = data.draw(texts), data.draw(texts)
    rows.storeValue = encode_change(row_change, data.draw(st.booleans()))
    (value,) = encode(encoder(), [STREAM[0], (rows, (4, 3)), STREAM[7]]).values
    read(value)
    data_of_reader = b"".join(it.data for it in EntryEncoder("1_obinlog.0").encode(value, 0).entries)
    found = decode_rows(data_of_reader)
    assert [(it.schema, it.table) for it in found] == [(rows.header.schemaName, rows.header.tableName)] * len(found)
    assert [(it.before, it.after) for it in found] == [
        (expected(it.beforeColumns), expected(it.afterColumns)) for it in row_change.rowDatas
    ]


# --- statements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (statement("ALTER TABLE goods ADD n INT"), ("shop", "goods")),
        (statement("RENAME TABLE old TO goods", kind=RENAME), ("shop", "goods")),
        (statement("CREATE DATABASE x", kind=QUERY, schema=""), ("other", "")),
    ],
)
def test_a_statement_has_its_schema_and_table(made: Entry, expected: tuple[str, str]) -> None:
    (value,) = encode(encoder(), [(made, (4, 1))]).values
    ddl = read(value).ddl_data
    assert (ddl.schema_name, ddl.table_name) == expected
    assert ddl.HasField("table_name"), "Drainer writes it always"
    data = b"".join(it.data for it in EntryEncoder("1_obinlog.0").encode(value, 0).entries)
    (found,) = decode_changes(data)
    assert (found.sql, found.is_ddl) == (RowChange.FromString(made.storeValue).sql, True)


# --- what cannot be sent ---------------------------------------------------------------------------------------------


def partial() -> Entry:
    made = update(1)
    row_change = RowChange.FromString(made.storeValue)
    row_change.props.add(key="sluice.absent", value="[]")
    made.storeValue = row_change.SerializeToString()
    return made


class TestRefused:
    """What cannot be sent ends the records before it; what follows can be asked for."""

    @pytest.mark.parametrize(
        ("refused", "error", "text"),
        [
            (statement("-- sluice.gap: why", kind=QUERY, is_ddl=False, gap="why"), MarkerError, "are missing here"),
            (partial(), PartialRowsError, "rows of shop.goods do not have all columns"),
            (statement("x" * 500), RecordTooLargeError, "a change of shop.goods is too large for a record"),
            (
                statement("INSERT INTO goods VALUES (1)", kind=INSERT, is_ddl=False),
                UnfitChangeError,
                "a change of shop.goods was logged as a statement, not as rows: set binlog_format = ROW",
            ),
            (
                statement("XA COMMIT X'61',X'',1", kind=XACOMMIT, is_ddl=False),
                UnfitChangeError,
                "was logged as a statement",
            ),
            (
                change(INSERT, ([], row(1)), snapshot="5"),
                UnfitChangeError,
                "a change of shop.goods belongs to a snapshot",
            ),
        ],
    )
    def test_an_entry(self, refused: Entry, error: type[RefusedError], text: str) -> None:
        made = encoder(limit=500)
        parts = [*STREAM[:2], (refused, (4, 4)), *STREAM[3:8]]
        found = encode(made, parts)
        assert isinstance(found.refused, error)
        assert text in str(found.refused)
        assert (found.end, found.refused.entry, found.values) == (2, 2, [])
        assert said(encode(made, parts, start=3).values) == [{"goods": "I1 I2 U1 D2", "orders": "D3", "items": "I8"}]

    LARGE = (insert(*range(10), table="orders", size=60), (800, 4))

    @pytest.mark.parametrize("cut", range(10))
    def test_a_transaction_is_refused_as_a_whole_and_counts_from_its_begin_in_the_batch(self, cut: int) -> None:
        made = encoder(limit=500)
        parts = [*STREAM[8:13], self.LARGE, *STREAM[13:]]
        assert encode(made, parts[:cut]).refused is None or cut > 5
        made.undo()
        cut = min(cut, 5)
        sent = list(encode(made, parts[:cut]).values)
        found = encode(made, parts[cut:])
        assert isinstance(found.refused, TransactionTooLargeError)
        assert (found.end, found.refused.entry) == (5 - cut, max(3 - cut, 0))
        assert str(found.refused).startswith(
            "a transaction with changes of shop.goods, shop.orders is too large for a record: "
        )
        assert "bytes or more of 500. Raise kafka.max.request.size" in str(found.refused)
        assert said([*sent, *found.values]) == [WHOLE[1]]
        rest = encode(made, parts[cut:], start=found.end + 1)
        assert (rest.refused, rest.values) == (None, []), "what is left of it is left out"
        assert said(encode(made, STREAM[11:]).values) == WHOLE[2:]

    def test_after_what_is_undone_it_is_refused_again(self) -> None:
        made = encoder(limit=500)
        parts = [*STREAM[8:13], self.LARGE, *STREAM[13:]]
        for _ in range(2):
            found = encode(made, parts)
            assert isinstance(found.refused, TransactionTooLargeError)
            made.undo()
        assert said(encode(made, STREAM[8:]).values) == WHOLE[1:]

    @given(st.integers(100, 900), st.lists(st.integers(0, 200), min_size=1, max_size=6))
    def test_no_record_is_larger_than_the_limit_and_what_fits_is_sent(self, limit: int, sizes: list[int]) -> None:
        rows = [(insert(it, table=f"t{it % 3}", size=it), (4, 2)) for it in sizes]
        found = encode(encoder(limit), [STREAM[0], *rows, STREAM[7]])
        (whole,) = encode(encoder(), [STREAM[0], *rows, STREAM[7]]).values
        if found.refused is None:
            assert [len(it) <= limit for it in found.values] == [True]
        else:
            assert len(whole) + 24 + 11 * 3 > limit

    def test_many_tables_are_not_all_named(self) -> None:
        rows = [(insert(1, table=f"t{it}"), (4, 2)) for it in range(30)]
        found = encode(encoder(1000), [STREAM[0], *rows])
        assert "shop.t9 and others is too large" in str(found.refused)


def test_rows_of_an_event_with_other_columns_are_no_rows() -> None:
    other = [("*id", "int", "1"), ("more", "int", "1")]
    for second in (other, row(2)[:1]):
        with pytest.raises(DecodeError):
            encode(encoder(), [STREAM[0], (change(INSERT, ([], row(1)), ([], second)), (4, 3))])


@pytest.mark.parametrize(
    ("mysql_type", "text"),
    [
        ("int", ""),
        ("int", "1x"),
        ("int unsigned", "-1"),
        ("bigint", "9223372036854775808"),
        ("double", "1,5"),
        ("bit(3)", "x"),
        ("blob", "Ā"),
    ],
)
def test_a_text_that_is_not_of_its_type_is_refused(mysql_type: str, text: str) -> None:
    with pytest.raises(DecodeError):
        table_of(("c", mysql_type, text))


@given(st.lists(entries(), min_size=1, max_size=4), st.data())
def test_bytes_that_are_no_entries_are_refused(parts: list[Entry], data: st.DataObject) -> None:
    framed = mutated(data, frame([begin(), insert(1, 2), end(), begin(), *parts, end()]))
    with suppress(DecodeError):
        found = encoder().encode([framed], 1, positions=data.draw(st.binary(max_size=20)))
        for value, count in zip(found.values, found.rows, strict=True):
            changes = sum(len(it.mutations) for it in read(value).dml_data.tables)
            assert count <= changes <= 2 * count, "one of each row, or two where its key changes"
