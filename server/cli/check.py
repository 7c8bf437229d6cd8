"""``sluice check``: what a start would find, without starting anything."""

import contextlib
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...instance.config import InstanceConfig
from ...protocol.errors import ConfigError, FilterError, SluiceError
from ..config import Configuration, ServerConfig
from .cluster import in_session, try_zookeeper
from .common import NO, add_command, add_conf, out
from .findings import Findings, examine_password

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...instance.source import Examination
    from ...store.cursor import StoredClient

RECENT = timedelta(days=1)
"""How long a call that somebody else made as the client of an output is an error."""


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    check = add_command(
        commands,
        "check",
        check_command,
        "verify configuration and sources without starting",
        "Read the configuration and connect to the source of each destination. Report everything that would not\n"
        "work, with the SQL that fixes it. The check includes the filters of clients, the number of connections\n"
        "that the source allows, the brokers of outputs, and the cluster of a pump. A client that has lost its\n"
        "position in the binlog is only a note if other clients can be served. The command starts nothing and\n"
        "changes nothing. The exit status is 1 when a check fails; notes do not count.",
        "sluice check --conf conf",
        "sluice check example other",
    )
    check.add_argument("destinations", nargs="*", metavar="DESTINATION", help="destinations to check (default: all)")
    add_conf(check)


def check_command(options: Any) -> int:
    """Verify configuration and sources."""
    from ..capacity import find_shortages
    from ..config.warnings import find_warnings, of_outputs
    from ..outputs.registry import doubts, examine
    from ..outputs.target import Asked
    from .saved import as_read, require_zookeeper

    configuration = Configuration(options.conf, os.environ)
    server = configuration.server
    findings = Findings(out)
    wrong = of_outputs(configuration).unknown
    for warning in find_warnings(configuration):
        (findings.wrong if warning in wrong else findings.note)("configuration", warning)
    _report_fronts(configuration, findings)
    _report_unlimited(configuration, findings)
    if silence := try_zookeeper(server):
        findings.wrong("ZooKeeper", silence)
    names = options.destinations or configuration.destinations()
    if not names and not configuration.has_pump:
        findings.wrong(configuration.main_file, "canal.destinations is empty: nothing to serve")
    configs = []
    for name in names:
        try:
            config = configuration.instance(name)
            if implied := configuration.implied(name):
                findings.note(name, implied)
            require_zookeeper(config, silence)
            config = as_read(server, config)
            configs.append(config)
            with _examined(server, config, findings) as (source, summary, tables):
                findings.good(name, summary)
                for output in configuration.outputs(name):
                    examine(output, findings, Asked(source, tables))
                    for doubt in doubts(output, tables, source.tables):
                        findings.note(output, doubt)
        except SluiceError as error:
            findings.wrong(name, error)
    for address, text in find_shortages(configs):
        findings.wrong(f"source {address}", text)
    return 0 if findings.healthy else NO


def _report_fronts(configuration: Configuration, findings: Findings) -> None:
    """Say which fronts may not be served as configured, and what is unsafe of them; ask the cluster of a pump."""
    from .. import fronts
    from ..grpc.config import PumpConfig
    from .pump import examine_pump

    for front in fronts.served(configuration.fronts):
        try:
            fronts.require_safe([front])
        except ConfigError as error:
            findings.wrong(front.title, error)
        else:
            if isinstance(front, PumpConfig):
                examine_pump(front, findings)
        for doubt in fronts.doubts([front]):
            findings.note(front.title, doubt)


def _report_unlimited(configuration: Configuration, findings: Findings) -> None:
    """Name the tokens and users that reach the clients of all others, as those made before they had clients do."""
    from ..credentials import Credentials
    from ..http.config import HttpConfig

    credentials = Credentials(configuration.addresses.front(HttpConfig).credentials)
    what = "reaches every client of its destinations, but those of outputs"
    for identity, token in credentials.tokens.items():
        if token.is_unlimited and token.name not in credentials.users:
            advice = f"sluice token limit {identity}, with --clients IDS for clients that are there already"
            findings.note(f"token {identity} ({token.name})", f"{what}: {advice}")
    for name, user in credentials.users.items():
        if user.is_unlimited:
            findings.note(f"user {name}", f"{what}: sluice user set {name} limits it, with --clients IDS as for tokens")


def report_call(destination: str, client: "StoredClient", findings: Findings) -> None:
    """Say that somebody else has called the client of an output; after a day that is no error any more."""
    time, _, call = client.refused.partition(" ")
    is_recent = True
    with contextlib.suppress(ValueError, TypeError):  # it was written by hand
        is_recent = datetime.now(UTC) - datetime.fromisoformat(time) < RECENT  # noqa: TID251  of another process
    (findings.wrong if is_recent else findings.note)(
        f"{destination}, client {client.client_id}",
        f"is that of the output {client.output}, and somebody else called it: {call} was refused at {time}. Stop"
        " that consumer, or give it another client id",
    )


def _find_loss(server: ServerConfig, config: InstanceConfig) -> str:
    """Return what ZooKeeper has lost of a destination, as far as this server knows. Raises SluiceError."""
    from ..ha.backup import read_all
    from ..ha.restore import find_loss

    backup = read_all(config.file_data_dir, config.destination)
    return in_session(server, lambda session: find_loss(session, backup))


@contextlib.contextmanager
def _examined(
    server: ServerConfig, config: InstanceConfig, findings: Findings
) -> "Iterator[tuple[Examination, str, list[tuple[str, str]]]]":
    """Ask the source of a destination all that a start would ask; give it, connected, that, and the tables that pass.

    A client that has lost its place is noted: the start serves the others. Raises SluiceError.
    """
    from ...instance.sources.registry import examine
    from ...store.cursor import starts
    from .saved import read_saved, try_filter

    table_filter = config.table_filter()
    saved = read_saved(server, config)
    if config.meta.is_shared and not config.route and (loss := _find_loss(server, config)):
        findings.wrong(f"{config.destination}, ZooKeeper", loss)
    for client in saved.clients:
        try:
            try_filter(config, client)
        except FilterError as error:
            findings.wrong(f"{config.destination}, client {client.client_id}", f"would not be served: {error}")
        if client.output and client.refused:
            report_call(config.destination, client, findings)
    adopt = config.main.adopt
    adopted = {it.client_id: None if it.cursor is None else adopt(it.cursor) for it in saved.clients}
    places = starts([*adopted.values()], None if saved.place is None else adopt(saved.place))
    with examine(config) as source:
        source.check(is_replaced=False)
        summary = source.summary()
        advice = source.advice()
        tables = source.tables()
        examine_password(findings, config.destination, source)
        refused = source.refused(places)
        for client in saved.clients:
            if adopted[client.client_id] in refused:
                findings.note(
                    f"{config.destination}, client {client.client_id}",
                    f"would not be served, only the others: {refused[adopted[client.client_id]]}. Unsubscribe it, and"
                    " let it subscribe again",
                )
        passing = [table for table in tables if table_filter.accepts(*table)]
        if tables and not passing:
            advice.append("no table passes the filter, which has to match schema.table; try it by sluice filter try")
        lines = [f"{summary}; {len(passing)} of {len(tables)} tables pass the filter", *advice]
        yield source, "\n      advice: ".join(lines), passing
