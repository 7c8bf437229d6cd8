"""``sluice migrate``: what would happen if Sluice were started on the conf folder of a Canal. Nothing is changed."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...instance.config import InstanceConfig
from ...protocol.errors import FilterError, SluiceError
from ..config import Configuration
from .cluster import try_zookeeper
from .common import NO, add_command, out
from .findings import Findings, examine_password

if TYPE_CHECKING:
    from ...instance.source import Examination
    from ...store.cursor import Cursor, StoredClient


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    migrate = add_command(
        commands,
        "migrate",
        migrate_command,
        "show what would happen if Sluice replaced a Canal",
        "Read the conf folder of a Canal. Show which destinations Sluice would serve, from which sources, and which\n"
        "keys Sluice does not support. Check each filter and each saved position: the position must be readable,\n"
        "and its change still be in the binlog of the source. The exit status is 1 when something would stop\n"
        "working, such as sending to RocketMQ. The command starts nothing and changes nothing, neither here nor on\n"
        "the source nor in ZooKeeper.\n"
        "In the conf folder of Canal's client-adapter (application.yml), read its mappings of tables (rdb/*.yml), and\n"
        "print the outputs that do the same, for instance.properties. What has no equal is named with the next step.",
        "sluice migrate --from /opt/canal/conf",
        "sluice migrate --from /opt/canal/conf --zk zk1:2181,zk2:2181",
        "sluice migrate --from /opt/canal-adapter/conf",
    )
    migrate.add_argument(
        "--from",
        dest="conf",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of the canal.properties of Canal or Sluice, or of the application.yml of Canal's client-adapter",
    )
    migrate.add_argument("--zk", metavar="HOST:PORT,...", help="ZooKeeper servers, instead of canal.zkServers")


def migrate_command(options: Any) -> int:
    """Say what would happen."""
    from ..canal_adapter import MAIN

    if (options.conf / MAIN).is_file():
        return _migrate_adapter(options.conf)
    from ..capacity import find_shortages
    from ..outputs.registry import examine as examine_output
    from .saved import as_read, require_zookeeper

    findings = Findings(out)
    given = {"zk_servers": options.zk} if options.zk else {}
    configuration = Configuration(options.conf, os.environ, **given)
    _examine_server(configuration, findings)
    if silence := try_zookeeper(configuration.server):
        findings.wrong("ZooKeeper", silence)
    configs = []
    for name in configuration.destinations():
        try:
            config = configuration.instance(name)
            require_zookeeper(config, silence)
            config = as_read(configuration.server, config)
            configs.append(config)
            _examine(configuration, config, findings)
            for output in configuration.outputs(name):
                examine_output(output, findings)
        except SluiceError as error:
            findings.wrong(name, error)
    for address, text in find_shortages(configs):
        findings.wrong(f"source {address}", text)
    return 0 if findings.healthy else NO


def _migrate_adapter(folder: Path) -> int:
    """Print the outputs that do what a client-adapter of Canal does."""
    from ..canal_adapter import ClientAdapter

    findings = Findings(out)
    adapter = ClientAdapter(folder)
    outputs = adapter.outputs(adapter.ask_sources())
    for found in adapter.findings:
        (findings.wrong if found.is_wrong else findings.note)(found.what, found.text)
    for destination in dict.fromkeys(it.destination for it in outputs):
        own = [it for it in outputs if it.destination == destination]
        findings.good(destination, "add these lines to its instance.properties:")
        print(f"\nsluice.outputs = {','.join(it.name for it in own)}")
        for output in own:
            print(*output.lines(), sep="\n")
        print()
    if outputs:
        findings.note(
            "next",
            "copy jdbc.password into the files that passwordFile names, stop the adapter, and run `sluice check`. Each"
            " output begins with a snapshot, which keeps rows that only the target has",
        )
    return 0 if findings.healthy else NO


def _examine_server(configuration: Configuration, findings: Findings) -> None:
    from ..config.warnings import find_warnings, missing, of_outputs, understood
    from ..fronts import served
    from ..network import address_text

    if not configuration.destinations():
        findings.wrong(configuration.main_file, "canal.destinations is empty, and no folder has an instance.properties")
    for file, keys in understood(configuration).items():
        findings.good(file, f"{len(keys)} keys are understood: {grouped(keys)}")
    wrong = [*missing(configuration), *of_outputs(configuration).unknown]
    for text in wrong:
        findings.wrong("configuration", text)
    for warning in find_warnings(configuration):
        if warning not in wrong:
            findings.note("configuration", warning)
    ports = [f"{address_text((front.host, front.port))} ({front.title})" for front in served(configuration.fronts)]
    findings.good("server", f"would listen on {' and '.join(ports)}")


def grouped(keys: Iterable[str]) -> str:
    """Return keys by what they have in common: ``canal.{port, user}; canal.instance.{gtidon}; canal.mq.{topic}``."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        parts = key.split(".")
        depth = min(3 if key.startswith("canal.instance.") else 2, len(parts) - 1)
        groups.setdefault(".".join(parts[:depth]), []).append(".".join(parts[depth:]))
    return "; ".join(f"{common}.{{{', '.join(rest)}}}" for common, rest in groups.items())


def _examine(configuration: Configuration, config: InstanceConfig, findings: Findings) -> None:
    """Examine a destination. Raises SluiceError: it cannot be served as things are."""
    from ...instance.sources.registry import examine
    from .saved import read_saved

    saved = read_saved(configuration.server, config)
    if saved.running:
        findings.note(config.destination, f"is served now, as its node says: {saved.running}")
    black = f" without {config.filter_black_regex}" if config.filter_black_regex else ""
    findings.good(
        config.destination,
        f"{config.place}, tables {config.filter_regex}{black}; cursors in {saved.where}",
    )
    with examine(config) as source:
        source.check(is_replaced=True)
        examine_password(findings, config.destination, source)
        for client in saved.clients:
            _examine_client(config, client, source, findings)
        if all(client.cursor is None for client in saved.clients):
            begin = source.find(saved.place)
            findings.note(config.destination, f"no client has a position: it would begin {begin}")


def _examine_client(config: InstanceConfig, client: "StoredClient", source: "Examination", findings: Findings) -> None:
    from .saved import try_filter

    name = f"{config.destination}, client {client.client_id}"
    text = f"filter {client.filter}, " if client.filter else ""
    try:
        try_filter(config, client)
    except FilterError as error:
        findings.wrong(name, f"would not be served: {error}")
    if client.cursor is None:
        findings.note(name, f"{text}no position: it would begin where the destination does")
        return
    try:
        source.find(client.cursor)
    except SluiceError as error:
        findings.wrong(name, error)
    else:
        findings.good(name, f"{text}would resume at {_place(client.cursor)}, which the source still has")


def _place(cursor: "Cursor") -> str:
    time = datetime.fromtimestamp(cursor.timestamp / 1000, UTC)
    return f"{cursor.position or f'{cursor.journal}:{cursor.offset}'} ({time:%F %T} UTC)"
