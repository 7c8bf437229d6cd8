"""``sluice quarantine``: the row events that could not be decoded."""

import os
from datetime import datetime
from typing import Any
from urllib.parse import quote

from rich.text import Text

from ..config import Configuration
from .common import NO, add_command, add_conf, add_destination, add_group, add_server, log, out, remote_of, write_line


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    quarantine = add_group(commands, "quarantine", "list row events that could not be decoded, and retry them")
    held = add_command(
        quarantine,
        "list",
        quarantine_list_command,
        "list the row events in quarantine",
        "List the row events of a destination that could not be decoded. Clients got a marker instead of each.",
        "sluice quarantine list example",
    )
    add_destination(held)
    add_conf(held)
    skipped = add_command(
        quarantine,
        "skipped",
        quarantine_skipped_command,
        "list the changes that outputs have skipped",
        "List the changes that outputs have skipped because they are configured to (onRefused, onMarker).",
        "sluice quarantine skipped example",
    )
    add_destination(skipped)
    add_conf(skipped)
    retry = add_command(
        quarantine,
        "retry",
        quarantine_retry_command,
        "decode row events in quarantine again",
        "Decode the events again, with the current definitions of their tables, or show why that still fails. The\n"
        "events come from the quarantine, which keeps up to sluice.instance.quarantine.maxBytes, else from the\n"
        "source. A client that has passed an event gets its rows in a separate batch. The other clients get them in\n"
        "order: the destination restarts at the positions of its clients. With --print nothing is delivered.",
        "sluice quarantine retry example",
        "sluice quarantine retry example --print",
        "sluice quarantine retry example --position 1/mysql-bin.000003@1767225600:4096:2 --print --json",
    )
    add_destination(retry)
    retry.add_argument(
        "--position", metavar="POSITION", help="retry only this event, as sluice quarantine list shows it"
    )
    retry.add_argument("--print", action="store_true", help="only print the changes; this needs no running server")
    retry.add_argument(
        "--json", action="store_true", help="with --print: one JSON object (Canal's FlatMessage) per entry"
    )
    add_server(retry)
    add_conf(retry)


def quarantine_list_command(options: Any) -> int:
    """List the row events in quarantine."""
    from ..embedded.quarantine import listed

    items = listed(Configuration(options.conf, os.environ).instance(options.destination))
    for item in items:
        out.print(Text(f"{item.position}  {item.schema}.{item.table}", style="bold"))
        out.print(Text(f"  {item.length} bytes: {item.error}"))
    if not items:
        out.print(f"nothing: all row events of {options.destination} could be decoded, or were read again since")
    return 0


def quarantine_skipped_command(options: Any) -> int:
    """List what outputs have left out."""
    from ...instance.skipped import path_of, read

    config = Configuration(options.conf, os.environ).instance(options.destination)
    items = read(path_of(config.file_data_dir, config.destination))
    for item in items:
        out.print(Text(f"{item.position}  output {item.output}", style="bold"))
        out.print(Text(f"  {datetime.fromtimestamp(item.time).astimezone():%Y-%m-%d %H:%M:%S}: {item.reason}"))
    if not items:
        out.print(f"nothing: no output of {options.destination} has left a change out")
    return 0


def quarantine_retry_command(options: Any) -> int:
    """Decode row events in quarantine again, and let the server deliver them, or print them."""
    return _print_again(options) if options.print else _deliver_again(options)


def _deliver_again(options: Any) -> int:
    query = {"position": options.position} if options.position else {}
    path = f"/v1/destinations/{quote(options.destination, safe='')}/quarantine/retry"
    still = 0
    for it in remote_of(options).request("POST", path, query).json():
        item, reason = it["item"], it["reason"]
        where = f"{item['position']} {item['schema']}.{item['table']}"
        if reason:
            still += 1
            log.print(f"{where}: {reason}")
        else:
            clients = ", ".join(map(str, it["clients"]))
            out.print(Text(f"{where}: delivered to {f'the clients {clients}' if clients else 'no client'} apart"))
    return NO if still else 0


def _print_again(options: Any) -> int:
    import logging

    from ...protocol.canal.flat import flat_ndjson
    from ...protocol.canal.rows import decode_changes
    from ..embedded.quarantine import decode_again
    from .tail import describe

    config = Configuration(options.conf, os.environ).instance(options.destination)
    logging.getLogger("sluice.instance").setLevel(logging.CRITICAL)  # what it would say is printed, once
    still = 0
    for item, found in decode_again(config, options.position):
        if found.reason:
            still += 1
            log.print(f"{item.position} {item.schema}.{item.table}: {found.reason}")
        elif options.json:
            write_line(flat_ndjson([found.data], 0, strict=config.strict_canal).decode().removesuffix("\n"))
        else:
            out.print(Text(f"{item.position}", style="bold"))
            for line in (line for change in decode_changes(found.data) for line in describe(change, longest=None)):
                out.print(line)
    return NO if still else 0
