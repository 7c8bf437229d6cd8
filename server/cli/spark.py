"""The commands ``sluice spark …``: a Spark in this process reads changes from a server and writes them elsewhere."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...protocol import errors
from ...protocol.errors import ConfigError, ConnectionLostError, SluiceError, SourceError, TargetError
from ..wording import counted, duration
from .common import Line, add_client, add_command, add_group, add_server, log, positive, setting, token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ...client_sdk import Client

JAVA = 17  # the oldest that Spark runs on
LOOK = 0.5  # seconds between two looks at a query
RETRY = 5.0  # seconds that the command itself waits for a server; the source waits for longer
STACK = re.compile(r"\n\tat .*", re.DOTALL)  # what Java adds
CAUSE = re.compile(
    r"^(?:\w+: )?sluice\.protocol\.errors\.(\w+): (.+?)(?=\n SQLSTATE|\n\tat |\n\n|\n===|\s*\Z)",
    re.MULTILINE | re.DOTALL,
)
ELSEWHERE = SourceError | ConnectionLostError | TargetError  # errors of what is reached over the network


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    jobs = add_group(commands, "spark", "copy changes with Spark")
    _add_changelog_command(jobs)
    _add_mirror_command(jobs)


def _add_changelog_command(jobs: Any) -> None:
    changelog = add_command(
        jobs,
        "changelog",
        changelog_command,
        "write all changes to Parquet files",
        "Write every change of a destination to Parquet files, exactly once, even if it is killed: pass the same\n"
        "arguments, and it resumes where it stopped. Files are in date=…/schema=…/table=… (dates are in UTC). Read\n"
        "them with spark.read.parquet(FOLDER), which sees finished micro-batches only. Ctrl-C and SIGTERM stop it\n"
        "cleanly.",
        "sluice spark changelog example 2001 --to /data/changes --checkpoint /data/changes-checkpoint",
        r"sluice spark changelog example 2001 --to changes --checkpoint changes-at --filter 'shop\..*' --once",
        "sluice spark changelog example 2001 --to s3a://lake/changes --checkpoint s3a://lake/at --master yarn",
    )
    changelog.add_argument(
        "--to", required=True, metavar="FOLDER", help="folder of the files; it must not have other files"
    )
    add_stream(changelog, interval=10)


def _add_mirror_command(jobs: Any) -> None:
    mirror = add_command(
        jobs,
        "mirror",
        mirror_command,
        "keep tables of another MySQL or MariaDB server in sync",
        "Apply every change of a destination to the tables of another server, exactly once, even if it is killed:\n"
        "pass the same arguments, and it resumes where it stopped. The tables must exist, with the same columns and\n"
        "primary keys; DDL is not applied. The target stores the progress, in the tables sluice_mirror and\n"
        "sluice_progress. The password of the target comes from --password-file, else from $SLUICE_TARGET_PASSWORD.\n"
        "Ctrl-C and SIGTERM stop it cleanly.\n\n"
        "With --snapshot the tables of the target start empty. The command first loads them, while the source keeps\n"
        "changing. It does so once; if it is stopped before the load is complete, the next start resumes the load.",
        "sluice spark mirror example 3001 --to mysql://mirror@db2 --checkpoint /data/mirror-checkpoint",
        "sluice spark mirror example 3001 --to mysql://mirror@db2 --checkpoint at --snapshot mysql://reader@db1",
        "sluice spark mirror example 3001 --to mysql://mirror@db2 --checkpoint at --schema shop=copy --tasks 4",
        "sluice spark mirror example 3001 --to 'mysql://mirror@db2?sslMode=VERIFY_CA&sslCa=ca.pem' --checkpoint at",
    )
    mirror.add_argument(
        "--to",
        required=True,
        metavar="mysql://USER@HOST[:PORT]",
        help="the target; sslMode, sslCa, sslCert and sslKey may follow a ?",
    )
    mirror.add_argument("--password-file", type=Path, metavar="FILE", help="file with the password of the target")
    mirror.add_argument(
        "--schema",
        action="append",
        default=[],
        type=setting,
        metavar="SOURCE=TARGET",
        help="map a schema to another name on the target (may be repeated)",
    )
    mirror.add_argument(
        "--job", metavar="NAME", help="name under which the progress is stored (default: DESTINATION/CLIENT)"
    )
    mirror.add_argument(
        "--progress",
        default="sluice",
        metavar="SCHEMA",
        help="schema on the target that stores the progress; created if missing (default: %(default)s)",
    )
    mirror.add_argument(
        "--tasks",
        type=positive,
        metavar="N",
        help="number of connections that write in parallel (default: cores of Spark)",
    )
    add_stream(mirror, interval=0)
    snapshot = mirror.add_argument_group("the snapshot")
    snapshot.add_argument(
        "--snapshot",
        metavar="mysql://USER@HOST[:PORT]",
        help="the source of the destination, with an account that may read its tables",
    )
    snapshot.add_argument(
        "--snapshot-password-file",
        type=Path,
        metavar="FILE",
        help="file with the password of that account (default: $SLUICE_SNAPSHOT_PASSWORD)",
    )
    snapshot.add_argument("--snapshot-rows", type=positive, metavar="N", help="approximate number of rows per task")
    snapshot.add_argument(
        "--max-rows-per-second",
        type=positive,
        metavar="N",
        help="maximum number of rows that all tasks read per second",
    )
    snapshot.add_argument("--overwrite", action="store_true", help="first empty the tables of the target")


def changelog_command(options: Any) -> int:
    """Write all changes to Parquet files."""
    require_spark()
    from ...client_sdk.spark.changelog import start_changelog

    def start(spark: "SparkSession", _stop: Callable[[], bool]) -> "StreamingQuery":
        return start_changelog(
            spark, options.to, options.checkpoint, source_options(options), once=options.once, interval=options.interval
        )

    return run_stream(options, start)


def mirror_command(options: Any) -> int:
    """Keep the tables of another server like those of the source."""
    require_spark()
    from ...client_sdk.spark.mirror import START, start_mirror
    from ...client_sdk.spark.options import Options
    from ...client_sdk.spark.snapshot import load_snapshot
    from ...client_sdk.spark.tables import database_of
    from ...sql.database import Database
    from ...sql.target import Target

    target = Database.of(options.to, password_file=options.password_file, variable="SLUICE_TARGET_PASSWORD")
    source = source_options(options)
    tables = source | _snapshot_options(options)
    # Report mistakes before seconds are spent on Spark.
    if options.snapshot is not None:
        database_of(Options.parse(tables))
    with closing(Target(target, retry=START)) as probe:
        probe.transact(lambda cursor: cursor.execute("DO 0"))
    kept = {
        "job": options.job,
        "schemas": dict(options.schema),
        "progress": options.progress,
        "tasks": options.tasks,
    }

    def start(spark: "SparkSession", stop: Callable[[], bool]) -> "StreamingQuery | None":
        if options.snapshot is not None:
            state = ""

            def report(loaded: object) -> None:
                nonlocal state
                state = f"loaded {loaded}"
                line.say(lambda: state)

            with Line("loading") as line:
                done = load_snapshot(
                    spark, target, tables, overwrite=options.overwrite, report=report, stop=stop, **kept
                )
            if not done:
                log.print(Text(f"{state or 'nothing is loaded yet'}; start it again to go on"))
                return None
            log.print(Text(state or "all was loaded before"))
        return start_mirror(
            spark, target, options.checkpoint, source, once=options.once, interval=options.interval, **kept
        )

    return run_stream(options, start)


def _snapshot_options(options: Any) -> dict[str, str]:
    given = {
        "snapshot": options.snapshot,
        "snapshotPasswordFile": options.snapshot_password_file,
        "snapshotRows": options.snapshot_rows,
        "maxRowsPerSecond": options.max_rows_per_second,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


# --- what all streams have in common ---------------------------------------------------------------------------------


def add_stream(command: argparse.ArgumentParser, *, interval: float) -> None:
    """Add what is read, when, and by which Spark; `source_options` and `run_stream` take what is given."""
    add_client(command)
    add_server(command)
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token (default: $SLUICE_TOKEN_FILE, $SLUICE_TOKEN)",
    )
    command.add_argument("--filter", metavar="REGEX", help=r"tables to read, such as 'shop\..*' (default: all)")
    command.add_argument(
        "--from",
        dest="start",
        metavar="START",
        help="where a new client starts: earliest (default), the oldest stored change; oldest, the oldest change that"
        " the source has; latest; or a position",
    )
    command.add_argument(
        "--checkpoint",
        required=True,
        metavar="FOLDER",
        help="folder where Spark stores the progress; each --to needs its own",
    )
    command.add_argument("--once", action="store_true", help="stop after the changes that the source has now")
    command.add_argument(
        "--interval",
        type=seconds,
        default=interval,
        metavar="SECONDS",
        help="time between the starts of two micro-batches (default: %(default)g)",
    )
    command.add_argument("--max-rows", type=positive, metavar="N", help="maximum number of rows in a micro-batch")
    command.add_argument(
        "--option",
        action="append",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help="another option of the source; the Spark guide lists them (may be repeated)",
    )
    command.add_argument(
        "--master",
        default="local[*]",
        metavar="URL",
        help="the Spark cluster to use (default: all cores of this machine)",
    )
    command.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.driver.memory=4g (may be repeated)",
    )


def seconds(text: str) -> float:
    """Read a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def source_options(options: Any) -> dict[str, str]:
    """Return the options of the source that the arguments ask for."""
    given = {
        "url": options.url,
        "destination": options.destination,
        "clientId": options.client,
        "ca": options.ca and options.ca.absolute(),
        "tokenFile": options.token_file and options.token_file.absolute(),
        "token": None if options.token_file else token() or None,
        "filter": options.filter,
        "startingPosition": options.start,
        "maxRowsPerTrigger": options.max_rows,
    }
    return {name: str(value) for name, value in given.items() if value is not None} | dict(options.option)


