"""The command ``sluice``."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import SecretStr, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sluice.instance.config import InstanceConfig, parse_address
from sluice.instance.sink.filters import TableFilter
from sluice.protocol.errors import (
    ConfigError,
    ConnectionLostError,
    FilterError,
    SluiceError,
    SourceChangedError,
    SourceError,
    TargetError,
    ZooKeeperError,
)
from sluice.protocol.formats import FORMATS, PROTOBUF
from sluice.protocol.mysql.ssl_mode import tls_options
from sluice.server.cli.cluster import add_cluster_commands, in_session
from sluice.server.cli.common import (
    INTERRUPTED,
    NO,
    UNREACHABLE,
    USAGE,
    add_client,
    add_command,
    add_conf,
    add_group,
    add_server,
    positive,
)
from sluice.server.cli.credentials import add_credential_commands
from sluice.server.cli.findings import Findings, examine_password
from sluice.server.cli.migrate import add_migrate_command
from sluice.server.cli.remote import Remote
from sluice.server.cli.spark import add_spark_commands
from sluice.server.cli.status import show, summarize
from sluice.server.config import Configuration, ServerConfig

if TYPE_CHECKING:
    from sluice.instance.parser.connection import Connection

SHELLS = ("bash", "zsh", "tcsh")
EXIT_CODES = """exit status:
  0  all is well
  1  the answer is no: a check failed, rows differ
  2  arguments or configuration are wrong
  3  the source or the server cannot be reached, or refuses
