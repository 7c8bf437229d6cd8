"""The command line: its commands, and what becomes of their errors."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from ... import __version__
from ...protocol.errors import ConnectionLostError, SluiceError, SourceError, TargetError, ZooKeeperError
from .check import add_check_command
from .clients import add_client_commands
from .cluster import add_cluster_commands
from .common import INTERRUPTED, UNREACHABLE, USAGE, interrupt
from .completion import add_completion_command
from .credentials import add_credential_commands
from .filters import add_filter_command
from .log import add_log_commands
from .migrate import add_migrate_command
from .quarantine import add_quarantine_commands
from .schema import add_schema_commands
from .serve import add_serve_command
from .snapshot import add_snapshot_command
from .source import add_source_commands
from .spark import add_spark_commands
from .tail import add_tail_command
from .tidb import add_tidb_commands
from .verify import add_verify_command

EXIT_CODES = """exit status:
  0  all is well
  1  the answer is no: a check failed, rows differ
  2  arguments or configuration are wrong
  3  the source or the server cannot be reached, or refuses
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    options = argument_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        status = options.run(options)
    except (SourceError, ConnectionLostError, TargetError, ZooKeeperError) as error:
        status = _complain(error, UNREACHABLE)
    except SluiceError as error:
        status = _complain(error, USAGE)
    except BrokenPipeError:  # the reader of our output left, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except OSError as error:
        status = _complain(error, UNREACHABLE)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _complain(error: Exception, status: int) -> int:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    print(f"sluice: {text}", file=sys.stderr)
    return status


def argument_parser() -> argparse.ArgumentParser:
    """Describe all commands and their arguments, in the order in which the help lists them."""
    top = argparse.ArgumentParser(
        prog="sluice",
        description="Serve the changes of MySQL and MariaDB to subscribers, as Canal does.",
        epilog="A tour:\n"
        "  sluice check --conf conf                 is everything right here and on the source?\n"
        "  sluice serve --conf conf                 run the server\n"
        "  sluice tail example                      watch changes as they come\n"
        "  sluice status                            where do clients stand?\n"
        "  sluice spark changelog example 2001 ...  keep every change as Parquet\n"
        "  sluice spark mirror example 3001 ...     keep another server's tables alike\n\n"
        "sluice COMMAND --help explains a command, with examples.\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        add_serve_command,
        add_check_command,
        add_tail_command,
        add_client_commands,
        add_snapshot_command,
        add_filter_command,
        add_verify_command,
        add_quarantine_commands,
        add_log_commands,
        add_schema_commands,
        add_source_commands,
        add_credential_commands,
        add_cluster_commands,
        add_migrate_command,
        add_spark_commands,
        add_tidb_commands,
    ):
        add(commands)
    add_completion_command(commands, top)
    return top
