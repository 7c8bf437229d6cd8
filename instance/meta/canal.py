"""Cursors in the JSON of Canal's file and of Canal's ZooKeeper nodes, with our keys beside Canal's.

Canal reads what we write, and drops our keys when it writes. A cursor without them resumes at Canal's event.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.errors import BadPositionError, ConfigError
from ...protocol.position import Position
from ...store.allowance import Limits, parse_limit, parse_used
from ...store.cursor import Cursor, StoredClient, split_memory
from ...store.moves import MOST_MOVES, Move
from ...store.snapshot import Snapshots
from .base import InUse

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading JSON of another program raises; `OverflowError` for Infinity."""
LOG_POSITION = "com.alibaba.otter.canal.protocol.position.LogPosition"
"""Canal's class of a cursor; Canal's reader needs it in ZooKeeper."""

Address = tuple[str, int]


def dumps(data: dict[str, Any]) -> bytes:
    """Write JSON as Canal does: without spaces, in UTF-8."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def log_position(cursor: Cursor, address: Address) -> dict[str, Any]:
    """Return Canal's form of a cursor, its keys in Canal's order; ``postion`` is Canal's spelling.

    ``address`` is the source's; Canal resumes exactly there only if it is the one that Canal itself wrote.
    """
    host, port = address
    return {
        "identity": {"slaveId": -1, "sourceAddress": {"address": host, "port": port}},
        "postion": {
            "gtid": cursor.gtid,
            "included": False,
            "journalName": cursor.journal,
            "position": cursor.offset,
            "serverId": cursor.server_id,
            "timestamp": cursor.timestamp or _creation(cursor),
        },
    }


def our_keys(cursor: Cursor) -> dict[str, str]:
    """Return what Canal lacks a key for; empty for a cursor that Canal wrote."""
    if cursor.position is None:
        return {}
    ours = {"delivered": cursor.delivered, "position": cursor.position, "restart": cursor.restart}
    return {key: str(value) for key, value in ours.items() if value is not None}


def owner_keys(client: StoredClient) -> dict[str, str]:
    """Return our keys that say which output owns a client, and which call of somebody else was refused last."""
    refused = {"refused": client.refused} if client.refused else {}
    return {"output": client.output, **refused} if client.output else {}


def read_owner(ours: dict[str, str]) -> tuple[str, str]:
    """Read which output owns a client, and what was refused last to others."""
    return whole(ours.get("output", "")), whole(ours.get("refused", ""))


def read_token(ours: dict[str, str]) -> str:
    """Read the name of the token that has created a client."""
    return whole(ours.get("owner", ""))


def client_keys(client: StoredClient) -> dict[str, str]:
    """Return what Canal lacks a key for, of a client and its cursor."""
    expiry = {} if client.expire_after is None else {"expireAfter": str(client.expire_after)}
    late = {"late": " ".join(client.late)} if client.late else {}
    memory = {"memory": client.memory} if client.memory else {}
    moved = {"moved": client.moved} if client.moved else {}
    snapshots = {"snapshots": client.snapshots} if client.snapshots else {}
    protect = {"protect": "true"} if client.protected else {}
    where = {"where": client.where} if client.where else {}
    owner = {"owner": client.owner} if client.owner else {}
    limits = limit_keys(client)
    more = expiry | late | memory | moved | snapshots | protect | where | owner | owner_keys(client) | limits
    return more | (our_keys(client.cursor) if client.cursor is not None else {})


def read_expiry(ours: dict[str, str]) -> int | None:
    """Read when a client expires. Raises one of `MALFORMED` if it is not a number of seconds."""
    if "expireAfter" not in ours:
        return None
    text = ours["expireAfter"]
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"expireAfter is not a number of seconds: {text!r}")
    return int(text)


def read_late(ours: dict[str, str]) -> tuple[str, ...]:
    """Read which late rows a client is to be given. Raises one of `MALFORMED` if they are not positions."""
    return tuple(str(Position.parse(it)) for it in ours.get("late", "").split())


def read_memory(ours: dict[str, str]) -> tuple[str, str]:
    """Read what a client keeps beside its cursor, and how that was moved by hand since."""
    memory, moved = split_memory(str(ours.get("memory", "")))
    return memory, str(ours.get("moved", moved))


def read_snapshots(ours: dict[str, str]) -> str:
    """Read which snapshots a client is to be given. Raises one of `MALFORMED` if they are something else."""
    return Snapshots(str(ours.get("snapshots", ""))).stored()


def limit_keys(client: StoredClient) -> dict[str, str]:
    """Return our keys that say how much a client may be given, and what it has used of that."""
    limits = {"maxRate": client.limits.max_rate, "quota": client.limits.quota}
    used = {"used": client.used} if client.used else {}
    return {key: str(value) for key, value in limits.items() if value is not None} | used


def read_limits(ours: dict[str, str]) -> tuple[Limits, str]:
    """Read how much a client may be given. Raises one of `MALFORMED` if that is something else."""
    rate, quota = (parse_limit(ours[key]) if key in ours else None for key in ("maxRate", "quota"))
    return Limits(rate, quota), parse_used(ours.get("used", ""))


def read_protection(ours: dict[str, str]) -> bool:
    """Read whether the log keeps what a client needs. Raises one of `MALFORMED` if that is neither true nor false."""
    return {"true": True, "false": False}[ours.get("protect", "false")]


def source_keys(source: InUse | None) -> dict[str, Any]:
    """Return our key that says which of several servers is read; of a group with those of its members."""
    return {} if source is None else {"source": _source_data(source)}


def _source_data(source: InUse) -> dict[str, Any]:
    if source.members:
        return {"members": {name: _source_data(it) for name, it in source.members.items()}}
    since = {"since": source.since} if source.since else {}
    return {"accepted": source.accepted, "address": source.address, **since}


def read_source(ours: dict[str, Any]) -> InUse | None:
    """Read which of several servers is read. Raises one of `MALFORMED` if that is something else."""
    if "source" not in ours:
        return None
    data = ours["source"]
    if "members" in data:
        return InUse(members={str(name): _read_source(it) for name, it in data["members"].items()})
    return _read_source(data)


def _read_source(data: dict[str, Any]) -> InUse:
    since = str(data.get("since", ""))
    found = InUse(str(data["address"]), str(data["accepted"]), since and str(Position.parse(since)))
    if not 0 < found.host_and_port[1] < 1 << 16:
        raise ValueError(f"not the address of a source: {found.address!r}")
    return found


def moves_keys(moves: Mapping[int, Sequence[Move]]) -> dict[str, Any]:
    """Return our key that holds the jumps of clients."""
    return {"moves": {str(it): [move.stored() for move in all_] for it, all_ in moves.items()}} if moves else {}


def read_moves(found: dict[str, Any]) -> dict[int, tuple[Move, ...]]:
    """Read the jumps of clients. Raises one of `MALFORMED` if they are something else."""
    return {int(it): tuple(map(Move.of, moves))[-MOST_MOVES:] for it, moves in found.items()}


def read_where(ours: dict[str, str]) -> str:
    """Read the condition on rows of a client."""
    return whole(ours.get("where", ""))


def whole(text: Any) -> str:
    """Return a text of JSON with each lone surrogate, which could be neither written again nor shown, as an escape."""
    return str(text).encode(errors="backslashreplace").decode()


def read_cursor(data: dict[str, Any], ours: dict[str, str]) -> Cursor:
    """Read Canal's form of a cursor, and our keys. Raises one of `MALFORMED` if it is not a cursor."""
    from ...protocol.cut import parse_place  # noqa: PLC0415  as in `_gtids`

    place = data["postion"]
    offset = int(place["position"])
    if not 0 <= offset < 1 << 63:
        raise ValueError(f"not an offset in a file: {offset}")
    return Cursor(
        journal=str(place["journalName"]),
        offset=offset,
        timestamp=int(place.get("timestamp") or 0),
        server_id=int(place.get("serverId") or 0),
        gtid=_gtids(place.get("gtid") or ""),
        position=parse_place(ours["position"]) if "position" in ours else None,
        delivered=parse_place(ours["delivered"]) if "delivered" in ours else None,
        restart=parse_place(ours["restart"]) if "restart" in ours else None,
    )


