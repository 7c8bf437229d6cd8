"""Which of several servers a call goes to, with which session, and what is done first on a new one. Without network."""

import json
from collections.abc import Sequence

import pytest

from sluice.client_sdk import Batch, calls
from sluice.client_sdk.calls import Attempts, Endpoint, Interrupted, Limits, Reply
from sluice.protocol.errors import ConnectionLostError, FencedError, StaleSessionError

A, B, C = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"
REFUSED = Interrupted(ConnectionLostError("refused"), may_be_done=False)
LOST = Interrupted(ConnectionLostError("cut"), may_be_done=True)
GET = calls.get_without_ack(0, Limits(), "text")


def endpoint(url: str | Sequence[str] = (A, B), token: str | None = None) -> Endpoint:
    return Endpoint(url, "example", 1001, token, insecure=False)


def reply(status: int, **members: object) -> Reply:
    body = json.dumps(members).encode()
    return Reply(status, {"content-length": str(len(body))}, body)


def fenced(made: Endpoint, active: str | None) -> Interrupted:
    """What a 421 of the server in use is to `Attempts`."""
    with pytest.raises(Interrupted) as caught:
        made.read(made.server, GET, reply(421, type="fenced", detail="not active", active=active))
    return caught.value


@pytest.mark.parametrize("url", [f"{A}/, {B}", [A, B], [A, B, A]])
def test_servers_are_listed_or_separated_by_commas(url: str | list[str]) -> None:
    made = endpoint(url)
    assert made.url(made.server, calls.open_session()) == f"{A}/v1/destinations/example/clients/1001/session"
    made.leave(A, None)
    assert made.server == B
    made.leave(B, None)
    assert made.server == A


def test_the_next_server_is_asked_at_once_and_all_again_after_a_pause() -> None:
    attempts = Attempts(endpoint([A, B, C]), calls.status(), 60)
    asked, pauses = [], []
    for _ in range(7):
        asked.append(attempts.begin())
        pauses.append(attempts.delay(REFUSED))
    assert asked == [A, B, C, A, B, C, A]
    assert [pause > 0 for pause in pauses] == [False, False, True, False, False, True, False]
    assert pauses[5] > pauses[2] / 2


def test_each_server_is_asked_once_without_patience_and_the_error_speaks_of_all() -> None:
    attempts = Attempts(endpoint(), calls.status(), 0)
    assert attempts.begin() == A
    assert attempts.delay(Interrupted(ConnectionLostError("no route"), may_be_done=False)) == 0
    assert attempts.begin() == B
    with pytest.raises(ConnectionLostError, match="refused") as caught:
        attempts.delay(REFUSED)
    assert caught.value.__notes__ == [f"{A}: no route"]


def test_the_server_in_use_stays_in_use_for_later_calls() -> None:
    made = endpoint()
    attempts = Attempts(made, calls.status(), 60)
    attempts.begin()
    attempts.delay(REFUSED)
    assert Attempts(made, GET, 60).begin() == B


def test_calls_that_fail_together_move_on_once() -> None:
    made = endpoint([A, B, C])
    together = [Attempts(made, calls.status(), 60) for _ in range(3)]
    assert [attempts.begin() for attempts in together] == [A, A, A]
    for attempts in together:
        attempts.delay(REFUSED)
    assert [attempts.begin() for attempts in together] == [B, B, B]


def test_a_call_that_must_not_be_repeated_leaves_the_server_to_the_next_call() -> None:
    made = endpoint()
    attempts = Attempts(made, calls.ack(7, durable=False), 60)
    attempts.begin()
    with pytest.raises(ConnectionLostError):
        attempts.delay(LOST)
    assert made.server == B


