"""The commands ``sluice tidb …``: TiDB's secondary binlog, read from Kafka, is shown or applied to another server."""

import os
import sys
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ConfigError
from ...protocol.formats import FORMATS
from .common import Line, add_command, add_group, log, out, positive, setting, write_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...client_sdk.tidb import TiDBReader
    from ...client_sdk.tidb.mirror import TiDBMirror

WAIT = 0.25  # seconds after which an interrupt is seen at the latest
PASSWORD = "SLUICE_KAFKA_PASSWORD"  # noqa: S105  the name of the variable


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    tidb = add_group(commands, "tidb", "read TiDB's secondary binlog from Kafka")
    _add_print_command(tidb)
    _add_mysql_command(tidb)


def _add_print_command(tidb: Any) -> None:
    printing = add_command(
        tidb,
        "print",
        print_command,
        "show the changes of a TiDB cluster",
        "Show the records that TiDB's Drainer writes to Kafka, as they arrive. No position is stored between runs.",
        "sluice tidb print 127.0.0.1:9092 --cluster-id 7561",
        "sluice tidb print 127.0.0.1:9092 --topic 7561_obinlog --offset oldest --once",
        "sluice tidb print kafka1:9092,kafka2:9092 --cluster-id 7561 --commit-ts 470608642013134850 --rows | jq .after",
    )
    _add_topic(printing, "newest")
    printing.add_argument("--limit", type=positive, metavar="N", help="stop after N transactions and DDL statements")
    printing.add_argument(
        "--full", action="store_true", help="do not shorten long values, which happens only on a terminal"
    )
    form = printing.add_mutually_exclusive_group()
    form.add_argument("--transactions", action="store_true", help="also show the begin and end of transactions")
    for it in (it.lines for it in FORMATS if it.lines):
        form.add_argument(f"--{it.flag}", dest="lines", action="store_const", const=it, help=it.help)


def _add_mysql_command(tidb: Any) -> None:
    mysql = add_command(
        tidb,
        "mysql",
        mysql_command,
        "keep a MySQL or MariaDB server in sync with a TiDB cluster",
        "Apply the rows and DDL that TiDB's Drainer writes to Kafka to another server. Each transaction is applied\n"
        "exactly once, even if the command is killed: pass the same arguments, and it resumes where it stopped. The\n"
        "target stores the progress, in the table sluice_tidb. Rows are found by the primary key, or by all columns\n"
        "if there is none. The first start begins with the oldest record, unless --commit-ts or --offset is given.\n"
        "The password of the target comes from --password-file, else from $SLUICE_TARGET_PASSWORD. Ctrl-C and\n"
        "SIGTERM stop it cleanly.",
        "sluice tidb mysql 127.0.0.1:9092 --cluster-id 7561 --to mysql://copy@db2",
        "sluice tidb mysql 127.0.0.1:9092 --cluster-id 7561 --to mysql://copy@db2 --commit-ts 470608642013134850",
        "sluice tidb mysql kafka1:9092 --topic changes --to 'mysql://copy@db2?sslMode=VERIFY_CA&sslCa=ca.pem' --once",
    )
    _add_topic(mysql, "oldest")
    mysql.add_argument(
        "--to",
        required=True,
        metavar="mysql://USER@HOST[:PORT]",
        help="the target; sslMode, sslCa, sslCert and sslKey may follow a ?",
    )
    mysql.add_argument("--password-file", type=Path, metavar="FILE", help="file with the password of the target")
    mysql.add_argument(
        "--job", metavar="NAME", help="name under which the progress is stored (default: the name of the topic)"
    )
    mysql.add_argument(
        "--progress",
        default="sluice",
        metavar="SCHEMA",
        help="schema on the target that stores the progress; created if missing (default: %(default)s)",
    )
    mysql.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="time zone in which the Drainer writes TIMESTAMP values (default: %(default)s)",
    )


