"""The messages of TiDB's binlog: those that a TiDB and its pump have sent, and the example that TiDB explains."""

from sluice.protocol.tidb import binlog_pb2 as binlog
from sluice.protocol.tidb import pump_pb2 as pump
from tests.tidb import pulled, written


def test_each_captured_message_has_these_fields_and_no_others() -> None:
    for it in [*written(), *pulled()]:
        message = binlog.Binlog.FromString(it.payload)
        value = binlog.PrewriteValue.FromString(message.prewrite_value)
        assert message.SerializeToString() == it.payload
        assert value.SerializeToString() == message.prewrite_value
        value.DiscardUnknownFields()
        message.DiscardUnknownFields()
        assert message.SerializeToString() == it.payload
        assert value.SerializeToString() == message.prewrite_value


def test_captured_messages_say_what_their_transaction_did() -> None:
    prewrite, commit = [binlog.Binlog.FromString(it.payload) for it in written() if it.label == "same_row_txn"]
    assert (prewrite.tp, commit.tp) == (binlog.Prewrite, binlog.Commit)
    assert prewrite.start_ts == commit.start_ts < commit.commit_ts
    assert prewrite.prewrite_key == commit.prewrite_key
    assert not commit.HasField("prewrite_value")
    (table,) = binlog.PrewriteValue.FromString(prewrite.prewrite_value).mutations
    # Of its INSERT, two UPDATEs, INSERT and DELETE.
    assert table.sequence == [binlog.Insert, binlog.Update, binlog.Update, binlog.Insert, binlog.DeleteRow]
    assert (len(table.inserted_rows), len(table.updated_rows), len(table.deleted_rows)) == (2, 2, 1)


def test_a_transaction_in_a_stream_has_its_place_beside_its_payload() -> None:
    entity = pump.Entity(pos=pump.Pos(), payload=b"p", meta=pump.Meta(startTs=1, commitTs=2))
    assert pump.PullBinlogResp(entity=entity).SerializeToString() == bytes.fromhex("0a0b 0a00 120170 2204 1001 1802")
    assert pump.PullBinlogReq(clusterID=3, startFrom=pump.Pos(offset=2)).SerializeToString() == bytes.fromhex(
        "0803 12021002"
    )