"""

out = Console(highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
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


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _complain(error: Exception, status: int) -> int:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    print(f"sluice: {text}", file=sys.stderr)
    return status


# --- arguments -------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Describe all commands and their arguments."""
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
    top.add_argument("--version", action="version", version=f"sluice {version('sluice')}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

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

    check = add_command(
        commands,
        "check",
        check_command,
        "verify configuration and sources without starting",
        "Read the configuration, connect to the source of each destination, and say all that is wrong, with the SQL\n"
        "that mends it: also when a client's filter cannot be used any more, or when a source allows too few\n"
        "connections for all its destinations. One of several clients that has lost its place in the binlog is noted:\n"
        "the others would be served, and it would be told. Nothing is started and nothing is changed. The exit status\n"
        "is 1 when anything is wrong, notes aside.",
        "sluice check --conf conf",
        "sluice check example other",
    )
    check.add_argument("destinations", nargs="*", metavar="DESTINATION", help="check these; all when none is named")
    add_conf(check)

    tail = add_command(
        commands,
        "tail",
        tail_command,
        "show changes as they come",
        "Subscribe to a running server under a client id of its own, show changes, and unsubscribe at the end.\n"
        "Consumers are not disturbed: each has its own cursor. What no other client has subscribed to is then gone.",
        "sluice tail example",
        r"sluice tail example --filter 'shop\.orders' --from earliest",
        r"sluice tail example --filter 'shop\.orders' --from '2026-11-21 07:30' --csv > orders.csv",
        "sluice tail example --rows | jq 'select(.type == \"DELETE\").before'",
        "sluice tail example --json --limit 10 | jq .data",
    )
    tail.add_argument("destination", metavar="DESTINATION", help="its name, as in canal.destinations")
    tail.add_argument("--filter", default="", metavar="REGEX", help=r"tables to show, such as 'shop\..*'")
    tail.add_argument(
        "--from",
        dest="start",
        type=_start,
        default="latest",
        metavar="START",
        help="latest (default), earliest (the oldest change still held), a position, or a time, local unless it says"
        " otherwise: '2026-11-21 07:30', 2026-11-21T07:30Z",
    )
    tail.add_argument("--limit", type=positive, metavar="N", help="stop after N entries")
    tail.add_argument("--full", action="store_true", help="show long values whole, as always when a program reads")
    form = tail.add_mutually_exclusive_group()
    form.add_argument("--transactions", action="store_true", help="also show where transactions begin and end")
    for it in (it.lines for it in FORMATS if it.lines):
        form.add_argument(f"--{it.flag}", dest="lines", action="store_const", const=it, help=it.help)
    add_server(tail)

    clients = add_command(
        commands,
        "clients",
        clients_command,
        "list the clients and when they were last heard of",
        "One that nobody needs any more holds its place in the stream: sluice unsubscribe removes it.",
        "sluice clients",
        "sluice clients example",
    )
    clients.add_argument("destination", nargs="?", metavar="DESTINATION", help="of this one; of all when not given")
    add_server(clients)

    unsubscribe = add_command(
        commands,
        "unsubscribe",
        unsubscribe_command,
        "remove a client and its cursor",
        "What the client had not acknowledged is not delivered again. Subscribing anew begins at another place.",
        "sluice unsubscribe example 1001",
    )
    add_client(unsubscribe)
    add_server(unsubscribe)

    status = add_command(
        commands,
        "status",
        status_command,
        "show destinations and where clients stand",
        "Show the destinations of a running server, their clients, cursors, outstanding batches and lag. The first\n"
        "line sums them up. The exit status is 0 when each destination runs or stands by for another server and each\n"
        "client is served, else 1.",
        "sluice status",
        "sluice status example --json",
    )
    status.add_argument("destination", nargs="?", metavar="DESTINATION", help="only this one")
    status.add_argument("--json", action="store_true", help="as the API says it")
    add_server(status)

    ack = add_command(
        commands,
        "ack",
        ack_command,
        "acknowledge batches of a client",
        "Acknowledge for a client whose consumer cannot: a batch, or everything up to a position. What is\n"
        "acknowledged is never delivered again.",
        "sluice ack example 1001 --batch 3000000007",
        "sluice ack example 1001 --position 1/mysql-bin.000003@1767225600:4096:0",
    )
    add_client(ack)
    what = ack.add_mutually_exclusive_group(required=True)
    what.add_argument("--batch", type=int, metavar="ID", help="the oldest outstanding batch, as sluice status shows it")
    what.add_argument("--position", metavar="POSITION", help="everything before this position")
    add_server(ack)

    rollback = add_command(
        commands,
        "rollback",
        rollback_command,
        "have unacknowledged batches of a client delivered again",
        "Forget the outstanding batches of a client: what is in them is delivered again, in the same order.",
        "sluice rollback example 1001",
    )
    add_client(rollback)
    rollback.add_argument("--batch", type=int, metavar="ID", help="only this batch, the oldest outstanding one")
    add_server(rollback)

    filters = add_group(commands, "filter", "try filters")
    attempt = add_command(
        filters,
        "try",
        filter_command,
        "show which live tables a filter matches, and why",
        "Match a filter with the tables that the source has now. Regular expressions, separated by commas, match\n"
        "the whole of schema.table in any case of letters. In a properties file backslashes are doubled; here not.",
        r"sluice filter try 'shop\..*' --conf conf",
        r"sluice filter try 'shop\.(orders|items),crm\..*' --mysql 'canal@db:3306?sslMode=VERIFY_CA&sslCa=ca.pem'",
    )
    attempt.add_argument("regex", metavar="REGEX")
    attempt.add_argument("--all", action="store_true", help="show the tables that do not match, too")
    source = attempt.add_mutually_exclusive_group()
    add_conf(source)
    source.add_argument(
        "--mysql",
        metavar="USER[:PASSWORD]@HOST[:PORT]",
        help="the source; without password that of $SLUICE_INSTANCE_DB_PASSWORD is taken; sslMode, sslCa, sslCert,"
        " sslKey and serverPublicKey may follow a ?",
    )
    attempt.add_argument("--destination", metavar="NAME", help="the destination of --conf, when it has several")

    verify = add_command(
        commands,
        "verify",
        verify_command,
        "decode your own binlog twice and compare",
        "Read a range of the source's binlog with Sluice's decoder and with an independent one (pymysqlreplication),\n"
        "and compare all rows, value by value. What the other one cannot read is counted and named.",
        "sluice verify example",
        "sluice verify example --from mysql-bin.000003 --to mysql-bin.000005:1000000",
    )
    verify.add_argument("destination", metavar="DESTINATION", help="its name, as in canal.destinations")
    verify.add_argument(
        "--from",
        dest="start",
        metavar="FILE[:OFFSET]",
        help="beginning of the range; the last binlog file when not given",
    )
    verify.add_argument("--to", dest="stop", metavar="FILE[:OFFSET]", help="its end; the current end when not given")
    add_conf(verify)

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
        "Read the events from the source once more, with the tables as they are now, and print their changes, or why\n"
        "they still cannot be decoded. Nothing is delivered and nothing is stored: apply what is printed yourself.",
        "sluice quarantine retry example",
        "sluice quarantine retry example --position 1/mysql-bin.000003@1767225600:4096:2 --json",
    )
    retry.add_argument("destination", metavar="DESTINATION", help="its name, as in canal.destinations")
    retry.add_argument("--position", metavar="POSITION", help="only this one, as sluice quarantine list shows it")
    retry.add_argument("--json", action="store_true", help="one JSON object (Canal's FlatMessage) an entry")
    add_conf(retry)

    add_credential_commands(commands)
    add_cluster_commands(commands)
    add_migrate_command(commands)
    add_spark_commands(add_group(commands, "spark", "write changes elsewhere with Spark"))

    completion = add_command(
        commands,
        "completion",
        completion_command,
        "print what makes a shell complete commands",
        "Commands, options and files are completed by Tab once the shell has read what this prints.",
        "sluice completion bash > /etc/bash_completion.d/sluice",
        "sluice completion zsh > ~/.zfunc/_sluice    # a folder in $fpath",
    )
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
    return top


