"""Canal's numbers: the tags of its messages' fields, its enums, and the kinds of values.

A tag is field << 3 | wire type. Fields and enums are those of entry.proto and packet.proto, as far as they are read or
written without protobuf's classes.
"""

cpdef enum:                                        # Python, too, writes what is around a batch
    PACKET_TYPE = 3 << 3                           # Packet
    PACKET_BODY = 5 << 3 | 2

    BATCH_ID = 1 << 3                              # Messages
    MESSAGES = 2 << 3 | 2
    FROM_POSITION = 101 << 3 | 2
    TO_POSITION = 102 << 3 | 2
    POSITIONS = 103 << 3 | 2


cdef enum:
    HEADER = 1 << 3 | 2                            # Entry
    ENTRY_TYPE = 2 << 3
    STORE_VALUE = 3 << 3 | 2

    VERSION = 1 << 3                               # Header
    LOGFILE_NAME = 2 << 3 | 2
    LOGFILE_OFFSET = 3 << 3
    SERVER_ID = 4 << 3
    SERVEREN_CODE = 5 << 3 | 2
    EXECUTE_TIME = 6 << 3
    SOURCE_TYPE = 7 << 3
    SCHEMA_NAME = 8 << 3 | 2
    TABLE_NAME = 9 << 3 | 2
    EVENT_LENGTH = 10 << 3
    EVENT_TYPE = 11 << 3
    HEADER_PROPS = 12 << 3 | 2
    HEADER_GTID = 13 << 3 | 2

    TRANSACTION_ID = 2 << 3 | 2                    # TransactionBegin, TransactionEnd
    TRANSACTION_PROPS = 3 << 3 | 2
    THREAD_ID = 4 << 3                             # TransactionBegin

    TABLE_ID = 1 << 3                              # RowChange
    CHANGE_EVENT_TYPE = 2 << 3
    IS_DDL = 10 << 3
    SQL = 11 << 3 | 2
    ROW_DATAS = 12 << 3 | 2
    ROW_CHANGE_PROPS = 13 << 3 | 2
    DDL_SCHEMA_NAME = 14 << 3 | 2

    BEFORE_COLUMNS = 1 << 3 | 2                    # RowData
    AFTER_COLUMNS = 2 << 3 | 2

    INDEX = 1 << 3                                 # Column
    SQL_TYPE = 2 << 3
    NAME = 3 << 3 | 2
    IS_KEY = 4 << 3
    UPDATED = 5 << 3
    IS_NULL = 6 << 3
    VALUE = 8 << 3 | 2
    MYSQL_TYPE = 10 << 3 | 2

    KEY = 1 << 3 | 2                               # Pair
    PAIR_VALUE = 2 << 3 | 2

    SOURCE_TYPE_MYSQL = 2                          # enum Type


cpdef enum EntryType:
    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    HEARTBEAT = 4
    GTIDLOG = 5


cpdef enum EventType:
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


cpdef enum ValueKind:
    """What a column's text is converted to."""
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
