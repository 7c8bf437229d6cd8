"""How transactions are recognized on another server without GTIDs."""

from sluice.instance.sources.mysql.standby import transactions
from sluice.protocol.canal import entry_pb2 as pb
from sluice.protocol.canal.packet_pb2 import Messages


def entry(
    kind: pb.EntryType.ValueType,
    *values: str,
    table_id: int = 7,
    event: pb.EventType.ValueType = pb.INSERT,
    sql: str = "",
) -> bytes:
    rows = [pb.RowData(afterColumns=[pb.Column(name="id", value=value)]) for value in values]
    change = pb.RowChange(tableId=table_id, eventType=event, rowDatas=rows, isDdl=bool(sql), sql=sql)
    header = pb.Header(schemaName="shop", tableName="t", eventType=event, serverId=1, executeTime=1_700_000_000_000)
    return pb.Entry(
        header=header, entryType=kind, storeValue=change.SerializeToString() if kind == pb.ROWDATA else b""
    ).SerializeToString()


def framed(*entries: bytes) -> bytes:
    return Messages(messages=entries).SerializeToString()


BEGIN, END = entry(pb.TRANSACTIONBEGIN), entry(pb.TRANSACTIONEND)


def test_the_rows_count_and_neither_how_they_are_cut_nor_the_number_of_the_table() -> None:
    (one,) = transactions(framed(BEGIN, entry(pb.ROWDATA, "1", "2"), END))
    (other,) = transactions(framed(BEGIN, entry(pb.ROWDATA, "1", table_id=9), entry(pb.ROWDATA, "2"), END))
    assert one == other
    assert one.key == (1, 1_700_000_000_000, 2)
    (different,) = transactions(framed(BEGIN, entry(pb.ROWDATA, "2", "1"), END))
    assert different.key == one.key
    assert different.digest != one.digest


def test_only_whole_transactions_that_change_something_count() -> None:
    rows, ddl = entry(pb.ROWDATA, "1"), entry(pb.ROWDATA, event=pb.ALTER, sql="ALTER TABLE t ADD a INT")
    text = entry(pb.ROWDATA, event=pb.QUERY, sql="INSERT INTO t VALUES (1)")
    assert list(transactions(framed(BEGIN, END))) == []
    assert list(transactions(framed(BEGIN, rows))) == []
    assert len(list(transactions(framed(BEGIN, text, rows, END)))) == 1
    assert list(transactions(framed(BEGIN, text, rows, END))) == list(transactions(framed(BEGIN, rows, END)))
    (statement,) = transactions(framed(ddl))
    assert statement.key[2] == 0
    (other,) = transactions(framed(entry(pb.ROWDATA, event=pb.ALTER, sql="ALTER TABLE t ADD b INT")))
    assert statement.digest != other.digest
