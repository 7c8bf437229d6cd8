"""``sluice verify``: the decoder beside another one, or the log on disk beside the source."""

import os
from importlib.util import find_spec
from itertools import starmap
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...protocol.errors import ConfigError
from ..config import Configuration
from ..wording import counted
from .common import NO, add_command, add_conf, add_destination, out

if TYPE_CHECKING:
    from rich.console import Console

    from ...instance.source import Findings


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    verify = add_command(
        commands,
        "verify",
        verify_command,
        "decode the binlog with two decoders and compare",
        "Read a range of the source's binlog with Sluice's decoder and with an independent one\n"
        "(pymysqlreplication), and compare all rows, value by value. The command counts and names what the other\n"
        "decoder cannot read.\n\n"
        "With --log, compare the log on disk with the binlog of the source, entry by entry. The command counts what\n"
        "the source has purged. A server may run at the same time. The exit status is 1 when something differs.",
        "sluice verify example",
        "sluice verify example --log",
        "sluice verify example --from mysql-bin.000003 --to mysql-bin.000005:1000000",
    )
    add_destination(verify)
    verify.add_argument(
        "--from",
        dest="start",
        metavar="FILE[:OFFSET]",
        help="start of the range (default: the last binlog file); with --log a position",
    )
    verify.add_argument(
        "--to",
        dest="stop",
        metavar="FILE[:OFFSET]",
        help="end of the range (default: the current end); with --log a position",
    )
    verify.add_argument("--log", action="store_true", help="compare the log on disk with the source")
    add_conf(verify)


def verify_command(options: Any) -> int:
    """Decode a range twice and compare, or compare the log with the source."""
    from rich.progress import Progress

    from ...instance.sources.registry import make_parser
    from ...instance.verification import compare_log
    from .saved import as_read

    configuration = Configuration(options.conf, os.environ)
    config = as_read(configuration.server, configuration.instance(options.destination).main)
    if not options.log and find_spec("pymysqlreplication") is None:
        raise ConfigError("pymysqlreplication, the other decoder, not found: pip install 'sluice-cdc[verify]'")
    with Progress(console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("comparing")

        def advance(what: str, completed: int, total: int) -> None:
            progress.update(task, completed=completed, total=total, description=f"comparing {what}")

        if options.log:
            log = compare_log(config, make_parser, options.start, options.stop, advance)
            return 0 if show(log, f"{counted(log.entries, 'entry', 'entries')}, {log.bytes} bytes", out) else NO
        from ...verify.comparison import compare

        report = compare(config, options.start, options.stop, advance)
    amounts = (report.events, "event"), (report.rows, "row"), (report.values, "value")
    return 0 if show(report, ", ".join(starmap(counted, amounts)), out) else NO


def show(report: "Findings", amount: str, console: "Console") -> bool:
    """Print what was found in a range of such an amount; return whether nothing differs."""
    for text in report.differences:
        console.print(Text("differs ", style="red") + Text(text))
    if report.different > len(report.differences):
        console.print(f"... and {report.different - len(report.differences)} more")
    for reason, count in sorted(report.unread.items()):
        console.print(Text("not compared ", style="yellow") + Text(f"{count} {reason}"))
    verdict = (
        Text(counted(report.different, "difference"), "bold red") if report.different else Text("equal", "bold green")
    )
    console.print(Text(f"{report.start} to {report.stop}: {amount}: ") + verdict + Text(f" ({report.seconds:.1f} s)"))
    return not report.different
