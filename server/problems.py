"""What each error means to a caller: its status in HTTP, a title, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..protocol import errors


@dataclass(frozen=True, slots=True)
class ProblemType:
    """What all problems of one type share."""

    status: int
    title: str
    advice: str


ProblemTypes = Mapping[type[errors.SluiceError], ProblemType]

PROBLEM_TYPES: ProblemTypes = {
    errors.SluiceError: ProblemType(500, "Internal error", "See the server's log; report it if it comes again."),
    errors.BusyError: ProblemType(503, "Busy", "Try again in a moment."),
    errors.BadParameterError: ProblemType(422, "Bad parameter", "Correct the parameter; /docs describes each."),
    errors.BadPositionError: ProblemType(
        422, "Not a position", "Use a place that the detail names, or a position that this server returned."
    ),
    errors.UnauthorizedError: ProblemType(
        401,
        "No valid credentials",
        "Send 'Authorization: Bearer <token>'; POST /v1/tokens exchanges a password for one.",
    ),
    errors.ForbiddenError: ProblemType(
        403, "Not allowed", "Use a token whose scope, destinations and clients cover the call."
    ),
    errors.TooManyAttemptsError: ProblemType(429, "Too many failed logins", "Wait as long as Retry-After says."),
    errors.QuotaExceededError: ProblemType(
        429,
        "Quota used up",
        "Ack what you have, and call again after Retry-After; or let an administrator raise it: sluice limit.",
    ),
    errors.UnknownDestinationError: ProblemType(
        404, "Unknown destination", "GET /v1/destinations lists those configured here."
    ),
    errors.DestinationStoppedError: ProblemType(
        503, "Destination not running", "Start it by POST /v1/destinations/{destination}/start, or try again later."
    ),
    errors.NotSubscribedError: ProblemType(409, "Not subscribed", "POST …/subscribe first."),
    errors.UnknownBatchError: ProblemType(
        409,
        "Unknown batch",
        "It was acked or rolled back before, or belongs to an earlier run: POST …/rollback and read on from there.",
    ),
    errors.AckOutOfOrderError: ProblemType(
        409, "Ack out of order", "Ack the outstanding batches oldest first, or roll back."
    ),
    errors.StaleSessionError: ProblemType(
        409, "Stale session", "Another consumer took this client id over: stop, or open a new session."
    ),
    errors.OwnedError: ProblemType(
        409,
        "Client of an output",
        "Use another client id. To take these changes yourself, take the output out of the configuration first.",
    ),
    errors.LimitError: ProblemType(
        409, "Limit reached", "Unsubscribe clients that are not needed, or raise the limit that the detail names."
    ),
    errors.FilterError: ProblemType(
        409, "Filter cannot match", "Correct the filter or the condition on rows, or widen the filter of the instance."
    ),
    errors.UnknownSnapshotError: ProblemType(404, "Unknown snapshot", "GET …/snapshots lists those of the client."),
    errors.SnapshotRunningError: ProblemType(
        409, "Snapshot running", "Use getWithoutAck and ack until it is done, or cancel it: DELETE …/snapshots/{id}."
    ),
    errors.GapError: ProblemType(
        409,
        "Gap",
        "Copy the changes that the detail names if you need them, then confirm the gap: POST …/gaps/confirm.",
    ),
    errors.SourceChangedError: ProblemType(
        409,
        "Source changed",
        "The position belongs to another source or history: check which server this is. If it is the right"
        " one, take a new snapshot, unsubscribe, and subscribe again.",
    ),
    errors.SwitchRefusedError: ProblemType(
        409, "Switch refused", "No cursor has changed: do what the detail says, then switch again."
    ),
    errors.LostTransactionsError: ProblemType(
        409,
        "Transactions lost",
        "Let the other server get them, or compare them with what consumers have; then switch with 'accept'.",
    ),
    errors.GoneError: ProblemType(
        410,
        "Gone",
        "The range is no longer in the buffer. A registered client is served again from its cursor when its destination"
        " is stopped and started, as long as the source has that binlog. Otherwise unsubscribe, subscribe again from"
        " 'earliest', and take a new snapshot of the changes in between.",
    ),
    errors.PurgedError: ProblemType(
        410,
        "Purged from the source",
        "The source's binlog starts later: take a new snapshot, then move the client to 'oldest', where it resumes"
        " with all that is left.",
    ),
    errors.ReshapedError: ProblemType(
        410,
        "Delivered in another shape",
        "Configure again what the detail says was configured then; or take a new snapshot, unsubscribe, and subscribe"
        " again.",
    ),
    errors.SourceError: ProblemType(
        503, "Source not usable", "Fix the source as the detail says; the server tries again."
    ),
    errors.UnknownTableError: ProblemType(
        404, "Unknown table", "Correct the name, or let the source's account see it."
    ),
    errors.DecodeError: ProblemType(
        500, "Undecodable", "Report it with the file and offset; the destination can skip it."
    ),
    errors.NotConfiguredError: ProblemType(
        409,
        "Not configured for this",
        "Set the key that the detail names, or use another destination.",
    ),
    errors.ConfigError: ProblemType(500, "Bad configuration", "Correct the configuration, then start the destination."),
    errors.ZooKeeperError: ProblemType(
        503, "ZooKeeper not usable", "Fix ZooKeeper or the connection to it as the detail says; the server tries again."
    ),
    errors.NotStoredError: ProblemType(
        507,
        "Not stored",
        "Make room for the cursors. An ack counts, but would not survive the server until it can be stored; the server"
        " tries that again. Repeat a switch of the source.",
    ),
    errors.FencedError: ProblemType(
        421, "Not the active server", "Ask the server, or the process, that has the destination."
    ),
}


def advice(problem: str) -> str:
    """Return what to do about a problem of that type; empty for none."""
    return next((described.advice for error, described in PROBLEM_TYPES.items() if error.type == problem), "")


def problem_type(error: type[errors.SluiceError], known: ProblemTypes = PROBLEM_TYPES) -> ProblemType:
    """Return the type of an error's class, or of its nearest base that has one."""
    return next(known[base] for base in error.__mro__ if base in known)
