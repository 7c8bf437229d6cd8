"""Sets of GTIDs: MySQL's (runs of numbers per UUID and tag) and MariaDB's (the last number per domain and server)."""

import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Self
from uuid import UUID

from .errors import BadPositionError, DecodeError
from .gtid_text import mariadb_text, mysql_text

MysqlSource = tuple[bytes, str]
"""What numbers MySQL transactions: the 16 bytes of a UUID and a tag ('' for none; tags exist since MySQL 8.3)."""

MariadbSource = tuple[int, int]
"""What numbers MariaDB transactions: domain and server id."""

_LAST = (1 << 63) - 2  # the greatest transaction number that MySQL gives
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_RUN = re.compile(r"([0-9]{1,40})(?:\s*-\s*([0-9]{1,40}))?")  # with zeros before it; int() takes no text of any length
_MARIADB = re.compile(r"([0-9]{1,40})-([0-9]{1,40})-([0-9]{1,40})")
_MARIADB_RUN = re.compile(r"([0-9]{1,10}-[0-9]{1,10})-([0-9]{1,19})-([0-9]{1,19})")
_ANY: MysqlSource = (bytes(16), "")
_COUNT = struct.Struct("<Q")
_BOUNDS = struct.Struct("<QQ")
_TAGGED = 1  # the format byte


