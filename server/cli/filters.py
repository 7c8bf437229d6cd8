"""``sluice filter``: try filters on the tables that a source has now."""

import os
from typing import Any

from pydantic import SecretStr, ValidationError
from rich.table import Table
from rich.text import Text

from ...instance.config import InstanceConfig
from ...instance.sink.filters import TableFilter
from ...instance.sources.mysql.config import MysqlConfig, parse_address  # of --mysql
from ...login.ssl_mode import tls_options
from ...protocol.errors import ConfigError
from ..config import Configuration
from .common import NO, add_command, add_conf, add_group, out


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    filters = add_group(commands, "filter", "try filters")
    attempt = add_command(
        filters,
        "try",
        filter_command,
        "show which tables of the source a filter matches, and why",
        "Match a filter against the tables that the source has now. A filter is a list of regular expressions,\n"
        "separated by commas. Each must match the whole of schema.table; case does not matter. Double a backslash\n"
        "in a properties file, but not here.",
        r"sluice filter try 'shop\..*' --conf conf",
        r"sluice filter try 'shop\.(orders|items),crm\..*' --mysql 'canal@db:3306?sslMode=VERIFY_CA&sslCa=ca.pem'",
    )
    attempt.add_argument("regex", metavar="REGEX")
    attempt.add_argument("--all", action="store_true", help="also show the tables that do not match")
    source = attempt.add_mutually_exclusive_group()
    add_conf(source)
    source.add_argument(
        "--mysql",
        metavar="USER[:PASSWORD]@HOST[:PORT]",
        help="the source; the default password is $SLUICE_INSTANCE_DB_PASSWORD; sslMode, sslCa, sslCert, sslKey and"
        " serverPublicKey may follow a ?",
    )
    attempt.add_argument("--destination", metavar="NAME", help="the destination, if --conf has several")


def filter_command(options: Any) -> int:
    """Match a filter with live tables."""
    from ...instance.sources.registry import examine

    config = _source_of(options)
    table_filter = TableFilter(options.regex, config.filter_black_regex)
    with examine(config) as source:
        verdicts = {name: table_filter.explain(*name) for name in source.tables()}
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
        from .saved import as_read

        return as_read(configuration.server, configuration.instance(options.destination or names[0]))
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
        return MysqlConfig(destination="try", master_address=parsed, db_username=user, db_password=secret, **tls)
    except ValidationError as error:
        text = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        raise ConfigError(f"--mysql: {text}") from None
    except ValueError as error:
        raise ConfigError(f"--mysql: {error}") from None
