"""TiDB's binlog. Needs ``sluice-cdc[tidb]``.

`TiDBReader`, with asyncio `AsyncTiDBReader`, reads what Drainer writes to Kafka. `PumpClient`, with asyncio
`AsyncPumpClient`, writes to pumps.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    from .aio import AsyncTiDBReader
    from .message import Message
    from .reader import NEWEST, OLDEST, TiDBReader
except ModuleNotFoundError as error:
    if error.name != "confluent_kafka":
        raise
    raise ImportError("the reader of TiDB's binlog needs confluent-kafka: pip install 'sluice-cdc[tidb]'") from error

if TYPE_CHECKING:
    from ...protocol.tidb.binlog_pb2 import Binlog, BinlogType
    from .aio_pump import AsyncPumpClient
    from .pump import PumpClient
    from .pumps import PumpError

__all__ = [
    "NEWEST",
    "OLDEST",
    "AsyncPumpClient",
    "AsyncTiDBReader",
    "Binlog",
    "BinlogType",
    "Message",
    "PumpClient",
    "PumpError",
    "TiDBReader",
]

_LATER = {
    "AsyncPumpClient": ".aio_pump",
    "Binlog": "...protocol.tidb.binlog_pb2",
    "BinlogType": "...protocol.tidb.binlog_pb2",
    "PumpClient": ".pump",
    "PumpError": ".pumps",
}
"""Modules that are imported when they are asked for: a reader needs neither gRPC nor protobuf."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LATER[name], __name__), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("google", "grpc"):
            raise
        raise ImportError(f"{name} needs grpcio and protobuf: pip install 'sluice-cdc[tidb]'") from error
