"""Starts many destinations at once in one process: ``python -m tests.racing [--sanitized FOLDER]``.

All of them then ask for what is made once per process (tables of character sets, time zones) before it is made.
Each destination has a thread, as in a server: it plans its table, waits until all have, and decodes rows with the plan
that it made. Texts that are not what was written, and a crash, fail.

`make fuzz` runs it compiled with AddressSanitizer, which sees that a table was freed too early, whatever is there.
"""

import argparse
import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.decoder import Decoder
from sluice.instance.sources.mysql.decode.events import BinlogEvent
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.store.ring import Ring
from tests.binlog import Log
from tests.decoding import SOURCE, Decoded, Options, drive
from tests.fuzzing import sanitizing
from tests.unit.plans import packed, table_map

ROOT = Path(__file__).parents[1]
DESTINATIONS = 24
ROWS = 50
"""That a destination decodes when all have planned their tables."""
CHARSETS = {  # MySQL's name -> Python's codec, and a text that is not ASCII
    "big5": ("big5", "繁體"),
    "cp1250": ("cp1250", "žluť"),
    "cp1251": ("cp1251", "щука"),
    "cp932": ("cp932", "日本"),
    "eucjpms": ("euc_jp", "語学"),
    "euckr": ("cp949", "한국"),
    "gb18030": ("gb18030", "简体"),
    "gb2312": ("gb2312", "文字"),
    "gbk": ("gbk", "中国"),
    "koi8r": ("koi8_r", "мир"),
    "latin1": ("cp1252", "élan"),
    "latin2": ("iso8859_2", "łódź"),
    "latin5": ("iso8859_9", "çok"),
    "sjis": ("shift_jis", "東京"),
    "tis620": ("tis_620", "ไทย"),
    "ujis": ("euc_jp", "京都"),
}
ZONES = {"Asia/Shanghai": "2023-11-15 06:13:20", "Europe/Paris": "2023-11-14 23:13:20"}
"""What the second 1,700,000,000 is called there."""
SECOND = (1_700_000_000).to_bytes(4, "big")


class Destination:
    """A ring and a decoder, with a table that has a column of each character set, and times."""

    def __init__(self, number: int) -> None:
        rng = random.Random(number)
        self._zone = rng.choice(list(ZONES))
        self._charsets = rng.sample(list(CHARSETS), len(CHARSETS))
        ring = Ring()
        decoder = Decoder(ring, Options())
        decoder.begin(source=SOURCE)
        self._drive = decoder, ring
        self._result = Decoded()
        self._log = Log()

    def decode(self, rows: int) -> None:
        """Decode that many transactions of one row."""
        columns = [(17, b"\0"), *((15, b"\x28\0") for _ in self._charsets), (17, b"\0")]
        texts = (CHARSETS[name][1].encode(CHARSETS[name][0]) for name in self._charsets)
        row = bytes((len(columns) + 7) // 8) + SECOND + b"".join(map(packed, texts)) + SECOND
        present = b"\xff" * ((len(columns) + 7) // 8)
        insert = (7).to_bytes(6, "little") + b"\1\0\2\0" + bytes([len(columns)]) + present + row
        for _ in range(rows):
            self._log.query("BEGIN").add(BinlogEvent.TABLE_MAP_EVENT, table_map(*columns))
            self._log.add(BinlogEvent.WRITE_ROWS_EVENT, insert).xid()
        packets, self._log.packets = self._log.packets, []
        drive(*self._drive, packets, make_plan=self._plan, result=self._result)

    def _plan(self, described: TableMap, number: int) -> TablePlan:
        texts = (SourceColumn(name, "varchar(40)", name) for name in self._charsets)
        columns = [SourceColumn("first", "timestamp"), *texts, SourceColumn("last", "timestamp")]
        return TablePlan(described, columns, number, PlanOptions(time_zone=self._zone))

    def wrong(self) -> list[str]:
        """Return the values that are not what was written."""
        expected = [ZONES[self._zone], *(CHARSETS[name][1] for name in self._charsets), ZONES[self._zone]]
        found = [
            [column.value for column in row.afterColumns] for change in self._result.changes for row in change.rowDatas
        ]
        assert len(found) == 1 + ROWS
        return [
            f"{got!r} for {want!r}" for row in found for got, want in zip(row, expected, strict=True) if got != want
        ]


def start_together(count: int) -> list[str]:
    """Start `count` destinations at once; return the values that are not what was written."""
    sys.setswitchinterval(1e-6)
    together = threading.Barrier(count)

    def run(number: int) -> list[str]:
        destination = Destination(number)
        together.wait()
        destination.decode(1)
        together.wait()
        destination.decode(ROWS)
        return destination.wrong()

    with ThreadPoolExecutor(count) as threads:
        return [text for texts in threads.map(run, range(count)) for text in texts]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.racing", description=__doc__)
    parser.add_argument("--destinations", type=int, default=DESTINATIONS, help="%(default)s")
    parser.add_argument("--sanitized", type=Path, help="folder of the package compiled with sanitizers")
    options = parser.parse_args(arguments)
    if options.sanitized:
        command = [sys.executable, "-m", "tests.racing", "--destinations", str(options.destinations)]
        raise SystemExit(subprocess.run(command, env=sanitizing(options.sanitized), cwd=ROOT, check=False).returncode)
    if wrong := start_together(options.destinations):
        raise SystemExit(f"{len(wrong)} values are wrong: {', '.join(wrong[:5])}")
    sys.stdout.write(f"{options.destinations} destinations started at once\n")


if __name__ == "__main__":
    main()
