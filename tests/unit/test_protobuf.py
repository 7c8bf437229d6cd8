"""The generated modules say what the .proto files say."""

import runpy
from enum import IntEnum
from pathlib import Path

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

from sluice.protocol.canal import entry_pb2, packet_pb2
from sluice.protocol.canal.tags import EntryType, EventType

ROOT = Path(__file__).parents[2]


def test_generating_again_gives_the_modules_that_are_committed(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "scripts" / "generate_protobuf.py"))["generate"](tmp_path)
    generated = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.glob("*/*")}
    messages = ("canal/entry", "canal/packet", "tidb/binlog", "tidb/pump", "tidb/secondary")
    assert sorted(generated) == [f"{name}_pb2.{end}" for name in messages for end in ("py", "pyi")]
    for name, text in generated.items():
        assert text == (ROOT / "protocol" / name).read_text(), f"run scripts/generate_protobuf.py: {name} is outdated"


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (entry_pb2.Entry(entryType=entry_pb2.ROWDATA, storeValue=b"x"), "10021a0178"),
        (entry_pb2.Column(index=3, isNull=False, value="v", mysqlType="int"), "0803300042017652 03696e74"),
        (entry_pb2.RowChange(tableId=1, eventType=entry_pb2.DELETE, isDdl=False), "0801 1003 5000"),
        (packet_pb2.Packet(type=packet_pb2.Packet.GET, body=b"b"), "1806 2a0162"),
        (packet_pb2.Messages(batch_id=-1), "08ffffffffffffffffff01"),
        (packet_pb2.Sub(destination="d", client_id="1", filter="f"), "0a0164 120131 3a0166"),
        (packet_pb2.Get(timeout=0, unit=2), "2000 2802"),
    ],
)
def test_fields_have_the_numbers_and_presence_of_canal(message: Message, wire: str) -> None:
    assert message.SerializeToString() == bytes.fromhex(wire)


@pytest.mark.parametrize(("numbers", "canals"), [(EntryType, entry_pb2.EntryType), (EventType, entry_pb2.EventType)])
def test_what_is_written_without_protobuf_has_canals_numbers(numbers: type[IntEnum], canals: EnumTypeWrapper) -> None:
    assert {0, *numbers} == set(canals.values())
    assert all(canals.Value(number.name) == number for number in numbers)
