"""The command line: its commands, and what becomes of their errors."""

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from ... import __version__
from ...protocol.errors import ConnectionLostError, SluiceError, SourceError, TargetError, ZooKeeperError
from ..logging import printable
from .common import INTERRUPTED, UNREACHABLE, USAGE, discard_output, interrupt
from .completion import add_completion_command

MODULES = {
    "init": ("init",),
    "serve": ("serve",),
    "check": ("check",),
    "plugins": ("plugins",),
    "tail": ("tail",),
    "clients": ("status", "clients", "ack", "rollback", "skip", "seek", "protect", "limit", "unsubscribe"),
    "snapshot": ("snapshot",),
    "filters": ("filter",),
    "verify": ("verify",),
    "compare": ("compare",),
    "quarantine": ("quarantine",),
    "gaps": ("gaps",),
    "audit": ("audit",),
    "log": ("log",),
    "schema": ("schema",),
    "source": ("source",),
    "credentials": ("token", "user"),
    "cluster": ("yield", "rebalance"),
    "restore": ("cluster",),
    "backup": ("backup", "restore"),
    "migrate": ("migrate",),
    "spark": ("spark",),
    "tidb": ("tidb",),
    "pump": ("pump",),
    "replay": ("replay",),
}
"""The modules with the commands that each adds, in the order in which the help lists them."""

EXIT_CODES = """exit status:
  0  all is well
  1  a check failed, or rows differ
  2  the arguments or the configuration are wrong
  3  the source or the server cannot be reached, or refuses the request
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    options = argument_parser(words[0] if words else "").parse_args(words)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        status = options.run(options)
    except (SourceError, ConnectionLostError, TargetError, ZooKeeperError) as error:
        status = _complain(error, UNREACHABLE)
    except SluiceError as error:
        status = _complain(error, USAGE)
    except BrokenPipeError:  # the reader of our output left, as head does
        discard_output()
        status = 0
    except OSError as error:
        status = _complain(error, UNREACHABLE)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _complain(error: Exception, status: int) -> int:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    print(printable(f"sluice: {text}", "\n"), file=sys.stderr)
    return status


def argument_parser(command: str = "") -> argparse.ArgumentParser:
    """Describe the commands and their arguments, in the order in which the help lists them.

    Where the ``command`` is known that is asked for, only those of its module: to import all of them takes long.
    """
    top = argparse.ArgumentParser(
        prog="sluice",
        description="Serve the changes of MySQL and MariaDB to subscribers, as Canal does.",
        epilog="A tour:\n"
        "  sluice init conf                         write a configuration to start with\n"
        "  sluice check --conf conf                 check the configuration and the source\n"
        "  sluice serve --conf conf                 run the server\n"
        "  sluice tail example                      watch changes as they come\n"
        "  sluice status                            show the state of destinations and clients\n"
        "  sluice spark changelog example 2001 ...  write every change to Parquet files\n"
        "  sluice spark mirror example 3001 ...     keep tables of another server in sync\n\n"
        "sluice COMMAND --help explains a command, with examples.\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if command == "--version":
        return top
    modules = [module for module, names in MODULES.items() if command in names]
    for module in modules or MODULES:
        import_module(f".{module}", __package__).add_commands(commands)
    add_completion_command(commands, top)
    return top
