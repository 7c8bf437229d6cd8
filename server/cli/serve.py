"""``sluice serve``: the server itself."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Coroutine
from typing import Any

from ..config import Configuration
from ..processes import ALL, Share
from .common import add_command, add_conf


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    serve = add_command(
        commands,
        "serve",
        serve_command,
        "run the server",
        "Start the destinations, serve the HTTP API and Canal's clients, and watch the conf folder. The server runs\n"
        "until SIGTERM or Ctrl-C.",
        "sluice serve --conf conf",
        "SLUICE_INSTANCE_DB_PASSWORD=... sluice serve --conf conf",
        "SLUICE_HTTP_HOST=0.0.0.0 sluice serve --insecure    # anybody may read everything",
        "sluice serve --processes 4    # ports 11180 to 11183, and 11111 to 11114 for Canal's clients",
    )
    add_conf(serve)
    serve.add_argument(
        "--insecure", action="store_true", help="accept other hosts without a certificate or credentials"
    )
    serve.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="number of processes, to use several cores (default: 1). They share the destinations. Each has its own"
        " ports: the configured ones and the next ones. Not with canal.zkServers",
    )
    serve.add_argument("--process", type=_share, default=ALL, help=argparse.SUPPRESS)
    serve.add_argument("--logins", type=int, help=argparse.SUPPRESS)


def serve_command(options: Any) -> int:
    """Run the server, or the processes that are it."""
    import logging

    from ..config.warnings import find_warnings
    from ..logging import configure_logging
    from ..logins import LoginLimiter, make_table
    from ..process import run, run_processes

    given = {"insecure": True} if options.insecure else {}
    configuration = Configuration(options.conf, os.environ, options.process, **given)
    configuration.addresses.require_processes(options.processes)
    configure_logging(configuration.server.log_level, configuration.server.log_format)
    logger = logging.getLogger("sluice.server")

    if configuration.share == ALL:
        for warning in find_warnings(configuration):
            logger.warning("%s", warning)
    if options.processes > 1:
        logins = make_table()
        _run(run_processes(configuration, _commands(options, logins), [logins]))
    else:
        _prepare(configuration)
        _run(run(configuration, LoginLimiter(options.logins)))
    logger.info("stopped")
    return 0


def _run(server: Coroutine[Any, Any, None]) -> None:
    import uvloop

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):  # stopped as it starts
        uvloop.run(server)


def _prepare(configuration: Configuration) -> None:
    """Set what holds for the whole of a process that serves destinations."""
    import resource

    from ..process import keep_freed_memory
    from ..processes import end_with_supervisor

    if configuration.share != ALL:
        end_with_supervisor()
    keep_freed_memory()
    _now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # connections must not keep cursors from being written


def _commands(options: Any, logins: int) -> list[list[str]]:
    """Return what starts each of the processes, which count failed logins in one file."""
    # -P: the folder in which it is started is no place to look for modules.
    command = [sys.executable, "-P", "-m", "sluice.server.cli", "serve", "--conf", str(options.conf)]
    command += ["--logins", str(logins)]
    command += ["--insecure"] if options.insecure else []
    return [[*command, "--process", f"{number}/{options.processes}"] for number in range(options.processes)]


def _share(text: str) -> Share:
    number, _, count = text.partition("/")
    return Share(int(number), int(count))
