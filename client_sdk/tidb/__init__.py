"""The reader of TiDB's secondary binlog: `TiDBReader`, with asyncio `AsyncTiDBReader`. Needs ``sluice-cdc[tidb]``."""

try:
    from .aio import AsyncTiDBReader
    from .message import Message
    from .reader import NEWEST, OLDEST, TiDBReader
except ModuleNotFoundError as error:
    if error.name != "confluent_kafka":
        raise
    raise ImportError("the reader of TiDB's binlog needs confluent-kafka: pip install 'sluice-cdc[tidb]'") from error

__all__ = ["NEWEST", "OLDEST", "AsyncTiDBReader", "Message", "TiDBReader"]
