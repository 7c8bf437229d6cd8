"""The tags of Canal's messages that are read without protobuf's classes: field << 3 | wire type.

The fields are those of entry.proto and packet.proto.
"""

cdef enum:
    BATCH_ID = 1 << 3                              # Messages
    MESSAGES = 2 << 3 | 2
    FROM_POSITION = 101 << 3 | 2
    TO_POSITION = 102 << 3 | 2
    POSITIONS = 103 << 3 | 2
    MEMBERS = 104 << 3 | 2

    HEADER = 1 << 3 | 2                            # Entry
    ENTRY_TYPE = 2 << 3
    STORE_VALUE = 3 << 3 | 2

    LOGFILE_NAME = 2 << 3 | 2                      # Header
    LOGFILE_OFFSET = 3 << 3
    SERVER_ID = 4 << 3
    EXECUTE_TIME = 6 << 3
    SCHEMA_NAME = 8 << 3 | 2
    TABLE_NAME = 9 << 3 | 2
    EVENT_LENGTH = 10 << 3
    EVENT_TYPE = 11 << 3
    HEADER_PROPS = 12 << 3 | 2
    GTID = 13 << 3 | 2

    TRANSACTION_ID = 2 << 3 | 2                    # TransactionBegin, TransactionEnd
    TRANSACTION_PROPS = 3 << 3 | 2
    THREAD_ID = 4 << 3                             # TransactionBegin

    CHANGE_EVENT_TYPE = 2 << 3                     # RowChange
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
