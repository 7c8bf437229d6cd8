"""The commands that manage access to the HTTP API: ``sluice token`` and ``sluice user``."""

import argparse
import os
import sys
from datetime import timedelta
from getpass import getpass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from ...protocol.errors import ConfigError
from ..config import Configuration
from .common import add_command, add_conf, add_group, amount, log, out, positive

if TYPE_CHECKING:
    from ..client_ids import IdRanges
    from ..credentials import Credentials, Grant


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    _add_token_commands(commands)
    _add_user_commands(commands)


def _add_token_commands(commands: Any) -> None:
    tokens = add_group(commands, "token", "create, list, limit and revoke tokens of the HTTP API")
    create = add_command(
        tokens,
        "create",
        token_create_command,
        "create a token",
        "Create a token and print it, once. As soon as there is a token, every call of the API needs one. Tokens\n"
        "with the same name own the same clients, so that a new one can replace an old one.",
        "sluice token create --name billing --destination example",
        "sluice token create --name billing --clients 1000-1099,2001",
        "sluice token create --name operations --admin --days 90",
    )
    create.add_argument("--name", required=True, help="name of the owner")
    _granting(create)
    create.add_argument("--days", type=positive, metavar="N", help="expire after N days (default: never)")
    add_conf(create)
    listing = add_command(
        tokens,
        "list",
        token_list_command,
        "list the tokens",
        "List the tokens, without their secrets.",
        "sluice token list",
    )
    add_conf(listing)
    limit = add_command(
        tokens,
        "limit",
        token_limit_command,
        "limit a token to its clients, and what these get",
        "Limit a token to the given clients, or to those that it has created. A token from an earlier version,\n"
        "which names no clients, may use all except those of outputs until you limit it. A client that a token\n"
        "creates is always its own. With --max-rate or --quota alone, only the limits of clients change that it\n"
        "creates from then on; sluice limit changes those of a client that exists.",
        "sluice token limit 0123456789ab",
        "sluice token limit 0123456789ab --clients 1000-1099,2001",
        "sluice token limit 0123456789ab --max-rate 1048576",
    )
    limit.add_argument("id", metavar="ID", help="id of the token, as sluice token list shows it")
    _choosing_clients(limit)
    add_conf(limit)
    revoke = add_command(
        tokens,
        "revoke",
        token_revoke_command,
        "revoke a token",
        "Revoke a token. A running server refuses it within a second.",
        "sluice token revoke 0123456789ab",
    )
    revoke.add_argument("id", metavar="ID", help="id of the token, as sluice token list shows it")
    add_conf(revoke)


def _add_user_commands(commands: Any) -> None:
    users = add_group(commands, "user", "manage the users that get tokens for a password")
    put = add_command(
        users,
        "set",
        user_set_command,
        "add a user, or change a password",
        "Ask for a password, or read it from standard input if that is not a terminal. POST /v1/tokens exchanges it\n"
        "for a token that is valid for 12 hours and has the rights given here. No other call takes a password.",
        "sluice user set ops --admin",
        "sluice user set billing --destination example    # < password.txt for one that is in a file",
    )
    put.add_argument("name", metavar="NAME")
    _granting(put)
    add_conf(put)
    remove = add_command(
        users,
        "remove",
        user_remove_command,
        "remove a user",
        "Remove a user. Tokens that the password bought stay valid until they expire or are revoked.",
        "sluice user remove ops",
    )
    remove.add_argument("name", metavar="NAME")
    add_conf(remove)
    registered = add_command(users, "list", user_list_command, "list the users", "List the users.", "sluice user list")
    add_conf(registered)


def _granting(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--destination",
        action="append",
        metavar="NAME",
        help="may use this destination (may be repeated; default: all)",
    )
    command.add_argument("--admin", action="store_true", help="may use every client, and start and stop destinations")
    _choosing_clients(command)


def _choosing_clients(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--clients", type=client_ids, metavar="IDS", help="may use these clients (default: those that it creates)"
    )
    command.add_argument("--max-rate", type=amount, metavar="BYTES", help="bytes a second for a client that it creates")
    command.add_argument("--quota", type=amount, metavar="BYTES", help="bytes a day for a client that it creates")


