"""``sluice compare``: the tables of a source beside their copies on the target of an output."""

import os
import time
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from ...instance.zones import offsets_of
from ...protocol.errors import BadParameterError, ConfigError, SourceError
from ...protocol.position import Position
from ..config import Configuration
from ..outputs.mysql.settings import MysqlSettings
from ..wording import counted
from .common import NO, add_command, add_conf, add_destination, add_server, out, positive, remote_of
from .remote import Remote
from .verify import show

if TYPE_CHECKING:
    from ...instance.config import InstanceConfig
    from ..outputs.mysql.comparison import Pair
    from ..outputs.settings import Output

GLANCE: Final = 0.1  # seconds between two looks at how far the output is


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    compare = add_command(
        commands,
        "compare",
        compare_command,
        "compare tables with their copies on the target of an output",
        "Compare the rows of the source with those that an output of type mysql has written. Both sides may change\n"
        "meanwhile: the command reads the source, waits until the output has passed the place of that read, and then\n"
        "reads the target. It reads rows that differ again, and names those that stay different. The server has to\n"
        "run. The command locks nothing and changes nothing. The exit status is 1 when rows differ, or when\n"
        "something could not be compared.",
        "sluice compare shop copy",
        r"sluice compare shop copy shop.orders 'shop\.item_.*'",
    )
    add_destination(compare)
    compare.add_argument("output", metavar="OUTPUT", help="name of the output, as in sluice.outputs")
    compare.add_argument(
        "tables", nargs="*", metavar="TABLE", help="schema.table, or a regular expression in Canal's syntax for several"
    )
    compare.add_argument(
        "--wait",
        type=positive,
        default=60,
        metavar="SECONDS",
        help="how long to wait for an output that does not move on (default: %(default)s)",
    )
    add_conf(compare)
    add_server(compare)


def compare_command(options: Any) -> int:
    """Compare tables with their copies."""
    from rich.progress import Progress

    from ...instance.sources.registry import examine
    from ..outputs.mysql.checks import database_of
    from ..outputs.mysql.comparison import Comparison
    from .saved import as_read

    configuration = Configuration(options.conf, os.environ)
    config = as_read(configuration.server, configuration.instance(options.destination))
    output = _find(configuration, options.destination, options.output)
    place = _OutputPlace(remote_of(options), options.destination, options.output, options.wait)
    place.require_filled()
    with examine(config) as source:
        pairs = _pairs(config, output, source.tables(), options.tables)
        reader = source.table_reader()
    with Progress(console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("comparing")

        def advance(table: str, done: int, expected: int) -> None:
            progress.update(task, completed=done, total=expected, description=f"comparing {table}")

        began = time.monotonic()
        try:
            zone = offsets_of(config.main.time_zone)
            with Comparison(reader, database_of(output), zone, place.reach, advance) as comparison:
                comparison.begin()
                for pair in pairs:
                    comparison.compare(pair)
        finally:
            reader.close()
    report = comparison.report
    report.seconds = time.monotonic() - began
    for table in report.partial:
        out.print(Text("note ", style="yellow") + Text(f"{table}: further rows of its copy were not looked at"))
    amount = f"{counted(report.tables, 'table')}, {counted(report.rows, 'row')}"
    return 0 if show(report, amount, out) and not report.unread else NO


def _find(configuration: Configuration, destination: str, name: str) -> "Output":
    outputs = {it.name: it for it in configuration.outputs(destination)}
    output = outputs.get(name)
    if output is None or not isinstance(output.settings, MysqlSettings):
        known = [it.name for it in outputs.values() if isinstance(it.settings, MysqlSettings)]
        raise ConfigError(
            f"{destination} has no output {name} of type mysql; those that it has: {', '.join(known) or 'none'}"
        )
    return output


def _pairs(
    config: "InstanceConfig", output: "Output", tables: list[tuple[str, str]], wanted: list[str]
) -> "list[Pair]":
    """Return the tables to compare, with their copies. Raises BadParameterError, FilterError."""
    from ...instance.serving.serving import compile_where
    from ...instance.sink.filters import TableFilter
    from ..outputs.mysql.checks import routes_of
    from ..outputs.mysql.comparison import Pair
    from ..outputs.mysql.routes import EVENTS

    settings = output.settings
    assert isinstance(settings, MysqlSettings)
    config_filter, own, asked = config.table_filter(), TableFilter(settings.filter), TableFilter(",".join(wanted))
    conditions = compile_where(settings.where).conditions if settings.where else None
    routes = routes_of(output)
    sources = routes.sources([it for it in tables if config_filter.accepts(*it) and own.accepts(*it)])
    pairs = []
    for target, some in sources.items():
        for schema, table in some:
            if asked.accepts(schema, table):
                where = conditions.text_of(schema, table) if conditions else ""
                is_whole = not where and len(some) == 1 and len(settings.events) == len(EVENTS)
                pairs.append(Pair((schema, table), target, where, routes.columns(schema, table), is_whole=is_whole))
    if not pairs:
        raise BadParameterError("no table at the source is for this output and matches what is asked for", "tables")
    return pairs


class _OutputPlace:
    """How far an output is, as its server says."""

    def __init__(self, remote: Remote, destination: str, name: str, patience: float) -> None:
        self._remote = remote
        self._destination = destination
        self._name = name
        self._patience = patience

    def require_filled(self) -> None:
        """Raise SourceError while the output still fills its tables."""
        _, _, client = self._look()
        path = "/v1/destinations", self._destination, "clients", str(client["clientId"]), "snapshots"
        for snapshot in self._remote.call("GET", *path):
            if snapshot["state"] != "done":
                raise SourceError(
                    f"output {self._name} still fills its tables: sluice snapshot {self._destination}"
                    f" {client['clientId']} --watch {snapshot['id']} shows how far it is. Compare after that"
                )

    def reach(self, place: Position) -> None:
        """Wait until it has passed a place. Raises SourceError."""
        deadline, last = time.monotonic() + self._patience, ""
        while True:
            destination, output, client = self._look()
            is_passed = bool(client["acked"]) and Position.parse(client["acked"]) >= place
            is_read = bool(destination["last"]) and Position.parse(destination["last"]) >= place
            if is_passed or (is_read and not client["lag"]["entries"] and client["state"] == "attached"):
                return
            if client["acked"] != last:
                deadline, last = time.monotonic() + self._patience, client["acked"]
            if time.monotonic() > deadline:
                why = output["error"] or destination["error"] or client["lag"]["explanation"]
                raise SourceError(
                    f"output {self._name} does not move on, it is at {last or 'no place yet'}, and {place} is read:"
                    f" {why}"
                )
            time.sleep(GLANCE)

    def _look(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Ask for its destination, itself, and the client that it is."""
        found = self._remote.call("GET", "/v1/destinations", self._destination)
        for output in found["outputs"]:
            for client in found["clients"]:
                if output["name"] == self._name and client["clientId"] == output["clientId"]:
                    return found, output, client
        raise SourceError(f"output {self._name} does not run at that server: sluice status says why")
