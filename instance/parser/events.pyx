"""The events of a binlog: their types, their common header, and how one is handed to Python."""


cdef class Event:
    """An event (or packet) that the compiled loop hands to Python: a control event.

    Attributes:
        type: its `EventType`; a MariaDB QUERY_COMPRESSED event comes inflated, as QUERY_EVENT.
        timestamp: seconds since 1970 in the event header.
        server_id: the server that first logged it.
        log_pos: where it ends in its file by its header, modulo 2**32; 0 where the server does not say.
        flags: of the event header.
        offset: where it starts in its file (of an inner event of a compressed transaction: where the outer one does).
        length: of the whole event in bytes, header and checksum included (of an inner event: of the outer one).
        body: what follows the header, without the checksum; of an error or EOF packet what follows the first byte.
        position: the place before the event; None before the first FORMAT_DESCRIPTION event.
        error: the `DecodeError` why a rows event could not be decoded; None otherwise.
        plan: the `TablePlan` of that rows event.
        table_map: the body of its TABLE_MAP event without table id and flags.
    """

    def __repr__(self):
        return f"<Event type={self.type} at {self.position} size={self.length}>"
