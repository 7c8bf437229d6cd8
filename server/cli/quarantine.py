"""``sluice quarantine``: the row events that could not be decoded."""

import os
import sys
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...protocol.errors import ConfigError, SourceChangedError, SourceError
from ..config import Configuration
from .common import NO, add_command, add_conf, add_group, out

if TYPE_CHECKING:
    from ...instance.config import InstanceConfig
    from ...instance.quarantine import Item


def add_quarantine_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    quarantine = add_group(commands, "quarantine", "list row events that could not be decoded, and read them again")
    held = add_command(
        quarantine,
        "list",
        quarantine_list_command,
        "list the row events in quarantine",
        "List the row events of a destination that could not be decoded, so that a marker was delivered instead.",
        "sluice quarantine list example",
    )
    held.add_argument("destination", metavar="DESTINATION", help="its name, as in canal.destinations")
    add_conf(held)
    retry = add_command(
        quarantine,
        "retry",
        quarantine_retry_command,
        "decode row events in quarantine again",
        "Decode the events once more, with the tables as they are now, and print their changes, or why they still\n"
        "cannot be decoded. Their bytes were kept; beyond sluice.instance.quarantine.maxBytes the source is asked for\n"
        "them. Nothing is delivered and nothing is stored: apply what is printed yourself.",
        "sluice quarantine retry example",
        "sluice quarantine retry example --position 1/mysql-bin.000003@1767225600:4096:2 --json",
    )
    retry.add_argument("destination", metavar="DESTINATION", help="its name, as in canal.destinations")
    retry.add_argument("--position", metavar="POSITION", help="only this one, as sluice quarantine list shows it")
    retry.add_argument("--json", action="store_true", help="one JSON object (Canal's FlatMessage) per entry")
    add_conf(retry)


def _listed(config: "InstanceConfig") -> "list[Item]":
    from ...instance.quarantine import path_of, read

    return read(path_of(config.file_data_dir, config.destination))


def quarantine_list_command(options: Any) -> int:
    """List the row events in quarantine."""
    for item in _listed(Configuration(options.conf, os.environ).instance(options.destination)):
        out.print(Text(f"{item.position}  {item.schema}.{item.table}", style="bold"))
        out.print(Text(f"  {item.length} bytes: {item.error}"))
    return 0


def quarantine_retry_command(options: Any) -> int:
    """Decode row events in quarantine again."""
    import logging

    from ...instance.sources.registry import examine
    from ...protocol.canal.flat import flat_ndjson
    from ...protocol.canal.rows import decode_changes
    from .tail import describe

    config = Configuration(options.conf, os.environ).instance(options.destination)
    items = [item for item in _listed(config) if options.position in (None, item.position)]
    if options.position and not items:
        raise ConfigError(f"{options.position} is not in quarantine; sluice quarantine list shows what is")
    logging.getLogger("sluice.instance").setLevel(logging.CRITICAL)  # what it would say is printed, once
    still = 0
    for item in items:
        try:
            with examine(config) as source:
                found = source.reread(item)
            data, reason = found.data, found.reason
        except (SourceError, SourceChangedError) as error:
            data, reason = b"", str(error)
        if reason:
            still += 1
            print(f"{item.position} {item.schema}.{item.table}: {reason}", file=sys.stderr)
        elif options.json:
            sys.stdout.write(flat_ndjson([data], 0, strict=config.strict_canal).decode())
        else:
            out.print(Text(f"{item.position}", style="bold"))
            for line in (line for change in decode_changes(data) for line in describe(change, longest=None)):
                out.print(line)
    return NO if still else 0
