"""Numbers of TiDB's secondary binlog: tags of the fields of secondary.proto, and its enums, as far as they are used.

A tag is field << 3 | wire type.
"""

cpdef enum:
    LOGICAL_BITS = 18                              # of a commit_ts: what is below the ms


cdef enum:
    BINLOG_TYPE = 1 << 3
    COMMIT_TS = 2 << 3
    DML_DATA = 3 << 3 | 2
    DDL_DATA = 4 << 3 | 2
    FIRST = 1 << 3 | 2                             # the first field of most: a table, a name, a column
    SECOND = 2 << 3 | 2
    THIRD = 3 << 3 | 2
    MUTATIONS = 4 << 3 | 2
    UNIQUE_KEYS = 5 << 3 | 2
    IS_PRIMARY_KEY = 3 << 3
    FLEN = 4 << 3
    DECIMALS = 5 << 3
    MUTATION_TYPE = 1 << 3
    CELL_NULL = 1 << 3
    CELL_INT = 2 << 3
    CELL_UINT = 3 << 3
    CELL_DOUBLE = 4 << 3 | 1
    CELL_BYTES = 5 << 3 | 2
    CELL_STRING = 6 << 3 | 2

    DML = 0                                        # the type of a record
    DDL = 1