def _remote(options: Any) -> Remote:
    return Remote(options.url, token=os.environ.get("SLUICE_TOKEN", ""), ca=options.ca)


# --- commands --------------------------------------------------------------------------------------------------------


def serve_command(options: Any) -> int:
    """Run the server."""
    import logging
    import resource

    import uvloop

    from sluice.server.logging import configure_logging
    from sluice.server.process import run

    given = {"insecure": True} if options.insecure else {}
    configuration = Configuration(options.conf, os.environ, **given)
    configure_logging(configuration.server.log_level, configuration.server.log_format)
    logger = logging.getLogger("sluice.server")
    for warning in configuration.warnings():
        logger.warning("%s", warning)

    def listening(url: str) -> None:
        logger.info("sluice %s serves %s (all calls: %s/docs)", version("sluice"), url, url)

    _now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # connections must not keep cursors from being written
    uvloop.run(run(configuration, listening))
    logger.info("stopped")
    return 0


def check_command(options: Any) -> int:
    """Verify configuration and sources."""
    from sluice.server.capacity import find_shortages
    from sluice.server.http.auth import require_safe_server
    from sluice.server.tcp.serve import bypass
    from sluice.server.tcp.serve import require_safe_binding as require_safe_port

    configuration = Configuration(options.conf, os.environ)
    server = configuration.server
    findings = Findings(out)
    for warning in configuration.warnings():
        findings.note("configuration", warning)
    try:
        require_safe_server(server)
    except ConfigError as error:
        findings.wrong("HTTP API", error)
    try:
        require_safe_port(server)
    except ConfigError as error:
        findings.wrong("Canal's port", error)
    if warning := bypass(server):
        findings.note("Canal's port", warning)
    if server.zk_servers:
        try:
            in_session(server, _nothing)
        except SluiceError as error:
            findings.wrong("ZooKeeper", error)
    names = options.destinations or configuration.destinations()
    if not names:
        findings.wrong(configuration.main_file, "canal.destinations is empty: nothing to serve")
    configs = []
    for name in names:
        try:
            config = configuration.instance(name)
            configs.append(config)
            findings.good(name, _examine(server, config, findings))
        except SluiceError as error:
            findings.wrong(name, error)
    for address, text in find_shortages(configs):
        findings.wrong(f"source {address}", text)
    return 0 if findings.healthy else NO


async def _nothing(_session: object) -> None:
    """Do nothing in a session: it could be opened."""


