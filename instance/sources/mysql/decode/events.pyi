from enum import IntEnum

from sluice.instance.sources.mysql.decode.plan import TablePlan
from sluice.protocol.errors import DecodeError
from sluice.protocol.position import Position

class EventType(IntEnum):
    START_EVENT_V3 = 1
    QUERY_EVENT = 2
    STOP_EVENT = 3
    ROTATE_EVENT = 4
    INTVAR_EVENT = 5
    LOAD_EVENT = 6
    SLAVE_EVENT = 7
    CREATE_FILE_EVENT = 8
    APPEND_BLOCK_EVENT = 9
    EXEC_LOAD_EVENT = 10
    DELETE_FILE_EVENT = 11
    NEW_LOAD_EVENT = 12
    RAND_EVENT = 13
    USER_VAR_EVENT = 14
    FORMAT_DESCRIPTION_EVENT = 15
    XID_EVENT = 16
    BEGIN_LOAD_QUERY_EVENT = 17
    EXECUTE_LOAD_QUERY_EVENT = 18
    TABLE_MAP_EVENT = 19
    WRITE_ROWS_EVENT_V1 = 23
    UPDATE_ROWS_EVENT_V1 = 24
    DELETE_ROWS_EVENT_V1 = 25
    INCIDENT_EVENT = 26
    HEARTBEAT_EVENT = 27
    IGNORABLE_EVENT = 28
    ROWS_QUERY_EVENT = 29
    WRITE_ROWS_EVENT = 30
    UPDATE_ROWS_EVENT = 31
    DELETE_ROWS_EVENT = 32
    GTID_EVENT = 33
    ANONYMOUS_GTID_EVENT = 34
    PREVIOUS_GTIDS_EVENT = 35
    TRANSACTION_CONTEXT_EVENT = 36
    VIEW_CHANGE_EVENT = 37
    XA_PREPARE_EVENT = 38
    PARTIAL_UPDATE_ROWS_EVENT = 39
    TRANSACTION_PAYLOAD_EVENT = 40
    HEARTBEAT_EVENT_V2 = 41
    GTID_TAGGED_EVENT = 42
    MARIADB_ANNOTATE_ROWS_EVENT = 160
    MARIADB_BINLOG_CHECKPOINT_EVENT = 161
    MARIADB_GTID_EVENT = 162
    MARIADB_GTID_LIST_EVENT = 163
    MARIADB_START_ENCRYPTION_EVENT = 164
    MARIADB_QUERY_COMPRESSED_EVENT = 165
    MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED_EVENT = 169
    MARIADB_UPDATE_ROWS_COMPRESSED_EVENT = 170
    MARIADB_DELETE_ROWS_COMPRESSED_EVENT = 171
    EOF_PACKET = 0x1FE
    ERROR_PACKET = 0x1FF

class Event:
    type: int
    timestamp: int
    server_id: int
    log_pos: int
    flags: int
    offset: int
    length: int
    body: bytes
    position: Position | None
    error: DecodeError | None
    plan: TablePlan | None
    """The plan of that rows event."""
    table_map: bytes | None
    """The body of its TABLE_MAP event, without table id and flags."""
