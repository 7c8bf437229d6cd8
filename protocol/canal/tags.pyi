from enum import IntEnum
from typing import Final

PACKET_TYPE: Final[int]
PACKET_BODY: Final[int]
BATCH_ID: Final[int]
MESSAGES: Final[int]
FROM_POSITION: Final[int]
TO_POSITION: Final[int]
POSITIONS: Final[int]
MEMBERS: Final[int]

class EntryType(IntEnum):
    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    HEARTBEAT = 4
    GTIDLOG = 5

class EventType(IntEnum):
    INSERT = 1
    UPDATE = 2
    DELETE = 3
    CREATE = 4
    ALTER = 5
    ERASE = 6
    QUERY = 7
    TRUNCATE = 8
    RENAME = 9
    CINDEX = 10
    DINDEX = 11
    GTID = 12
    XACOMMIT = 13
    XAROLLBACK = 14
    MHEARTBEAT = 15

class ValueKind(IntEnum):
    TEXT = 0
    INTEGER = 1
    DECIMAL = 2
    FLOAT = 3
    DATE = 4
    DATETIME = 5
    TIME = 6
    BYTES = 7
    JSON = 8
    ENUM = 9
    SET = 10