def _examine(server: ServerConfig, config: InstanceConfig, findings: Findings) -> str:
    """Ask the source of a destination all that a start would ask; raises SluiceError.

    A client that has lost its place is noted: the start serves the others.
    """
    from sluice.instance.parser.connection import Connection
    from sluice.instance.parser.start import StartFinder
    from sluice.server.cli.saved import read_saved, try_filter
    from sluice.store.cursor import starts

    table_filter = config.table_filter()
    saved = read_saved(server, config)
    for client in saved.clients:
        try:
            try_filter(config, client.filter)
        except FilterError as error:
            findings.wrong(f"{config.destination}, client {client.client_id}", f"would not be served: {error}")
    places = starts([client.cursor for client in saved.clients], saved.place)
    with Connection(config) as connection:
        connection.check(config, config.slave_id)
        facts = connection.facts
        file, offset, _gtids = connection.end_of_binlog()
        tables = _live_tables(connection)
        examine_password(findings, config.destination, connection)
        start, refused = StartFinder(connection, config, lambda: Connection(config)).find_first(places)
    if start is None:
        raise next(iter(refused.values()))
    for client in saved.clients:
        if client.cursor in refused:
            findings.note(
                f"{config.destination}, client {client.client_id}",
                f"would not be served, only the others: {refused[client.cursor]}. Unsubscribe it, and let it subscribe"
                " anew",
            )
    passing = sum(table_filter.accepts(schema, table) for schema, table in tables)
    advice = ""
    if facts.row_metadata not in ("", "FULL"):
        advice += (
            "\n      advice: SET GLOBAL binlog_row_metadata = 'FULL'; -- events then name their columns, and no later"
            " ALTER can confuse them"
        )
    if facts.row_image not in ("FULL", "FULL_NODUP"):
        advice += (
            f"\n      advice: SET GLOBAL binlog_row_image = 'FULL'; -- with {facts.row_image} rows lack columns:"
            " consumers must do without"
        )
    if tables and not passing:
        advice += (
            "\n      advice: no table passes the filter, which has to match schema.table; try it by sluice filter try"
        )
    return (
        f"{facts.flavour} {facts.version_text} at {config.master_address}, binlog at {file}:{offset};"
        f" {passing} of {len(tables)} tables pass the filter{advice}"
    )


def _live_tables(connection: "Connection") -> list[tuple[str, str]]:
    from sluice.instance.parser.schema import InformationSchema

    return InformationSchema(lambda: connection).tables()


def filter_command(options: Any) -> int:
    """Match a filter with live tables."""
    from sluice.instance.parser.connection import Connection

    config = _source_of(options)
    table_filter = TableFilter(options.regex, config.filter_black_regex)
    with Connection(config) as connection:
        verdicts = {name: table_filter.explain(*name) for name in _live_tables(connection)}
    listing = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "table", "why"):
        listing.add_column(title)
    for (schema, table), verdict in verdicts.items():
        if verdict.accepted or options.all:
            mark = Text("✓", style="green") if verdict.accepted else Text("✗", style="red")
            listing.add_row(mark, Text(f"{schema}.{table}"), Text(verdict.reason))
    accepted = sum(verdict.accepted for verdict in verdicts.values())
    if listing.row_count:
        out.print(listing)
    hint = "" if options.all or accepted == len(verdicts) else " (--all shows the others, too)"
    out.print(f"{accepted} of {len(verdicts)} tables match{hint}")
    return 0 if accepted else NO


def _source_of(options: Any) -> InstanceConfig:
    if options.mysql is None:
        configuration = Configuration(options.conf, os.environ)
        names = configuration.destinations()
        if options.destination is None and len(names) != 1:
            raise ConfigError(f"name one of the destinations with --destination: {', '.join(names) or 'there is none'}")
        return configuration.instance(options.destination or names[0])
    user, at, place = options.mysql.rpartition("@")
    user, colon, password = user.partition(":")
    address, _, query = place.partition("?")
    try:
        if not at or not user:
            raise ValueError(f"{options.mysql!r} is not a source")  # noqa: TRY301  the same advice as for a bad address
        parsed = parse_address(address)
    except ValueError:
        raise ConfigError("--mysql has to be USER:PASSWORD@HOST:PORT, such as canal:secret@127.0.0.1:3306") from None
    secret = SecretStr(password if colon else os.environ.get("SLUICE_INSTANCE_DB_PASSWORD", ""))
    try:
        tls = tls_options(query)
        return InstanceConfig(destination="try", master_address=parsed, db_username=user, db_password=secret, **tls)
    except ValidationError as error:
        text = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        raise ConfigError(f"--mysql: {text}") from None
    except ValueError as error:
        raise ConfigError(f"--mysql: {error}") from None


