"""The commands ``sluice pump …``: the pumps of a TiDB cluster are shown, and taken where an operator wants them."""

import argparse
import contextlib
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...protocol.errors import ConfigError, SluiceError
from ...protocol.tidb.tags import LOGICAL_BITS
from .common import NO, Line, add_command, add_conf, add_group, out, positive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...login.nodes import Node, Nodes, State
    from ..grpc.config import PumpConfig
    from .findings import Findings

LOOK = 0.5
"""Seconds between two looks at a pump that is awaited."""
SILENT = 7.0
"""Seconds without a new status after which a pump does not run: one that runs writes it every two."""


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    pump = add_group(commands, "pump", "show and move the pumps of a TiDB cluster")
    _add(
        pump,
        list_command,
        "list",
        "list the pumps of the cluster",
        "List the pumps of the cluster of sluice.pump.pd, also those of other servers and of TiDB itself, with their\n"
        "states, and the commit_ts and time up to which drainers get all their transactions.",
    )
    pause = _add(
        pump,
        pause_command,
        "pause",
        "have a pump take no transactions",
        "Have a pump take no transactions any more, until sluice pump resume. TiDB uses the other pumps. What has\n"
        "begun ends, and drainers continue to read. The pump stays paused over a restart.",
        "pump-1",
    )
    resume = _add(
        pump,
        resume_command,
        "resume",
        "have a pump take transactions again",
        "Have a pump take transactions again that was paused or closed. Every drainer that is online notices it\n"
        "first.",
        "pump-1",
    )
    close = _add(
        pump,
        close_command,
        "close",
        "have a pump leave the cluster",
        "Have a pump take no transactions any more, and leave the cluster when all drainers have read what it has.\n"
        "Then its server can be stopped, and the keys sluice.pump.* can be removed.",
        "pump-1",
    )
    for parser in (pause, resume, close):
        parser.add_argument(
            "--timeout", type=positive, default=60, metavar="SECONDS", help="how long to wait for it (default: 60)"
        )
    offline = _add(
        pump,
        offline_command,
        "offline",
        "take a pump that will not return out of the cluster",
        "Take a pump whose server is lost out of the cluster, so that TiDB and drainers do not wait for it. The\n"
        "command refuses a pump that runs. If drainers have not read all that it had, --discard gives that up.",
        "pump-1",
        "pump-1 --discard",
    )
    offline.add_argument("--discard", action="store_true", help="give up what drainers have not read")


def _add(
    commands: Any, run: Any, name: str, summary: str, description: str, *arguments: str
) -> argparse.ArgumentParser:
    examples = [f"sluice pump {name} {it} --conf conf".replace("  ", " ") for it in arguments or ("",)]
    parser = add_command(commands, name, run, summary, description, *examples)
    if arguments:
        parser.add_argument("node", metavar="NODE", help="name of the pump, as sluice pump list shows it")
    add_conf(parser)
    return parser


def list_command(options: Any) -> int:
    """List the pumps of a cluster."""
    with _nodes(options) as nodes:
        found = [(it, nodes.wanted(it.node_id)) for it in sorted(nodes.pumps(), key=lambda it: it.node_id)]
    for node, wanted in found:
        to_be = f"to be {wanted}" if wanted not in (None, node.state) else ""
        given = f"all to commit_ts {node.max_commit_ts} ({_time_of(node.max_commit_ts)})" if node.max_commit_ts else ""
        labels = ", ".join(f"{name}={value}" for name, value in node.labels.items())
        facts = ", ".join(filter(None, (node.state, to_be, f"at {node.host}", given, labels)))
        out.print(Text(node.node_id, style="bold") + Text(f"  {facts}"))
    return 0


def pause_command(options: Any) -> int:
    """Have a pump take no transactions."""
    from ...login.nodes import State

    return _move(options, State.PAUSED)


def resume_command(options: Any) -> int:
    """Have a pump take transactions again."""
    from ...login.nodes import State

    return _move(options, State.ONLINE)


def close_command(options: Any) -> int:
    """Have a pump leave the cluster."""
    from ...login.nodes import State

    return _move(options, State.OFFLINE)


