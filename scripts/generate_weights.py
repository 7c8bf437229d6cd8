"""Write the weights of characters in collations: ``python -m scripts.generate_weights``.

They come from WEIGHT_STRING of a MySQL server, which is fetched. ``utf8mb4_general_ci`` and ``utf8mb4_0900_ai_ci`` have
not changed since they exist: to run it again gives the same file. `sluice.instance.conditions.collation` says
what is in it, and computes what is not.
"""

import lzma
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

from tests.servers import Server

FILE = Path(__file__).parents[1] / "instance" / "conditions" / "weights.xz"
AT_ONCE = 4000
UNIFIED = {
    *range(0x4E00, 0x9FD6),
    *range(0xFA27, 0xFA2A),
    *map(ord, "\ufa0e\ufa0f\ufa11\ufa13\ufa14\ufa1f\ufa21\ufa23\ufa24"),
}
EXTENDED = ((0x3400, 0x4DB6), (0x20000, 0x2A6D7), (0x2A700, 0x2B735), (0x2B740, 0x2B81E), (0x2B820, 0x2CEA2))
HANGUL = range(0xAC00, 0xD7A4)
TANGUT = range(0x17000, 0x18B00)


def main() -> None:
    """Ask a server, and write the file."""
    with Server("mysql97") as server:
        connection = pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password)
        general = dict(weights(connection, "utf8mb4_general_ci"))
        uca = dict(weights(connection, "utf8mb4_0900_ai_ci"))
        connection.close()
    data = b"".join(struct.pack("<H", (general.get(point, (point,))[0] - point) & 0xFFFF) for point in range(0x10000))
    own = {point: it for point, it in sorted(uca.items()) if point not in HANGUL and it != implicit(point)}
    points = list(own)
    gaps = [point - before - 1 for before, point in zip([-1, *points], points, strict=False)]
    data += struct.pack(f"<I{len(gaps)}I", len(gaps), *gaps)
    data += bytes(map(len, own.values()))
    data += b"".join(struct.pack(f"<{len(it)}H", *it) for it in own.values())
    FILE.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def weights(connection: Any, collation: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Ask for the weights of all characters."""
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    with connection.cursor() as cursor:
        for i in range(0, len(points), AT_ONCE):
            rows = ",".join(f"ROW({point},0x{chr(point).encode().hex()})" for point in points[i : i + AT_ONCE])
            text = f"CONVERT(text USING utf8mb4) COLLATE {collation}"
            cursor.execute(f"SELECT point, WEIGHT_STRING({text}) FROM (VALUES {rows}) AS points (point, text)")
            for point, found in cursor.fetchall():
                yield point, struct.unpack(f">{len(found) // 2}H", found)


def implicit(point: int) -> tuple[int, int]:
    """Return the weights of a character that has none of its own."""
    if point in TANGUT:
        return 0xFB00, point - 0x17000 | 0x8000
    base = 0xFBC0
    if point in UNIFIED:
        base = 0xFB40
    elif any(first <= point < end for first, end in EXTENDED):
        base = 0xFB80
    return base + (point >> 15), point & 0x7FFF | 0x8000


if __name__ == "__main__":
    main()
