"""``sluice serve``: the server itself."""

import contextlib
import os
from typing import Any

from ... import __version__
from ..config import Configuration
from .common import add_command, add_conf


def add_serve_command(commands: Any) -> None:
    """Add the command to those of the command line."""
    serve = add_command(
        commands,
        "serve",
        serve_command,
        "run the server",
        "Run until SIGTERM or Ctrl-C: start the destinations, serve the HTTP API and Canal's clients, follow the conf\n"
        "folder.",
        "sluice serve --conf conf",
        "SLUICE_INSTANCE_DB_PASSWORD=... sluice serve --conf conf",
        "SLUICE_HTTP_HOST=0.0.0.0 sluice serve --insecure    # where everybody may read everything",
    )
    add_conf(serve)
    serve.add_argument(
        "--insecure", action="store_true", help="listen beyond this host without certificate or credentials"
    )


def serve_command(options: Any) -> int:
    """Run the server."""
    import logging
    import resource

    import uvloop

    from ..logging import configure_logging
    from ..process import keep_freed_memory, run

    given = {"insecure": True} if options.insecure else {}
    configuration = Configuration(options.conf, os.environ, **given)
    configure_logging(configuration.server.log_level, configuration.server.log_format)
    logger = logging.getLogger("sluice.server")
    for warning in configuration.warnings():
        logger.warning("%s", warning)

    def listening(url: str) -> None:
        logger.info("sluice %s serves %s (all calls: %s/docs)", __version__, url, url)

    keep_freed_memory()
    _now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # connections must not keep cursors from being written
    with contextlib.suppress(KeyboardInterrupt):  # a stop while it starts, which ends it in order as well
        uvloop.run(run(configuration, listening))
    logger.info("stopped")
    return 0