def tail_command(options: Any) -> int:
    """Show changes as they come."""
    from sluice.server.cli.tail import LONGEST_VALUE, Tail, described, write_line

    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, _interrupt)  # its terminal is closed: it unsubscribes then, too
    remote = _remote(options)
    if options.lines:
        tail = Tail(remote, options.lines.media_type, options.lines.open(), write_line)
    else:
        longest = LONGEST_VALUE if sys.stdout.isatty() and not options.full else None
        lines = partial(described, transactions=options.transactions, longest=longest)
        tail = Tail(remote, PROTOBUF.media_type, lines, out.print)
    tail.run(options.destination, table_filter=options.filter, start=options.start, limit=options.limit)
    return 0


def _start(text: str) -> str | int:
    """Read where a tail begins: a time becomes ms since 1970, all else is for the server."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return text


def clients_command(options: Any) -> int:
    """List the clients of destinations."""
    remote = _remote(options)
    found = remote.call("GET", "/v1/destinations", options.destination) if options.destination else None
    table = Table("destination", "client", "state", "last call", "behind", "filter", box=None, header_style="bold")
    for destination in [found] if found else remote.call("GET", "/v1/destinations"):
        for client in destination["clients"]:
            table.add_row(
                Text(destination["destination"]),
                str(client["clientId"]),
                client["state"],
                f"{timedelta(seconds=round(client['idle']))} ago",
                f"{client['lag']['seconds']:.1f} s",
                Text(client["filter"]),
            )
    out.print(table if table.row_count else "no client")
    return 0


def unsubscribe_command(options: Any) -> int:
    """Remove a client and its cursor."""
    _remote(options).client_call(options.destination, options.client, "unsubscribe")
    out.print(f"client {options.client} and its cursor are gone")
    return 0


def status_command(options: Any) -> int:
    """Show where destinations and clients stand."""
    remote = _remote(options)
    found = remote.call("GET", "/v1/destinations", options.destination) if options.destination else None
    destinations = [found] if found else remote.call("GET", "/v1/destinations")
    summary = summarize(destinations)
    if options.json:
        print(json.dumps(found or destinations, indent=2))
    else:
        summary.show(out)
        for destination in destinations:
            show(out, destination)
    return NO if summary.wrong else 0


def ack_command(options: Any) -> int:
    """Acknowledge for a client."""
    body = {"batchId": options.batch} if options.batch is not None else {"position": options.position}
    _remote(options).client_call(options.destination, options.client, "ack", {"durable": "true"}, body)
    out.print(Text(f"acknowledged {options.batch or options.position}"))
    return 0


def rollback_command(options: Any) -> int:
    """Have batches of a client delivered again."""
    body = {} if options.batch is None else {"batchId": options.batch}
    _remote(options).client_call(options.destination, options.client, "rollback", {}, body)
    out.print("rolled back")
    return 0


def completion_command(options: Any) -> int:
    """Print what makes a shell complete commands."""
    import shtab

    print(shtab.complete(parser(), options.shell))
    return 0


def verify_command(options: Any) -> int:
    """Decode a range twice and compare."""
    if find_spec("pymysqlreplication") is None:
        raise ConfigError("pymysqlreplication, the other decoder, not found: pip install 'sluice[verify]'")
    from sluice.server.cli.comparison import show, verify

    config = Configuration(options.conf, os.environ).instance(options.destination)
    return 0 if show(verify(config, options.start, options.stop, out), out) else NO


def quarantine_list_command(options: Any) -> int:
    """List the row events in quarantine."""
    from sluice.server.cli.reread import listed

    for item in listed(Configuration(options.conf, os.environ).instance(options.destination)):
        out.print(Text(f"{item.position}  {item.schema}.{item.table}", style="bold"))
        out.print(Text(f"  {item.length} bytes: {item.error}"))
    return 0


def quarantine_retry_command(options: Any) -> int:
    """Decode row events in quarantine again."""
    import logging

    from sluice.protocol.canal.flat import flat_ndjson
    from sluice.protocol.canal.rows import decode_changes
    from sluice.server.cli.reread import listed, reread
    from sluice.server.cli.tail import describe

    config = Configuration(options.conf, os.environ).instance(options.destination)
    items = [item for item in listed(config) if options.position in (None, item.position)]
    if options.position and not items:
        raise ConfigError(f"{options.position} is not in quarantine; sluice quarantine list shows what is")
    logging.getLogger("sluice.instance").setLevel(logging.CRITICAL)  # what it would say is printed, once
    still = 0
    for item in items:
        try:
            found = reread(config, item)
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