class TestActive:
    def test_the_server_that_is_named_is_asked_though_it_is_not_listed(self) -> None:
        made = endpoint()
        attempts = Attempts(made, calls.status(), 60)
        attempts.begin()
        assert attempts.delay(fenced(made, C + "/")) == 0
        assert attempts.begin() == C
        attempts.delay(REFUSED)
        assert attempts.begin() == A

    def test_without_a_name_the_next_is_asked(self) -> None:
        made = endpoint()
        attempts = Attempts(made, calls.status(), 60)
        attempts.begin()
        assert attempts.delay(fenced(made, None)) == 0
        assert attempts.begin() == B

    def test_servers_that_name_each_other_are_not_asked_without_a_pause(self) -> None:
        made = endpoint()
        attempts = Attempts(made, calls.status(), 60)
        attempts.begin()
        assert attempts.delay(fenced(made, B)) == 0
        attempts.begin()
        assert attempts.delay(fenced(made, A)) > 0

    def test_when_nobody_becomes_active_the_error_says_so(self) -> None:
        made = endpoint(A)
        with pytest.raises(FencedError, match="not active"):
            Attempts(made, calls.status(), 0).delay(fenced(made, None))

    @pytest.mark.parametrize("active", ["http://db.example.org", "https://127.0.0.1", "ftp://127.0.0.1", "x"])
    def test_a_server_that_is_less_safe_is_not_asked(self, active: str) -> None:
        made = endpoint(token="t")
        with pytest.raises(FencedError, match="not active"):
            made.read(A, GET, reply(421, type="fenced", detail="not active", active=active))
        assert made.server == A


class TestSession:
    @staticmethod
    def open(made: Endpoint, token: str) -> None:
        made.read(made.server, calls.open_session(), reply(200, session=token))

    @staticmethod
    def session(made: Endpoint) -> str | None:
        return made.headers(made.server, GET).get("Sluice-Session")

    def test_a_session_goes_along_to_another_server(self) -> None:
        made = endpoint()
        assert self.session(made) is None
        self.open(made, "one")
        made.leave(A, None)
        assert self.session(made) == "one"

    def test_a_server_is_shown_the_session_that_it_knows(self) -> None:
        made = endpoint()
        self.open(made, "one")
        made.leave(A, None)
        self.open(made, "two")
        assert self.session(made) == "two"
        made.leave(B, None)
        assert self.session(made) == "one"
        self.open(made, "three")
        assert self.session(made) == "three"
        made.leave(A, None)
        assert self.session(made) == "two"

    def test_gets_that_may_still_arrive_are_counted(self) -> None:
        made = endpoint()
        self.open(made, "one")
        ack = Attempts(made, calls.ack(7, durable=False), 60)
        ack.begin()
        with pytest.raises(ConnectionLostError):
            ack.delay(LOST)
        assert self.session(made) == "one"
        get = Attempts(made, GET, 60)
        for failure, counted in ((LOST, "one.1"), (LOST, "one.2"), (REFUSED, "one.2")):
            get.begin()
            get.delay(failure)
            assert self.session(made) == counted

    def test_a_server_that_knows_another_session_refuses(self) -> None:
        made = endpoint()
        self.open(made, "one")
        made.leave(A, None)
        with pytest.raises(StaleSessionError):
            made.read(B, GET, reply(409, type="stale-session", detail="newer"))
        assert made.server == B


class TestBatches:
    BATCH = Batch(7, "a", "b", b"")

    def test_a_move_is_a_new_generation(self) -> None:
        made = endpoint()
        made.leave(B, None)  # somebody else has left it
        assert made.generation == 0
        made.leave(A, None)
        assert made.generation == 1

    def test_only_one_server_is_never_left(self) -> None:
        made = endpoint(A)
        attempts = Attempts(made, GET, 60)
        attempts.begin()
        assert attempts.delay(REFUSED) > 0
        assert (made.generation, attempts.begin(), attempts.before) == (0, A, None)  # and nothing is rolled back

    def test_the_first_get_from_a_server_comes_after_a_rollback(self) -> None:
        made = endpoint()
        attempts = Attempts(made, GET, 60)
        attempts.begin()
        attempts.delay(REFUSED)
        attempts.begin()
        rollback = attempts.before
        assert rollback is not None
        made.read(made.server, rollback, reply(200))
        later = Attempts(made, GET, 60)
        later.begin()
        assert later.before is None

    def test_an_ack_goes_by_position_where_an_id_may_be_that_of_another_batch(self) -> None:
        made = endpoint()
        ack = calls.ack(self.BATCH, durable=False)
        attempts = Attempts(made, ack, 60)
        attempts.begin()
        assert attempts.call is ack
        attempts.delay(REFUSED)
        attempts.begin()
        assert attempts.call.body == {"position": "b"}
