"""One run: the script on one source, and what the streams that were read of it differ in."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.compat.comparing import Difference, by_topic, compare
from tests.compat.differences import ALLOWED, DEFAULT, STRICT, Allowed
from tests.compat.script import Topic, is_ddl, script, statements
from tests.compat.streams import SCHEMA, Reading, reading
from tests.servers import Server

GTID_ON = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")


class Source(NamedTuple):
    """A source, and how it is read."""

    server: str
    gtid: bool = False

    def __str__(self) -> str:
        return f"{self.server} by GTID" if self.gtid else self.server


SOURCES = (
    Source("mariadb1011"),  # not by GTID: Canal 1.1.7 fails at its first GTID event
    *(Source(server, gtid) for server in ("mysql57", "mysql80", "mysql97") for gtid in (False, True)),
)


class Result(NamedTuple):
    """What a run has found."""

    source: Source
    version: str
    compared: Counter[str]
    """Entries of Canal for each topic, empty transactions apart."""
    explained: dict[str, list[tuple[Allowed, Difference]]]
    """By mode."""
    unexplained: dict[str, list[Difference]]
    missing: dict[str, list[Allowed]]
    """Differences that are listed and did not occur."""


def perform(source: Source, *, short: bool = False) -> Result:
    """Run the script on a server of its own."""
    topics = script(source.server, gtid=source.gtid, short=short)
    options = GTID_ON if source.gtid and source.server in ("mysql57", "mysql80") else ()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(source.server, options))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-compat-")))
        found = stack.enter_context(reading(server, folder, gtid=source.gtid))
        _write(server, found, topics)
        ((version,),) = server.query("SELECT VERSION()")
        canal, *ours = (list(stream.entries) for stream in found.streams)
    names = {topic.name for topic in topics}
    compared = Counter(side.topic for side in by_topic(canal) if side.topic in names)
    result = Result(source, version, compared, {}, {}, {})
    for mode, entries in zip((DEFAULT, STRICT), ours, strict=True):
        allowed = [it for it in ALLOWED if it.applies(str(source), mode)]
        result.explained[mode] = []
        result.unexplained[mode] = []
        for difference in compare(canal, entries):
            rule = next((it for it in allowed if it.explains(difference)), None)
            if rule is None:
                result.unexplained[mode].append(difference)
            else:
                result.explained[mode].append((rule, difference))
        seen = {rule for rule, _ in result.explained[mode]}
        result.missing[mode] = [it for it in allowed if it.certain and it not in seen and it.is_about(names)]
    return result


def _write(server: Server, found: Reading, topics: list[Topic]) -> None:
    """Write the topics.

    What was written before a DDL has been read when the DDL is made, for Canal reads columns by today's names.
    """
    with server.connect(database=SCHEMA) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for topic in topics:
            found.mark(topic.name)
            unread = False
            for statement in statements(topic, server.name, SCHEMA):
                if is_ddl(statement) and unread:
                    found.mark(topic.name)
                cursor.execute(statement)
                unread = not is_ddl(statement)
        found.mark("end")


def problems(result: Result) -> Iterator[str]:
    """What is wrong, a line each."""
    for mode in (DEFAULT, STRICT):
        for it in result.unexplained[mode]:
            values = f"{it.canal!r:.200} and not {it.sluice!r:.200}"
            yield f"{result.source}, {mode}: {it.topic}, {it.field} of {it.context}: {values} at {it.place}"
        for rule in result.missing[mode]:
            yield f"{result.source}, {mode}: listed, but did not occur: {rule}"