def client_ids(text: str) -> "IdRanges":
    """Read a list of client ids of the command line."""
    from ..client_ids import parse_ranges

    try:
        return parse_ranges(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def token_create_command(options: Any) -> int:
    """Make a token."""
    configuration, lifetime = _configuration(options), timedelta(days=options.days) if options.days else None
    credentials = _credentials(configuration)
    issued = credentials.issue(options.name, _granted(options), lifetime)
    print(issued.text)
    print(f"kept nowhere else; stored as a hash in {credentials.path} under id {issued.id}", file=sys.stderr)
    _note_doubts(configuration)
    return 0


def token_list_command(options: Any) -> int:
    """List the tokens."""
    listing = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("id", "name", "scope", "destinations", "clients", "created", "expires"):
        listing.add_column(title, overflow="fold", no_wrap=title == "id")
    for identity, token in _credentials(_configuration(options)).tokens.items():
        expires = f"{token.expires:%Y-%m-%d %H:%M}" if token.expires else "never"
        names = ", ".join(token.destinations)
        created = f"{token.created:%Y-%m-%d %H:%M}"
        clients = _clients(token) + _limits(token)
        listing.add_row(identity, Text(token.name), token.scope, names, clients, created, expires)
    out.print(listing if listing.row_count else "no tokens; make one with sluice token create")
    return 0


def token_limit_command(options: Any) -> int:
    """Limit a token to its clients."""
    from ..credentials import Scope

    credentials = _credentials(_configuration(options))
    known = credentials.tokens.get(options.id)
    if known is not None and known.scope is Scope.ADMIN:
        raise ConfigError(f"token {options.id!r} is an administrator's, who may use every client: revoke it instead")
    limits = {name: it for name, it in (("max_rate", options.max_rate), ("quota", options.quota)) if it is not None}
    if options.clients or not limits:
        limits["clients"] = options.clients or ()
    token = credentials.limit(options.id, limits)
    if token is None:
        raise ConfigError(f"there is no token {options.id!r}; sluice token list shows the ids")
    out.print(Text(f"{options.id} ({token.name}) may use of the clients: {_clients(token)}{_limits(token)}"))
    return 0


def token_revoke_command(options: Any) -> int:
    """Revoke a token."""
    if not _credentials(_configuration(options)).revoke(options.id):
        raise ConfigError(f"there is no token {options.id!r}; sluice token list shows the ids")
    out.print(f"revoked {options.id}")
    return 0


def user_set_command(options: Any) -> int:
    """Add a user, or give one another password."""
    configuration = _configuration(options)
    password = getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("the password is empty; type one, or send it to the standard input")
    if sys.stdin.isatty() and getpass("Again: ") != password:
        raise ConfigError("the two passwords differ; try again")
    _credentials(configuration).set_password(options.name, password, _granted(options))
    out.print(Text(f"{options.name} may get tokens for this password: POST /v1/tokens"))
    _note_doubts(configuration)
    return 0


def user_remove_command(options: Any) -> int:
    """Remove a user."""
    if not _credentials(_configuration(options)).remove_user(options.name):
        raise ConfigError(f"there is no user {options.name!r}; sluice user list shows them")
    out.print(Text(f"removed {options.name}"))
    return 0


def user_list_command(options: Any) -> int:
    """List the users."""
    listing = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "scope", "destinations", "clients"):
        listing.add_column(title, overflow="fold")
    for name, user in _credentials(_configuration(options)).users.items():
        listing.add_row(Text(name), user.scope, ", ".join(user.destinations), _clients(user) + _limits(user))
    out.print(listing if listing.row_count else "no users; add one with sluice user set")
    return 0


def _granted(options: Any) -> "Grant":
    from ..credentials import Grant, Scope

    destinations = tuple(options.destination or ("*",))
    if not options.admin:
        limits = {"max_rate": options.max_rate, "quota": options.quota}
        return Grant(destinations=destinations, clients=options.clients or (), **limits)
    if options.clients:
        raise ConfigError("an administrator may use every client: give --clients or --admin, not both")
    if options.max_rate is not None or options.quota is not None:
        raise ConfigError("an administrator sets limits, and has none: give --max-rate and --quota without --admin")
    return Grant(scope=Scope.ADMIN, destinations=destinations)


def _clients(grant: "Grant") -> str:
    from ..client_ids import show_ranges
    from ..credentials import Scope

    if grant.scope is Scope.ADMIN:
        return "all"
    if grant.clients is None:
        return "all but an output's"
    return show_ranges(grant.clients) or "its own"


def _limits(grant: "Grant") -> str:
    """Say how much the clients get that a holder creates; empty if the destination says that."""
    rate = [] if grant.max_rate is None else [f"{grant.max_rate or 'any number of'} bytes/s"]
    quota = [] if grant.quota is None else [f"{grant.quota or 'any number of'} bytes a day"]
    return f", each at most {' and '.join(rate + quota)}" if rate or quota else ""


def _configuration(options: Any) -> Configuration:
    return Configuration(options.conf, os.environ)


def _credentials(configuration: Configuration) -> "Credentials":
    from ..credentials import Credentials
    from ..http.config import HttpConfig

    return Credentials(configuration.addresses.front(HttpConfig).credentials)


def _note_doubts(configuration: Configuration) -> None:
    from ..fronts import doubts

    for doubt in doubts(configuration.fronts):
        log.print(f"note: {doubt}")