def _add_topic(command: Any, offset: str) -> None:
    command.add_argument("brokers", metavar="BROKERS", help="brokers of Kafka: host:port, separated by commas")
    name = command.add_mutually_exclusive_group(required=True)
    name.add_argument("--cluster-id", default="", metavar="ID", help="id of the TiDB cluster: the topic is ID_obinlog")
    name.add_argument("--topic", default="", metavar="NAME", help="the topic, if it has another name")
    start = command.add_mutually_exclusive_group()
    start.add_argument("--commit-ts", type=positive, default=0, metavar="TS", help="start after this transaction")
    start.add_argument(
        "--offset",
        type=_offset,
        default=_offset(offset),
        metavar="N",
        help=f"start with this record: a number, oldest or newest (default: {offset})",
    )
    command.add_argument("--strict", action="store_true", help="refuse a --commit-ts that is before the oldest record")
    command.add_argument("--once", action="store_true", help="stop at the end of the topic")
    command.add_argument(
        "--kafka",
        action="append",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help="a setting of librdkafka, such as security.protocol=SASL_SSL (may be repeated); sasl.password comes from"
        f" ${PASSWORD}",
    )


def print_command(options: Any) -> int:
    """Show the changes of a TiDB cluster."""
    _require("confluent_kafka")
    from .tail import LONGEST_VALUE, described

    lines: Callable[[bytes], Iterable[Sequence[Any]]]
    show: Callable[[Any], None] = out.print
    if options.lines:
        form = next(it for it in FORMATS if it.media_type == options.lines.media_type)
        lines, show = options.lines.open(), write_line
    else:
        form = next(it for it in FORMATS if it.name == "protobuf")
        longest = LONGEST_VALUE if sys.stdout.isatty() and not options.full else None
        lines = partial(described, transactions=options.transactions, longest=longest)
    left = options.limit
    with _reader(options) as reader:
        while left is None or left > 0:
            message = reader.get(WAIT)
            if message is not None:
                for found in lines(b"".join(form.encode(message.batch(), False))):
                    for line in found:
                        show(line)
                left = None if left is None else left - 1
            elif options.once and reader.is_at_end:
                break
    return 0


def mysql_command(options: Any) -> int:
    """Keep a MySQL or MariaDB server like a TiDB cluster."""
    _require("confluent_kafka", "pyarrow")
    from ...client_sdk.tidb.mirror import TiDBMirror
    from ...client_sdk.tidb.reader import topic_of
    from ...sql.database import Database

    target = Database.of(options.to, password_file=options.password_file, variable="SLUICE_TARGET_PASSWORD")
    job = options.job or topic_of(options.topic, options.cluster_id)
    with closing(TiDBMirror(target, job, schema=options.progress, time_zone=options.time_zone)) as mirror:
        place = mirror.open(options.commit_ts)
        if place.record >= 0:
            reader = _reader(options, commit_ts=0, after=(place.record, place.commit_ts), strict=True)
        else:
            reader = _reader(options, commit_ts=place.commit_ts)
        with reader, Line("starting") as line:
            _mirror(reader, mirror, line, once=options.once)
    return 0


def _mirror(reader: "TiDBReader", mirror: "TiDBMirror", line: Line, *, once: bool) -> None:
    def state() -> str:
        if (last := mirror.last) is None:
            return "nothing applied yet"
        return f"{mirror.count} applied, up to {last.commit_ts} of {last.time:%Y-%m-%d %H:%M:%S} UTC"

    try:
        while not (once and reader.is_at_end):
            mirror.apply(reader.take(WAIT, mirror.most_rows, mirror.most_bytes))
            line.say(state)
    finally:
        log.print(state())


def _reader(options: Any, **more: Any) -> "TiDBReader":
    from ...client_sdk.tidb import TiDBReader

    settings = dict(options.kafka)
    if password := os.environ.get(PASSWORD):
        settings["sasl.password"] = password
    given = {
        "topic": options.topic,
        "cluster_id": options.cluster_id,
        "commit_ts": options.commit_ts,
        "offset": options.offset,
        "strict": options.strict,
        "settings": settings,
    }
    return TiDBReader(options.brokers, **{**given, **more})


def _offset(text: str) -> int:
    """Read where in the topic to begin; the names are the reader's numbers."""
    names = {"newest": -1, "oldest": -2}
    return names[text] if text in names else int(text) if text.isdecimal() else positive(text)


def _require(*modules: str) -> None:
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} not found: pip install 'sluice-cdc[arrow,tidb]'")