class _Reader:
    """Takes bytes, one part after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        if len(self._data) - self._at < size:
            raise DecodeError("a GTID set that is cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        return int.from_bytes(self.take(8), "little")


class MysqlGtidSet:
    """Transactions of MySQL by number: for each source its runs, disjoint, ascending and as long as can be."""

    __slots__ = ("_runs",)
    __hash__ = None  # type: ignore[assignment]  # it can change

    def __init__(self, runs: Mapping[MysqlSource, Iterable[tuple[int, int]]] = MappingProxyType({})) -> None:
        self._runs = {source: list(pairs) for source, pairs in runs.items()}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``uuid:1-5:7:tag:1-3,uuid:9`` as the server does: any case, blanks, a tag valid until the next one.

        Raises `BadPositionError` for what MySQL refuses as malformed.
        """
        result = cls()
        for part in text.split(","):
            if not part.strip():
                continue
            uuid, *items = (item.strip() for item in part.split(":"))
            try:
                sid = UUID(uuid).bytes
            except ValueError:
                raise BadPositionError(f"not a GTID set: {uuid[:80]!r} is not a UUID") from None
            tag = ""
            for item in items:
                if match := _RUN.fullmatch(item):
                    first = int(match[1])
                    last = int(match[2] or first)
                    if not (1 <= first <= _LAST and last <= _LAST):
                        raise BadPositionError(f"not a GTID set: {item[:80]!r} is out of range")
                    if first <= last:
                        result.add((sid, tag), first, last)
                elif _TAG.fullmatch(item.lower()):
                    tag = item.lower()
                else:
                    raise BadPositionError(f"not a GTID set: {item[:80]!r} is neither a run of numbers nor a tag")
        return result

    def encode(self) -> bytes:
        """Binary form for COM_BINLOG_DUMP_GTID: tagged when a tag occurs.

        All integers are little-endian, ``after`` is the number after the run's last (seen in PREVIOUS_GTIDS events)::

            untagged: sources(8) { uuid(16) runs(8) { first(8) after(8) } }
            tagged:   1(1) sources(6) 1(1) { uuid(16) length*2(1) tag runs(8) { first(8) after(8) } }     MySQL 8.3+
        """
        tagged = any(tag for _, tag in self._runs)
        count = len(self._runs)
        parts = [_COUNT.pack(_TAGGED << 56 | count << 8 | _TAGGED if tagged else count)]
        for (sid, tag), runs in sorted(self._runs.items()):
            parts.append(sid)
            if tagged:
                parts += [bytes([len(tag) << 1]), tag.encode("ascii")]
            parts.append(_COUNT.pack(len(runs)))
            parts += [_BOUNDS.pack(first, last + 1) for first, last in runs]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` writes, the body of a PREVIOUS_GTIDS event. Raises DecodeError."""
        result, reader = cls(), _Reader(data)
        count = reader.number()
        tagged = count >> 56 == _TAGGED
        for _ in range(count >> 8 & 0xFFFF_FFFF_FFFF if tagged else count):
            sid = reader.take(16)
            tag = reader.take(reader.take(1)[0] >> 1).decode("ascii", "replace") if tagged else ""
            if tag and not _TAG.fullmatch(tag):
                raise DecodeError(f"a GTID set with the tag {tag[:80]!r}")
            for _ in range(reader.number()):
                first, after = reader.number(), reader.number()
                try:
                    result.add((sid, tag), first, after - 1)
                except BadPositionError as error:
                    raise DecodeError(str(error)) from None
        return result

    def add(self, source: MysqlSource, first: int, last: int | None = None) -> None:
        """Add the run of numbers from ``first`` to ``last``, both inclusive; only ``first`` without a ``last``."""
        last = first if last is None else last
        if not 1 <= first <= last <= _LAST:
            raise BadPositionError(f"not a run of GTIDs: {first}-{last}")
        runs = self._runs.setdefault(source, [])
        if not runs or first > runs[-1][1] + 1:
            runs.append((first, last))
            return
        low = bisect_left(runs, first - 1, key=lambda run: run[1])  # the first run that touches the new one, ...
        high = low
        while high < len(runs) and runs[high][0] <= last + 1:  # ... and the one after the last that does
            first = min(first, runs[high][0])
            last = max(last, runs[high][1])
            high += 1
        runs[low:high] = [(first, last)]

    def __contains__(self, gtid: tuple[MysqlSource, int]) -> bool:
        source, number = gtid
        return any(first <= number <= last for first, last in self.runs(source))

    def contains(self, other: "MysqlGtidSet") -> bool:
        """Whether every transaction of the other set is in this one."""
        return not other.subtract(self)

    def subtract(self, other: "MysqlGtidSet") -> Self:
        """Return the transactions of this set that are not in the other."""
        result = type(self)()
        for source, first, last in self:
            start = first
            for hole_first, hole_last in other.runs(source):
                if hole_last < start:
                    continue
                if hole_first > last:
                    break
                if start < hole_first:
                    result.add(source, start, hole_first - 1)
                start = hole_last + 1
            if start <= last:
                result.add(source, start, last)
        return result

    def copy(self) -> Self:
        """Return a copy."""
        return type(self)(self._runs)

    def runs(self, source: MysqlSource) -> Sequence[tuple[int, int]]:
        """Return first and last number of each run of the source, ascending."""
        return self._runs.get(source, ())

    def __iter__(self) -> Iterator[tuple[MysqlSource, int, int]]:
        """Source, first and last number of each run, in the order of the text."""
        for source in sorted(self._runs):
            for first, last in self._runs[source]:
                yield source, first, last

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, MysqlGtidSet) else NotImplemented

    def __str__(self) -> str:
        """As MySQL prints it, but without the line break after a comma."""
        return mysql_text(self._runs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"


class MariadbGtidSet:
    """The last transaction of each domain and server of MariaDB, and which server was last in its domain."""

    __slots__ = ("_domains",)
    __hash__ = None  # type: ignore[assignment]  # it can change

    def __init__(self, domains: Mapping[int, Mapping[int, int]] = MappingProxyType({})) -> None:
        # domain -> server id -> number; the newest server of a domain is the last
        self._domains = {domain: dict(servers) for domain, servers in domains.items()}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``domain-server-number[,…]``: gtid_binlog_pos, gtid_binlog_state or gtid_slave_pos.

        Where a domain occurs more than once, its last GTID is its newest, as MariaDB prints it. Raises
        `BadPositionError` for malformed text.
        """
        result = cls()
        for part in text.split(","):
            item = part.strip()
            if not item:
                continue
            match = _MARIADB.fullmatch(item)
            if match is None:
                raise BadPositionError(f"not a MariaDB GTID (domain-server-number): {item[:80]!r}")
            domain, server, number = map(int, match.groups())
            if domain >> 32 or server >> 32 or number >> 64:
                raise BadPositionError(f"a number of the MariaDB GTID is out of range: {item[:80]!r}")
            result.add((domain, server), number)
        return result

    def add(self, source: MariadbSource, first: int, last: int | None = None) -> None:
        """Record that ``source`` has written up to ``last`` (``first`` without a last), as the newest of its domain.

        A number that goes back replaces the greater one: without gtid_strict_mode a source may count like that.
        """
        domain, server = source
        servers = self._domains.setdefault(domain, {})
        servers.pop(server, None)
        servers[server] = first if last is None else last

    def __contains__(self, gtid: tuple[MariadbSource, int]) -> bool:
        (domain, server), number = gtid
        return number <= self._domains.get(domain, {}).get(server, -1)

    def contains(self, other: "MariadbGtidSet") -> bool:
        """Whether every source of the other set is at least as far in this one."""
        return all((source, number) in self for source, number in other)

    def copy(self) -> Self:
        """Return a copy."""
        return type(self)(self._domains)

    def connect_state(self) -> str:
        """Return the newest GTID of each domain, the form that @slave_connect_state takes and gtid_binlog_pos has."""
        newest = {source[0]: (source, number) for source, number in self}
        return mariadb_text(newest.values())

    def __iter__(self) -> Iterator[tuple[MariadbSource, int]]:
        """Source and last number, in the order of the text."""
        for domain in sorted(self._domains):
            for server, number in self._domains[domain].items():
                yield (domain, server), number

    def __bool__(self) -> bool:
        return bool(self._domains)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, MariadbGtidSet) else NotImplemented

    def __str__(self) -> str:
        """All of it, a domain's newest GTID last, as gtid_binlog_state."""
        return mariadb_text(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"


GtidSet = MysqlGtidSet | MariadbGtidSet


def contains(one: GtidSet, other: GtidSet) -> bool:
    """Whether a set has all of another one; of two families none has the other's."""
    return type(one) is type(other) and one.contains(other)  # type: ignore[arg-type]


def missing(wanted: GtidSet, executed: GtidSet) -> "Transactions":
    """Return the transactions of a set that another one of the same family lacks."""
    if isinstance(wanted, MysqlGtidSet) and isinstance(executed, MysqlGtidSet):
        return Transactions.parse(str(wanted.subtract(executed)))
    found = []
    if isinstance(wanted, MariadbGtidSet) and isinstance(executed, MariadbGtidSet):
        known = dict(executed)
        runs = [(source, known.get(source, 0), last) for source, last in wanted]
        found = [f"{domain}-{server}-{done + 1}-{last}" for (domain, server), done, last in runs if done < last]
    return Transactions(found)


def common(one: GtidSet, other: GtidSet) -> GtidSet:
    """Return the transactions of a set that are in another one of the same family, too."""
    if isinstance(one, MysqlGtidSet) and isinstance(other, MysqlGtidSet):
        return one.subtract(one.subtract(other))
    result = MariadbGtidSet()
    if isinstance(one, MariadbGtidSet) and isinstance(other, MariadbGtidSet):
        known = dict(other)
        both = [(source, min(last, known[source])) for source, last in one if source in known]
        # In a domain numbers ascend, whichever server writes: the greatest is the newest.
        is_cut = dict(both) != dict(one)
        for source, last in sorted(both, key=lambda it: it[1]) if is_cut else both:
            result.add(source, last)
    return result


class Transactions:
    """Transactions by runs of their numbers, of either family: what `missing` returns, and what is remembered of it.

    The text of a run is MySQL's own, ``uuid:first-last``, or ``domain-server-first-last`` for MariaDB.
    """

    def __init__(self, runs: Iterable[str] = ()) -> None:
        self._of: dict[str, MysqlGtidSet] = {}
        for run in runs:
            self._add(run)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form. Raises BadPositionError."""
        return cls(it for it in text.split(",") if it)

    def _add(self, run: str) -> None:
        """Add a run. MariaDB's are kept as a set of MySQL's whose source is its domain and server."""
        match = _MARIADB_RUN.fullmatch(run)
        if match is None:
            mine = self._of.setdefault("", MysqlGtidSet())
            for source, first, last in MysqlGtidSet.parse(run):
                mine.add(source, first, last)
            return
        self._of.setdefault(match[1], MysqlGtidSet()).add(_ANY, int(match[2]), int(match[3]))

    def without(self, other: "Transactions") -> "Transactions":
        """Return those that are not in another one."""
        result = Transactions()
        theirs = other._of  # noqa: SLF001  of its own class
        result._of = {key: it.subtract(theirs.get(key, MysqlGtidSet())) for key, it in self._of.items()}
        return result

    def with_(self, other: "Transactions") -> "Transactions":
        """Return those of both."""
        return Transactions([*self.runs, *other.runs])

    @property
    def runs(self) -> list[str]:
        """The texts of the runs."""
        return [
            f"{key}-{first}-{last}" if key else mysql_text({source: [(first, last)]})
            for key, it in sorted(self._of.items())
            for source, first, last in it
        ]

    def __len__(self) -> int:
        return sum(last - first + 1 for it in self._of.values() for _, first, last in it)

    def __str__(self) -> str:
        return ",".join(self.runs)


def gtid_text(source: MysqlSource | MariadbSource, number: int) -> str:
    """Return a single GTID as its server prints it."""
    one, other = source
    if isinstance(one, bytes):
        return mysql_text({(one, str(other)): [(number, number)]})
    return mariadb_text([((one, int(other)), number)])


def parse_gtids(text: str) -> GtidSet:
    """Read a GTID set of either family."""
    return MysqlGtidSet.parse(text) if ":" in text else MariadbGtidSet.parse(text)