def require_spark() -> None:
    """Raise ConfigError, with what to do, unless PySpark and a Java that it runs on are there."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} not found: pip install 'sluice-cdc[spark]'")
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    advice = f"Spark needs Java {JAVA} or newer: install it (Debian: apt install default-jre-headless) or set JAVA_HOME"
    if java is None:
        raise ConfigError(f"no java in {home + '/bin, where JAVA_HOME points' if home else '$PATH'}. {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603  found in $PATH
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < JAVA:
        raise ConfigError(f"{java} is {said.partition(chr(10))[0] or 'not a Java runtime'}. {advice}")


def run_stream(options: Any, start: "Callable[[SparkSession, Callable[[], bool]], StreamingQuery | None]") -> int:
    """Run a query to its end, or until Ctrl-C or SIGTERM, and return the exit status; raises SluiceError.

    ``start`` may ask whether to stop, and then give none. Call `require_spark` before.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from ...client_sdk.spark.checkpoint import committed
    from ...client_sdk.spark.options import Options

    client = Options.parse(source_options(options)).client(retry=RETRY)
    client.destination()  # reports a problem before seconds are spent on Spark
    spark = _start_spark(options)
    with _asked_to_stop() as asked:
        try:
            query = start(spark, lambda: bool(asked))
            if query is None:
                return 0
            with ProgressLine(query, client) as progress:
                while query.isActive and not asked:
                    progress.show()
                    time.sleep(LOOK)
                if asked:
                    spark.sparkContext.setLogLevel("OFF")  # a task that is cut off has much to say
                    query.stop()
                    if position := committed(spark, options.checkpoint):  # Spark leaves this to the next micro-batch
                        client.ack(position, durable=True)
                else:
                    query.awaitTermination()
            log.print(Text(progress.line()))
        except (PySparkException, Py4JError) as error:
            if not asked:
                raise _cause(error) from None
            log.print("Spark was ended, too; what is not acknowledged yet will be at the next start")
        finally:
            with suppress(Py4JError, OSError):  # its Java may be gone
                spark.stop()
            client.close()
    return 0


