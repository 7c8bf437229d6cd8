"""Protobuf's variable-length integers, for messages that are put together by hand."""


def varint(number: int) -> bytes:
    """Encode an integer; a negative one as its 64-bit two's complement, in ten bytes."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