def offline_command(options: Any) -> int:
    """Take a pump that will not return out of the cluster."""
    from dataclasses import replace

    from ...login.nodes import State

    with _nodes(options) as nodes:
        node, revision = nodes.find(options.node)
        with Line(f"looking whether {node.node_id} runs, for {SILENT:.0f} s"):
            time.sleep(SILENT)
        if nodes.find(options.node)[1] != revision:
            raise ConfigError(f"the pump {node.node_id} runs, at {node.host}: sluice pump close {node.node_id}")
        if not (options.discard or nodes.have_read(node.max_commit_ts)):
            raise ConfigError(
                f"not all drainers have read what the pump {node.node_id} had, to commit_ts {node.max_commit_ts} at"
                " least: start it, or give that up with --discard"
            )
        if nodes.wanted(node.node_id) is not None:
            nodes.want(node.node_id, State.OFFLINE)
        nodes.write(replace(node, state=State.OFFLINE), revision)
    out.print(Text(f"{node.node_id} is offline"))
    return 0


def _move(options: Any, state: "State") -> int:
    """Have a pump go into a state, and wait until it is there."""
    with _nodes(options) as nodes:
        node, _ = nodes.find(options.node)
        if nodes.wanted(node.node_id) is None:
            raise ConfigError(f"{node.node_id} is no pump of Sluice: use the binlogctl of TiDB for it")
        nodes.want(node.node_id, state)
        deadline = time.monotonic() + options.timeout
        with Line(f"waiting until {node.node_id} is {state}") as line:
            while node.state != state and time.monotonic() < deadline:
                time.sleep(LOOK)
                node, _ = nodes.find(node.node_id)
                line.say(lambda: f"{node.node_id} is {node.state}")  # noqa: B023  it is said at once
    if node.state == state:
        out.print(Text(f"{node.node_id} is {state}"))
        return 0
    out.print(Text(f"{node.node_id} is {node.state} after {options.timeout} s: {_cause(node)}"))
    out.print(Text(f"It will be {state} when it can; nothing has to be repeated."))
    return NO


def _cause(node: "Node") -> str:
    """Say what a pump may be waiting for."""
    from ...login.nodes import State

    causes = {
        State.PAUSING: "transactions under way have to end first",
        State.CLOSING: "transactions under way have to end, and all drainers to read them",
    }
    return causes.get(node.state, "its server does not run, or sluice status there says why")


def examine_pump(config: "PumpConfig", findings: "Findings") -> None:
    """Report what keeps a pump from serving its cluster, and what stops TiDB or drainers one day."""
    from ...instance.pump.cluster import Cluster
    from ...login.nodes import State
    from ..fronts import module_of

    lonely = "a TiDB ends when its only pump restarts for longer than 15 s: run a second one, in a server of its own"
    if not config.pd:
        findings.note(config.title, f"it is not registered (sluice.pump.pd), and TiDB has one socket only; {lonely}")
    else:
        try:
            with connected(config) as nodes:
                pumps = nodes.pumps()
        except (SluiceError, OSError) as error:
            findings.wrong(config.title, error)
        else:
            others = [it.node_id for it in pumps if it.node_id != config.name and it.state != State.OFFLINE]
            findings.good(config.title, f"{config.name}; other pumps of the cluster: {', '.join(others) or 'none'}")
            if not others:
                findings.note(config.title, lonely)
        if not config.tidb_sql:
            findings.note(config.title, "drainers wait while TiDB writes nothing to this pump: set sluice.pump.tidbSql")
    for database in module_of(config, "checks").databases_of(config):
        with contextlib.closing(Cluster([database], [])) as cluster:
            try:
                findings.good(f"{config.title}, TiDB {database}", f"it is {_time_of(cluster.now())}")
            except SluiceError as error:
                findings.wrong(config.title, error)


@contextlib.contextmanager
def _nodes(options: Any) -> "Iterator[Nodes]":
    """Give the nodes of the cluster that a conf folder names. Raises ConfigError."""
    from ..config import Configuration
    from ..grpc.config import PumpConfig

    configuration = Configuration(options.conf, os.environ)
    config = configuration.addresses.front(PumpConfig)
    if not config.pd:
        raise ConfigError(f"{configuration.main_file}: sluice.pump.pd is empty: it says where the cluster's PD is")
    with connected(config) as nodes:
        yield nodes


@contextlib.contextmanager
def connected(config: "PumpConfig") -> "Iterator[Nodes]":
    """Give the nodes of the cluster of a pump. Raises OSError when its certificates cannot be used."""
    from ...login.etcd import Etcd, tls_of
    from ...login.nodes import Nodes

    etcd = Etcd(config.pd, tls_of(config.tls_ca, config.tls_cert, config.tls_key))
    try:
        yield Nodes(etcd)
    finally:
        etcd.close()


def _time_of(ts: int) -> str:
    """Return the time of a timestamp of the cluster."""
    return f"{datetime.fromtimestamp((ts >> LOGICAL_BITS) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
