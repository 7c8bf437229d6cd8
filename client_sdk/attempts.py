"""The tries of a call: what to send when there was no reply, to which server, after how long, and when to give up."""

import logging
import math
import random
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..protocol.errors import ConnectionLostError, SluiceError
from .calls import Call, open_session
from .endpoint import Endpoint, Interrupted

T = TypeVar("T")

logger = logging.getLogger(__name__)

FIRST_DELAY = 0.1  # seconds between the first two tries


class Attempts(Generic[T]):
    """The tries of one call: what to send next, to which server, and after how long."""

    def __init__(
        self,
        endpoint: Endpoint,
        call: Call[T],
        patience: float,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``patience`` is for how many seconds a call that fails is tried; ``uniform`` gives chance to the pauses."""
        self.call = call
        self._endpoint = endpoint
        self._server = endpoint.server
        self._patience = patience
        self._uniform = uniform
        self._give_up: float | None = None
        self._delay = FIRST_DELAY
        self._failures: dict[str, str] = {}  # by server, since the last pause
        self._last_failures: dict[str, str] = {}  # by server
        self._said: str | None = None  # the last failure that the log names
        self._failing_since = 0.0

    def begin(self) -> str:
        """Begin a try: with which server. Raises StaleSessionError if the loop that makes the call is over."""
        endpoint = self._endpoint
        endpoint.check_loop(self.call.loop)
        self._server = endpoint.server
        if endpoint.has_moved and self.call.instead is not None:
            self.call = self.call.instead
        return self._server

    @property
    def before(self) -> list[Call[Any]]:
        """What has to be done before the call."""
        endpoint, rollback = self._endpoint, self.call.before
        calls: list[Call[Any]] = [open_session()] if endpoint.needs_session and self.call.ordered else []
        return [*calls, rollback] if rollback is not None and endpoint.has_marks else calls

    def delay(self, failure: Interrupted) -> float:
        """Seconds to wait before the next try; raises the reason of the failure when there is to be none.

        When the call carries an ack it raises the failure itself, for then two calls are to be made of it.
        """
        now = time.monotonic()
        if self._give_up is None:
            self._give_up = now + self._patience
        endpoint = self._endpoint
        self._failures[self._server] = self._last_failures[self._server] = str(failure.reason)
        others = (failure.active, endpoint.active, *endpoint.after(self._server))
        endpoint.leave(self._server, next((it for it in others if it and it not in self._failures), failure.active))
        if self.call.carries_ack:
            raise failure
        if failure.may_be_done:
            self.lose()
            if self.call.instead is not None:
                self.call = self.call.instead
            elif not self.call.repeatable:
                raise failure.reason
        delay, left, were_all_asked = 0.0, self._give_up - now, endpoint.server in self._failures
        if were_all_asked:  # chance keeps clients from marching in step; the last pause ends when the time does
            delay = min(self._delay * self._uniform(0.5, 1.0), left)
        if failure.is_final or left < 0 or (were_all_asked and left == 0):
            raise self._reason(failure)
        self._say(failure, now)
        if delay:
            self._delay = min(2 * self._delay, endpoint.longest_delay)
            self._failures.clear()
        return delay

    def lose(self) -> None:
        """Hear that the reply is lost, or of no use any more: it may hold a batch, which the next get has to give."""
        if self.call.before is not None:
            self._endpoint.lose_get()

    def _say(self, failure: Interrupted, now: float) -> None:
        """Log a failure unless it is the same again: a server that stays away is one line, not one for each try."""
        if self._said is None:
            self._failing_since = now
        if self._said != str(failure.reason):
            self._said = str(failure.reason)
            limit = "until it succeeds" if math.isinf(self._patience) else f"for {self._patience:g} s at most"
            logger.warning("%s: %s: %s; trying again %s", self._endpoint.name, self._server, failure.reason, limit)

    def _reason(self, failure: Interrupted) -> SluiceError:
        """Return the error of a call that is given up; it names all servers that were asked."""
        lost = isinstance(failure.reason, ConnectionLostError)
        if failure.is_final or (len(self._last_failures) == 1 and not lost):
            return failure.reason
        asked = "; ".join(f"{server}: {text}" for server, text in self._last_failures.items())
        error = ConnectionLostError(
            f"no server answers {self._endpoint.name}, tried for {self._patience:g} s: {asked}. Check that one"
            " runs and has the destination (`sluice status`), and that this host reaches it; then try again"
        )
        error.__cause__ = failure.reason
        return error

    def succeeded(self) -> None:
        """Start over: what fails from now on has nothing to do with earlier failures.

        Raises StaleSessionError if the loop that has made the call is over: the next get of the newer one begins with
        what this one was given.
        """
        if self._endpoint.is_over(self.call.loop):
            self._endpoint.lose_get()
            self._endpoint.check_loop(self.call.loop)
        if self._said is not None:
            took = time.monotonic() - self._failing_since
            logger.info("%s: %s answers again after %.1f s", self._endpoint.name, self._endpoint.server, took)
            self._said = None
        self._give_up = None
        self._delay = FIRST_DELAY
        self._failures.clear()
        self._last_failures.clear()