def place_data(cursor: Cursor, address: Address) -> bytes:
    """Return what Canal's ``parse`` holds: where a destination without cursors of clients begins."""
    ours = our_keys(cursor)
    return dumps(log_position(cursor, address) | ({"sluice": ours} if ours else {}))


def read_place(data: bytes, name: str) -> Cursor | None:
    """Read what ``parse`` holds; None if it is empty, or a place without a file. Raises ConfigError."""
    try:
        found = json.loads(data) if data else {}
        return read_cursor(found, found.get("sluice", {})) if (found.get("postion") or {}).get("journalName") else None
    except MALFORMED as error:
        raise ConfigError(
            f"{name} is not a place in a binlog ({type(error).__name__}: {error}): correct it, or remove it to begin"
            " where the configuration says"
        ) from error


def read_address(data: dict[str, Any]) -> Address | None:
    """Return the source's address in Canal's form of a cursor."""
    address = (data.get("identity") or {}).get("sourceAddress") or {}
    return (str(address["address"]), int(address["port"])) if {"address", "port"} <= address.keys() else None


def _creation(cursor: Cursor) -> int:
    """A time in ms, never late, for the cursor of a client that has confirmed nothing: Canal takes 0 for no cursor."""
    return cursor.position.earliest_ms if cursor.position is not None else 0


def _gtids(text: str) -> str:
    """The text, if it is a GTID set. What Canal writes for MariaDB may not be one; it is not needed to resume."""
    from ...protocol.cut import parse_executed  # noqa: PLC0415  is compiled in part; configuration loads this module

    try:
        parse_executed(text)
    except BadPositionError:
        return ""
    return text