def _start_spark(options: Any) -> "SparkSession":
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the executors take the first python3 of $PATH
    settings = {
        "spark.app.name": f"sluice {options.destination} {options.client}",
        "spark.master": options.master,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if options.master.startswith("local"):  # then no other machine needs to reach the driver
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder
    for key, value in (settings | dict(options.spark_conf)).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Collect the signals of Ctrl-C and SIGTERM: an exception within a call of Spark would break its connection."""
    asked: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, _frame: asked.append(number))
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cause(error: Exception) -> SluiceError:
    """Find our own error in one of Spark, which wraps it in tracebacks of two languages."""
    found = CAUSE.findall(str(error))
    if not found:
        return SourceError(STACK.sub("", str(error)))
    name, text = found[-1]
    kind = getattr(errors, name, SluiceError)
    return SourceError(text) if issubclass(kind, ELSEWHERE) else ConfigError(text)


class ProgressLine(Line):
    """What a query has done."""

    def __init__(self, query: "StreamingQuery", client: "Client") -> None:
        super().__init__("starting")
        self._query = query
        self._client = client
        self._seen = -1
        self._rows = 0

    def show(self) -> None:
        """Look at the query, and say what is new."""
        if self._look():
            self.say(self.line)

    def _look(self) -> bool:
        news = [it for it in self._query.recentProgress if it.batchId > self._seen and it.numInputRows]
        self._rows += sum(it.numInputRows for it in news)
        self._seen = max([self._seen, *(it.batchId for it in news)])
        return bool(news)

    def line(self) -> str:
        """Say what was done, and what is to do."""
        self._look()
        written = f"{counted(self._rows, 'row')} written"
        try:
            lag = self._client.status()["lag"]
        except SluiceError as error:  # the source asks for longer
            return f"{written}; {error}"
        # Right after each heartbeat of the source the server does not know what came since, and says so in seconds.
        is_behind = lag["stage"] != "none"
        seconds = lag["seconds"] if is_behind else 0.0
        least = "at least " if is_behind and lag["atLeast"] else ""
        return f"{written}, {least}{counted(lag['rows'], 'row')} and {duration(seconds, 1)} behind"
