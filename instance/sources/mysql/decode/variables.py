"""INTVAR, RAND and USER_VAR events: what a statement in a binlog needs besides its text."""

import struct

from .....protocol.errors import DecodeError
from ....values.binary import packed_decimal
from .events import BinlogEvent

_LAST_INSERT_ID = 1  # type of an INTVAR event; the other, 2, is INSERT_ID


def statement_text(event_type: int, body: bytes) -> str:
    """The SET statement that Canal makes of the event. Raises `DecodeError` if its bytes do not fit.

    ``type 1 | number 8`` (INTVAR), ``seed 8 | seed 8`` (RAND), or for USER_VAR::

        length of the name 4 | name | is null 1 | type 1 | collation 4 | length of the value 4 | value | flags 1

    (``libs/mysql/binlog/event/statement_events.h``)
    """
    try:
        if event_type == BinlogEvent.INTVAR_EVENT:
            kind, number = struct.unpack_from("<BQ", body)
            return f"SET {'LAST_INSERT_ID' if kind == _LAST_INSERT_ID else 'INSERT_ID'} = {number}"
        if event_type == BinlogEvent.RAND_EVENT:
            first, second = struct.unpack_from("<QQ", body)
            return f"SET SESSION rand_seed1 = {first} , rand_seed2 = {second}"
        return _user_variable(body)
    except struct.error as error:
        raise DecodeError("an event that is too short for its fields") from error


def _user_variable(body: bytes) -> str:
    (length,) = struct.unpack_from("<I", body)
    name = body[4 : 4 + length].decode("utf-8", "replace")
    (is_null,) = struct.unpack_from("<B", body, 4 + length)
    if is_null:
        return f"SET @{name} := NULL"
    kind, _collation, size = struct.unpack_from("<BII", body, 5 + length)
    value = body[14 + length : 14 + length + size]
    if len(value) != size:
        raise DecodeError("an event that is too short for its fields")
    flags = body[14 + length + size :]
    match kind:
        case 0:  # STRING_RESULT
            return f"SET @{name} := '{value.decode('utf-8', 'replace')}'"
        case 1:  # REAL_RESULT
            return f"SET @{name} := {struct.unpack('<d', value)[0]!r}"
        case 2:  # INT_RESULT; the lowest flag says unsigned
            is_unsigned = bool(flags and flags[0] & 1)
            return f"SET @{name} := {int.from_bytes(value[:8], 'little', signed=not is_unsigned)}"
        case 4:  # DECIMAL_RESULT
            return f"SET @{name} := {_decimal(value)}"
    raise DecodeError(f"a user variable of type {kind}")


def _decimal(value: bytes) -> str:
    """``precision 1 | scale 1 | packed digits``."""
    precision, scale = struct.unpack_from("<BB", value)
    return packed_decimal(value[2:], precision, scale)
