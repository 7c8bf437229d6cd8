"""Who may subscribe, and with what: filters and conditions on rows, and which output or token owns a client."""

from collections.abc import Callable
from dataclasses import dataclass

from ..protocol.errors import FilterError
from .allowance import UNLIMITED, Limits
from .clients import Clients
from .subscriber import Subscriber
from .track import RowFilter, TableFilter, Wanted

MAX_CONDITIONS = 16
"""Different conditions on rows that clients of a destination, and of each view, may have: all that is stored is judged
by each of them."""
CONDITIONS_OF_TOKEN = 4
"""How many of them those may have that a token has created."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What counts for clients that ask for nothing else."""

    passes: TableFilter | None = None
    """The test of the tables that they get; None for all."""
    texts: bool = False
    """Whether they get the texts of statements, without a condition."""
    limits: Limits = UNLIMITED
    """How much they may be given; an output's may be given anything."""
    expire_after: int = 0
    """Seconds without a call after which they are removed; 0 for never."""


class Admission:
    """What the clients of a destination, or of a view, may be.

    Args:
        clients: those that there are.
        compile_filter: makes the test of tables from a subscriber's filter, None for all; raises `FilterError`.
        compile_where: makes what judges rows from a subscriber's condition; raises `FilterError`.
        defaults: what counts for clients that ask for nothing else.
    """

    def __init__(
        self,
        clients: Clients,
        compile_filter: Callable[[str], TableFilter | None],
        compile_where: Callable[[str], RowFilter] | None,
        defaults: Defaults,
    ) -> None:
        self._clients = clients
        self._compile_filter = compile_filter
        self._compile_where = compile_where
        self._defaults = defaults

    # --- filters and conditions --------------------------------------------------------------------------------------

    def compile(self, filter_text: str, where: str) -> Wanted:
        """Return what a client with a filter and a condition wants. Raises FilterError."""
        tables = self._compile_filter(filter_text) if filter_text else self._defaults.passes
        if not where or self._compile_where is None:
            return Wanted(tables, texts=self._defaults.texts and tables is None)
        return Wanted(tables, self._compile_where(where))

    def check_conditions(self, client_id: int, text: str, owner: str) -> None:
        """Raise FilterError if another condition on rows would be one too many, of all clients or of a token's."""
        if not text:
            return
        others = [it for key, it in self._clients.subscribers.items() if key != client_id and it.where]
        conditions = {it.where for it in others}
        if text not in conditions and len(conditions) >= MAX_CONDITIONS:
            whose, most = "clients of this destination or view", MAX_CONDITIONS
        else:
            conditions = {it.where for it in others if it.owner == owner}
            if not owner or text in conditions or len(conditions) < CONDITIONS_OF_TOKEN:
                return
            whose, most = f"the clients that the token {owner!r} has created here", CONDITIONS_OF_TOKEN
        raise FilterError(
            f"{whose} have {most} different conditions on rows, and no more are judged: use one of theirs (sluice"
            " clients shows them), or a filter in the consumer"
        )

    def filters(self, owner: str | None = None) -> dict[str, TableFilter | None]:
        """Return the filters of the clients by their texts, or those of a token; None for one that all tables pass."""
        clients = self._clients.subscribers.values()
        return {it.filter: it.wanted.tables for it in clients if it.filter and owner in (None, it.owner)}

    def count(self, owner: str | None = None) -> int:
        """Return how many clients there are, or of a token."""
        if owner is None:
            return len(self._clients.subscribers)
        return sum(it.owner == owner for it in self._clients.subscribers.values())

    # --- owners ------------------------------------------------------------------------------------------------------

    def admit(self, client_id: int, session: str | None = None) -> None:
        """Raise OwnedError when an output owns a client, and it is not the output that calls."""
        subscriber = self._clients.subscribers.get(client_id)
        if subscriber is not None and (session is None or session.partition(".")[0] != subscriber.session):
            subscriber.require_free()

    def owners(self, client_id: int) -> tuple[str, str] | None:
        """Return the output that owns a client, and the token; empty without. None if it has not subscribed."""
        subscriber = self._clients.subscribers.get(client_id)
        return None if subscriber is None else (subscriber.output, subscriber.owner)

    @property
    def has_output(self) -> bool:
        """Whether an output owns one of the clients."""
        return any(it.output for it in self._clients.subscribers.values())

    def note_refused_call(self, client_id: int, text: str) -> None:
        """Keep with a client which call of somebody else was refused last. Raises NotSubscribedError."""
        self._clients.find(client_id).refused = text
        self._clients.unstored.add(client_id)

    def own(self, known: Subscriber, output: str) -> None:
        """Let a client be that of an output; any other call needs one that is of none. Raises OwnedError."""
        if not output:
            known.require_free()
        elif output != known.output:
            known.own(output)
            self._clients.apply_limits(known)
            self._clients.unstored.add(known.client_id)

    def release(self, client_id: int) -> str:
        """Let a client no longer be that of an output, and return which that was; its cursor stays.

        Raises NotSubscribedError.
        """
        subscriber = self._clients.find(client_id)
        output = subscriber.output
        subscriber.own("")
        self._clients.apply_limits(subscriber)
        self._clients.unstored.add(client_id)
        return output
