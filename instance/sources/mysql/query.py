"""The QUERY events of the binlog: a statement, and the session that it ran in."""

import struct
from dataclasses import dataclass
from typing import Final

_STATUS_SIZES: Final = {0: 4, 3: 4}  # flags, auto_increment


@dataclass(frozen=True, slots=True)
class Status:
    """The session that a statement ran in, as far as the event says. Collations are ids, None if it does not say."""

    sql_mode: int = 0
    client_collation: int | None = None
    connection_collation: int | None = None
    server_collation: int | None = None

    @classmethod
    def parse(cls, status: bytes) -> "Status":
        """Read status variables 1, sql_mode, and 4, the collations of client, connection and server: 2 bytes each."""
        sql_mode = 0
        at = 0
        while at < len(status):
            code = status[at]
            at += 1
            if code == 1:
                sql_mode = int.from_bytes(status[at : at + 8], "little")
                at += 8
            elif code == 4:
                if at + 6 > len(status):
                    break
                return cls(sql_mode, *struct.unpack_from("<3H", status, at))
            elif code in (2, 6):  # the catalog: length 1 byte, text, and with code 2 a zero byte
                if at >= len(status):
                    break
                at += 1 + status[at] + (code == 2)
            elif code == 131 and at < len(status):  # MariaDB's defaults of character sets: number, then 4 bytes each
                at += 1 + 4 * status[at]
            elif code in _STATUS_SIZES:
                at += _STATUS_SIZES[code]
            else:
                break
        return cls(sql_mode)


@dataclass(frozen=True, slots=True)
class Query:
    """The body of a QUERY event.

    Layout (libbinlogevents/include/statement_events.h; integers little-endian)::

        thread id         4 bytes
        execution time    4 bytes, seconds
        schema length     1 byte
        error code        2 bytes
        status length     2 bytes
        status variables  a code of 1 byte each, then a value whose size the code decides
        schema            text, 0x00
        statement         to the end
    """

    schema: str
    sql: bytes
    error: int = 0
    """The error that the statement ended with, after it had changed something; 0 for none."""
    status: Status = Status()

    @classmethod
    def parse(cls, body: bytes) -> "Query | None":
        """Read the body; None when it is cut."""
        if len(body) < 13:
            return None
        schema_at = 13 + int.from_bytes(body[11:13], "little")
        sql_at = schema_at + body[8] + 1
        if sql_at > len(body):
            return None
        return cls(
            schema=body[schema_at : sql_at - 1].decode("utf-8", "replace"),
            sql=body[sql_at:],
            error=int.from_bytes(body[9:11], "little"),
            status=Status.parse(body[13:schema_at]),
        )
