"""How far an output has come, as its target keeps it with the changes: what is applied, and by whom.

    sluice_output           job | epoch, place | ddl, ddl_before
    sluice_output_workers   job, worker | epoch, number       the sessions that apply
    sluice_output_applied   job, number | server, names       transactions after the place that are applied already
    sluice_output_tables    job, source_schema, source_table  that a snapshot has begun to fill

``job`` is destination/output, ``place`` what `Kept` writes, ``names`` those of `Transactions`. A transaction on the
target notes what it has applied, and changes the row of its session as of its epoch. A process that opens the output
raises the epoch in all rows first; an earlier one finds its own no more, and cannot commit.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pymysql
from pymysql.constants import ER

from ....protocol.cut import parse_place
from ....protocol.identifiers import quote_table
from ....protocol.member import NAME
from ....sql.database import Database
from ....sql.progress import create_tables
from ....store.cursor import SKIP
from ..kept import Kept, read_memory, resume, seek_advice
from ..settings import Output
from ..target import DeliveryError, Place, RejectedError
from .settings import MysqlSettings

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

TABLE: Final = "sluice_output"
ENDING: Final = 10
"""Seconds that an earlier session may take to end after it was killed."""
MAIN: Final = 0
"""The number of the session that moves the place; those of the workers follow."""


class Progress:
    """The progress of an output. Only `note` may be called by several threads."""

    def __init__(self, output: Output, database: Database) -> None:
        """Nothing is asked yet."""
        settings = output.settings
        assert isinstance(settings, MysqlSettings)
        self.job = f"{output.destination}/{output.name}"
        self.moved = ""
        """How the cursor was moved by hand last."""
        self.begun = ("", "")
        """The DDL that was noted and not finished, and the digest before it."""
        self._output = output
        self._database = database
        self._schema = settings.progress
        self._workers = settings.workers
        self._epoch = 0
        self._next = self._first = 0
        self._applied: dict[str, int] = {}
        self._names: dict[str, str] = {}  # of those, by each part
        self._left: dict[int, int] = {}
        self._servers: set[str] = set()
        self._passes_open = False

    def table(self, part: str = "") -> str:
        """Return one of the tables, as SQL writes it."""
        return quote_table(self._schema, TABLE + part)

    # --- the owner

    def open(self, cursor: "Cursor", memory: str, moved: str, epoch: int) -> Place | None:
        """Become the owner, and return the place that the target keeps. Raises DeliveryError, RejectedError.

        The session has autocommit off; see `Target.open` for the rest.
        """
        create_tables(cursor, self._database, self._schema, TABLES)
        self._epoch = epoch
        cursor.execute(f"INSERT IGNORE INTO {self.table()} (job) VALUES (%s)", (self.job,))  # noqa: S608
        cursor.connection.commit()
        self._read(cursor, memory, moved)  # a former owner ends nobody's sessions
        cursor.connection.commit()
        self._end_earlier(cursor)
        place = self._take_over(cursor, memory, moved)
        cursor.connection.commit()
        return place

    def _read(self, cursor: "Cursor", memory: str, moved: str, *, lock: str = "") -> tuple[Place | None, bool]:
        """Return the place, and whether the cursor was not moved by hand since."""
        cursor.execute(
            f"SELECT place, ddl, ddl_before FROM {self.table()} WHERE job = %s {lock}",  # noqa: S608
            (self.job,),
        )
        ((text, *begun),) = cursor.fetchall()
        advice = partial(seek_advice, self._output.destination, self._output.client_id)
        try:
            found = Kept.parse(text) if text else None
        except ValueError as error:
            raise RejectedError(f"its place in {self.table()} on the target is {error}; {advice()}") from None
        place, self.moved = resume(
            found, read_memory(memory, moved), self._epoch, where=str(self._database), advice=advice
        )
        is_same = found is not None and found.moved == self.moved
        self.begun = (str(begun[0]), str(begun[1])) if is_same else ("", "")
        return place, is_same

    def _take_over(self, cursor: "Cursor", memory: str, moved: str) -> Place | None:
        place, is_same = self._read(cursor, memory, moved, lock="FOR UPDATE")
        cursor.execute(
            f"UPDATE {self.table()} SET epoch = %s, place = %s, ddl = %s, ddl_before = %s WHERE job = %s",  # noqa: S608
            (self._epoch, str(Kept(place, self._epoch, self.moved)), *self.begun, self.job),
        )
        cursor.executemany(
            f"INSERT IGNORE INTO {self.table('_workers')} (job, worker) VALUES (%s, %s)",  # noqa: S608
            [(self.job, number) for number in range(1, self._workers + 1)],
        )
        cursor.execute(
            f"UPDATE {self.table('_workers')} SET epoch = %s WHERE job = %s",  # noqa: S608
            (self._epoch, self.job),
        )
        if not is_same and not self.moved.endswith(SKIP):  # after a skip no transaction comes again
            cursor.execute(f"DELETE FROM {self.table('_applied')} WHERE job = %s", (self.job,))  # noqa: S608
        cursor.execute(
            f"SELECT number, server, names FROM {self.table('_applied')} WHERE job = %s",  # noqa: S608
            (self.job,),
        )
        self._applied, self._names, self._left, self._servers, self._passes_open = {}, {}, {}, set(), False
        for number, server, names in cursor.fetchall():
            found = names.splitlines()
            self._applied |= dict.fromkeys(found, number)
            self._names |= {part: name for name in found for part in _parts(name) if part}
            self._left[number] = len(found)
            self._servers.add(server)
        self._next = self._first = max(self._left, default=-1) + 1
        return place

    def lock(self, cursor: "Cursor", worker: int, seconds: int = ENDING) -> bool:
        """Take the name of a worker for this session; whether it could be had."""
        cursor.execute("SELECT GET_LOCK(%s, %s)", (self._lock_of(worker), seconds))
        return cursor.fetchall() == ((1,),)

    def _lock_of(self, worker: int) -> str:
        # A lock is of the whole server, and another schema may have a job of this name, of another installation.
        name = "sluice " + hashlib.sha256(f"{self.table()} {self.job}".encode()).hexdigest()[:40]
        return f"{name} {worker}" if worker else name

    def _end_earlier(self, cursor: "Cursor") -> None:
        """End the sessions of an earlier process, whose open transactions may hold rows. Raises DeliveryError."""
        cursor.execute(
            f"SELECT worker FROM {self.table('_workers')} WHERE job = %s",  # noqa: S608
            (self.job,),
        )
        for worker in (*(number for (number,) in cursor.fetchall()), MAIN):
            name = self._lock_of(worker)
            cursor.execute("SELECT IS_USED_LOCK(%s)", (name,))
            ((earlier,),) = cursor.fetchall()
            if earlier is not None:
                try:
                    cursor.execute(f"KILL {int(earlier)}")
                except pymysql.MySQLError as error:
                    if error.args[0] != ER.NO_SUCH_THREAD:
                        raise
            elif worker != MAIN:
                continue
            if not self.lock(cursor, worker):
                raise DeliveryError(f"an earlier session of this output, {earlier}, does not end at {self._database}")
            if worker != MAIN:
                cursor.execute("SELECT RELEASE_LOCK(%s)", (name,))

    def check(self, cursor: "Cursor") -> None:
        """Let the transaction of the main session commit only if this process is the owner. Raises DeliveryError."""
        self._update(cursor, "job = job", ())

    def _check(self, count: int) -> None:
        if count != 1:
            raise DeliveryError(
                f"another process has opened this output since, or its row was removed from {self.table()} on the"
                " target"
            )

    # --- what is applied

    @property
    def is_ahead(self) -> bool:
        """Whether transactions after the place are applied that have not passed again."""
        return bool(self._applied)

    def pass_over(self, server: str, names: str) -> Sequence[int] | None:
        """Return which of some transactions are not applied yet, by their places among ``names``; None: all are not.

        Those that are count as passed, once the place moves. Raises RejectedError where it is not known which are: they
        were read from another server.
        """
        if not self._applied:
            return None
        self._check_server(server, names)
        found = [self._find(name) for name in names.splitlines()]
        if not any(found):
            return None
        for name in found:
            if name is not None:
                self._left[self._applied.pop(name)] -= 1
        return [place for place, name in enumerate(found) if name is None]

    def has_open(self, server: str, name: str) -> bool:
        """Whether a transaction is applied already of which a part has come; without a name: the one before goes on.

        Raises RejectedError as `pass_over` does, and DeliveryError as long as its GTID has not come.
        """
        if name:
            line = name.rstrip("\n")
            try:
                self._check_server(server, line)
            except RejectedError:
                if _parts(line)[1] or not all(_parts(it)[1] for it in self._applied):
                    raise
                raise DeliveryError(
                    f"a part of the transaction at {line.strip()} was read: only its GTID says whether it is applied"
                    " already, and that comes with its end"
                ) from None
            self._passes_open = self._find(line) is not None
        return self._passes_open

    def _find(self, name: str) -> str | None:
        """Return the name under which a transaction is applied already; None if it is not."""
        place, gtid = _parts(name)
        found = (gtid and self._names.get(gtid)) or (place and self._names.get(place)) or ""
        if found not in self._applied:
            return None
        other = _parts(found)[1]
        return found if not (gtid and other) or gtid == other else None

    def _check_server(self, server: str, names: str) -> None:
        if self._applied and self._servers != {server} and _may_repeat(self._applied, self._servers, names, server):
            raise RejectedError(
                "the target has transactions after the place of this output that were read from"
                f" {', '.join(sorted(self._servers))}. Without GTIDs they cannot be found in what {server} sends. Let"
                " that source be the present one until they have passed; or compare the tables, and"
                f" {seek_advice(self._output.destination, self._output.client_id)}"
            )

    def numbers(self, count: int) -> int:
        """Return the first of ``count`` numbers for what is applied next."""
        self._next += count
        return self._next - count

    def note(self, cursor: "Cursor", worker: int, number: int, server: str, names: str) -> None:
        """Note in a transaction of a worker which transactions it has applied. Raises DeliveryError."""
        workers = self.table("_workers")
        self._check(
            cursor.execute(
                f"UPDATE {workers} SET number = %s WHERE job = %s AND worker = %s AND epoch = %s",  # noqa: S608
                (number, self.job, worker, self._epoch),
            )
        )
        cursor.execute(
            f"INSERT INTO {self.table('_applied')} VALUES (%s, %s, %s, %s)",  # noqa: S608
            (self.job, number, server, names),
        )

    def move(self, cursor: "Cursor", place: Place | None) -> None:
        """Note that all before a place is done: up to the transaction in which it is. Raises DeliveryError.

        A snapshot may begin at a place that has no name yet: then its rows come again, as they are by then.
        """
        if place is None:
            self.check(cursor)
            return
        at = place._replace(position=str(parse_place(place.position).transaction))
        kept = str(Kept(at, self._epoch, self.moved))
        self._update(cursor, "place = %s, ddl = '', ddl_before = ''", (kept,))
        passed = [number for number, left in self._left.items() if not left]
        if passed or self._next > self._first:
            marks = "".join(", %s" for _ in passed)
            cursor.execute(
                f"DELETE FROM {self.table('_applied')} WHERE job = %s AND (number >= %s OR number IN (-1{marks}))",  # noqa: S608
                (self.job, self._first, *passed),
            )

    def settle(self) -> None:
        """Take over what `move` has written: it is committed."""
        self.begun = ("", "")
        self._left = {number: left for number, left in self._left.items() if left}
        self._first = self._next

    def note_statement(self, cursor: "Cursor", name: str, before: str) -> None:
        """Note a DDL that is about to be done, with the digest before it. Raises DeliveryError."""
        self._update(cursor, "ddl = %s, ddl_before = %s", (name, before))

    def _update(self, cursor: "Cursor", assignments: str, values: Iterable[str]) -> None:
        self._check(
            cursor.execute(
                f"UPDATE {self.table()} SET {assignments} WHERE job = %s AND epoch = %s",  # noqa: S608
                (*values, self.job, self._epoch),
            )
        )


def _may_repeat(applied: Iterable[str], read_from: Iterable[str], names: str, server: str) -> bool:
    """Whether transactions may be among those that are applied under another name.

    The members of a group are compared one by one: another server, or a member that has joined, says nothing of the
    others. A single source that became a group, or the other way round, gives all of its transactions other names.
    """
    before, coming = _by_member(applied), _by_member(names.splitlines())
    if ("" in before) != ("" in coming):
        return True
    return any(
        not (before[member] and coming[member])
        and {found for it in read_from if (found := _server_of(member, it))} != {_server_of(member, server)}
        for member in before.keys() & coming.keys()
    )


def _by_member(names: Iterable[str]) -> dict[str, bool]:
    """Return for each member whether all of its transactions have GTIDs."""
    found: dict[str, bool] = {}
    for it in names:
        member = it.partition(" ")[0]
        found[member] = found.get(member, True) and bool(_parts(it)[1])
    return found


def _parts(name: str) -> tuple[str, str]:
    """Return the name of a transaction, see `Transactions`, without its GTID, and with nothing else; empty: unknown.

    An earlier version wrote one of them.
    """
    before, _, last = name.rpartition(" ")
    if "@" in last:
        return name, ""
    member = before.partition(" ")[0]
    return before if "@" in before else "", f"{member} {last}"


def _server_of(member: str, servers: str) -> str:
    """Return the server of a member in what `server_of` says of a batch; empty if the member was not there."""
    if not member:
        return servers
    return dict(it.split("=", 1) for it in re.split(rf",(?={NAME}=)", servers) if "=" in it).get(member, "")


_JOB: Final = "job VARCHAR(265) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"  # 200, a slash, 64
_NAME: Final = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
TABLES: Final = {
    TABLE: f"{_JOB}, epoch BIGINT NOT NULL DEFAULT 0, place MEDIUMTEXT CHARACTER SET ascii,"
    " ddl VARCHAR(64) CHARACTER SET ascii NOT NULL DEFAULT '',"
    " ddl_before VARCHAR(64) CHARACTER SET ascii NOT NULL DEFAULT '', PRIMARY KEY (job)",
    f"{TABLE}_workers": f"{_JOB}, worker INT NOT NULL, epoch BIGINT NOT NULL DEFAULT 0,"
    " number BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (job, worker)",
    f"{TABLE}_applied": f"{_JOB}, number BIGINT NOT NULL, server TEXT CHARACTER SET utf8mb4 NOT NULL,"
    " names MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL, PRIMARY KEY (job, number)",
    f"{TABLE}_tables": f"{_JOB}, source_schema {_NAME}, source_table {_NAME},"
    " PRIMARY KEY (job, source_schema, source_table)",
}
