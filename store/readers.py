"""The clients that have readers of their own, or wait for one: their places are before the ring."""

from .clients import Clients
from .cursor import Cursor
from .patience import Turns
from .states import Behind, CatchingUp, Meeting
from .track import Track


class Readers:
    """Which clients of a destination, or of a view, are to be served from readers of their own."""

    def __init__(self, clients: Clients) -> None:
        """Nobody has a reader."""
        self._clients = clients

    @property
    def behind(self) -> dict[int, Cursor]:
        """The clients whose cursors are before the ring, and that wait for a reader from there."""
        states = {client_id: self._clients.subscribers[client_id].state for client_id in self._clients.elsewhere}
        return {client_id: state.resume for client_id, state in states.items() if isinstance(state, Behind)}

    @property
    def catching_up(self) -> set[int]:
        """The clients that have readers of their own."""
        clients = self._clients
        return {it for it in clients.elsewhere if clients.has_reader(clients.subscribers[it])}

    def is_awaited(self, client_id: int) -> bool:
        """Return whether a client is to be served from a reader, and has not been given anything by one."""
        subscriber = self._clients.find(client_id)
        return self._clients.is_behind(subscriber) and not subscriber.has_moved

    @property
    def is_wanted(self) -> bool:
        """Whether a client that is not served from the ring has made a call since `take_turns`."""
        return bool(self._clients.heard)

    def take_turns(self, turns: Turns, now: float) -> None:
        """Tell ``turns`` which clients want or use a reader, and take readers away whose turn has ended.

        A client that makes no calls does not want one.
        """
        for client_id in self._clients.heard:
            subscriber = self._clients.subscribers.get(client_id)
            if subscriber is None:
                continue
            if isinstance(subscriber.state, Behind) or turns.has(("client", self._clients.key(client_id))):
                turns.ask(("client", self._clients.key(client_id)), now)
        self._clients.heard.clear()
        catching_up = {self._clients.key(it): self._clients.subscribers[it] for it in self.catching_up}
        reading = {key: it for key, it in catching_up.items() if turns.has(("client", key))}
        for key, subscriber in reading.items():
            turns.set_busy(("client", key), busy=bool(subscriber.marks))
            if subscriber.has_moved:
                turns.move(("client", key), now)
        for kind, key in turns.finished(now):
            if kind == "client" and key in reading:
                reading[key].suspend(self._clients.track)
        for key, subscriber in reading.items():
            state = subscriber.state
            if isinstance(state, CatchingUp | Meeting):
                state.paused = turns.is_over(("client", key), now)

    def start(self, client_id: int, track: Track) -> None:
        """Serve a client from the ring of a reader, which reads from the client's cursor on, until it joins."""
        track.starts = self._clients.track.starts
        self._clients.find(client_id).start(track)

    def has_more(self, client_id: int) -> bool:
        """Whether a client has not confirmed all whole transactions that its reader has read, or needs it no more."""
        state = self._clients.find(client_id).state
        return isinstance(state, Meeting) or (isinstance(state, CatchingUp) and state.has_more)

    def stop(self, client_id: int) -> None:
        """Take the reader of a client away: it goes on at its cursor."""
        self._clients.subscribers[client_id].suspend(self._clients.track)

    def leave(self) -> None:
        """Take all readers away: their clients go on at their cursors."""
        for client_id in self.catching_up:
            self._clients.subscribers[client_id].suspend(self._clients.track)
