"""Which of several servers a call goes to, with which session, and what is done first on a new one. Without network."""

import json
import math
from collections.abc import Sequence

import pytest

from sluice.client_sdk import Batch, calls
from sluice.client_sdk.attempts import Attempts
from sluice.client_sdk.calls import Limits, Reply
from sluice.client_sdk.endpoint import CONNECT, GRACE, Endpoint, Interrupted
from sluice.protocol.errors import BadParameterError, ConnectionLostError, FencedError, StaleSessionError

A, B, C = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"
REFUSED = Interrupted(ConnectionLostError("refused"), may_be_done=False)
LOST = Interrupted(ConnectionLostError("cut"), may_be_done=True)
GET = calls.get_without_ack(0, Limits(), "text")


def endpoint(url: str | Sequence[str] = (A, B), token: str | None = None) -> Endpoint:
    return Endpoint(url, "example", 1001, token, insecure=False)


def reply(status: int, **fields: object) -> Reply:
    body = json.dumps(fields).encode()
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
    with pytest.raises(ConnectionLostError, match=f"{A}: no route; {B}: refused.*Check that one runs"):
        attempts.delay(REFUSED)


def test_the_last_try_is_made_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    attempts = Attempts(endpoint(A), calls.status(), 8, uniform=lambda low, high: high)
    tried: list[float] = []
    while clock[0] < 108.0:
        attempts.begin()
        tried.append(round(clock[0] - 100.0, 1))
        clock[0] += attempts.delay(REFUSED)
    with pytest.raises(ConnectionLostError, match="tried for 8 s"):
        attempts.delay(REFUSED)
    assert [*tried, round(clock[0] - 100.0, 1)] == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 8.0]


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


def test_failures_are_logged_once_for_each_reason_and_the_end_of_them_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sluice.client_sdk")
    attempts = Attempts(endpoint(A), calls.status(), 60)
    for failure in (REFUSED, REFUSED, LOST):
        attempts.begin()
        attempts.delay(failure)
    attempts.succeeded()
    attempts.succeeded()
    said = [(it.levelname, it.getMessage()) for it in caplog.records]
    assert said[:2] == [
        ("WARNING", f"client 1001 of 'example': {A}: refused; trying again for 60 s at most"),
        ("WARNING", f"client 1001 of 'example': {A}: cut; trying again for 60 s at most"),
    ]
    assert [level for level, _ in said[2:]] == ["INFO"]
    assert f"{A} answers again after " in said[2][1]


def test_with_endless_patience_a_call_is_never_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts(endpoint(A), calls.status(), math.inf)
    attempts.begin()
    attempts.delay(REFUSED)
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    attempts.begin()
    assert attempts.delay(REFUSED) > 0
    assert caplog.messages == [f"client 1001 of 'example': {A}: refused; trying again until it succeeds"]


class TestActive:
    def test_the_server_that_is_named_is_asked_though_it_is_not_listed(self) -> None:
        made = endpoint()
        attempts = Attempts(made, calls.status(), 60)
        attempts.begin()
        assert attempts.delay(fenced(made, C + "/")) == 0
        assert attempts.begin() == C
        attempts.delay(REFUSED)
        assert attempts.begin() == B

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

    def test_when_no_server_becomes_active_the_error_says_so(self) -> None:
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
        made.leave(B, None)  # another caller has left it
        assert made.generation == 0
        made.leave(A, None)
        assert made.generation == 1

    def test_only_one_server_is_never_left(self) -> None:
        made = endpoint(A)
        attempts = Attempts(made, GET, 60)
        attempts.begin()
        assert attempts.delay(REFUSED) > 0
        assert (made.generation, attempts.begin(), attempts.before) == (0, A, [])  # and nothing is rolled back

    def test_the_first_get_from_a_server_comes_after_a_rollback(self) -> None:
        made = endpoint()
        attempts = Attempts(made, GET, 60)
        attempts.begin()
        attempts.delay(REFUSED)
        attempts.begin()
        (rollback,) = attempts.before
        made.read(made.server, rollback, reply(200))
        later = Attempts(made, GET, 60)
        later.begin()
        assert later.before == []

    def test_an_ack_goes_by_position_too_where_an_id_may_be_that_of_another_batch(self) -> None:
        made = endpoint()
        ack = calls.ack(self.BATCH, durable=False)
        attempts = Attempts(made, ack, 60)
        attempts.begin()
        assert attempts.call is ack
        attempts.delay(REFUSED)
        attempts.begin()
        assert attempts.call.body == {"batchId": 7, "position": "b"}

    def test_so_does_one_that_a_get_carries(self) -> None:
        made = endpoint()
        get = calls.get_without_ack(1.0, Limits(), "text", self.BATCH, durable=True)
        attempts = Attempts(made, get, 60)
        attempts.begin()
        assert attempts.call.query == {"timeout": 1000, "durable": "true", "ack": 7}
        made.leave(A, None)
        attempts.begin()
        assert attempts.call.query == {"timeout": 1000, "durable": "true", "ack": "b"}

    @pytest.mark.parametrize("failure", [LOST, REFUSED])
    def test_a_get_with_an_ack_is_tried_once_and_its_server_left(self, failure: Interrupted) -> None:
        made = endpoint()
        assert made.is_settled
        attempts = Attempts(made, calls.get_without_ack(0, Limits(), "text", self.BATCH), 60)
        attempts.begin()
        with pytest.raises(Interrupted):
            attempts.delay(failure)
        assert (made.server, made.lost, made.is_settled) == (B, 0, False)

    def test_after_a_get_whose_outcome_is_not_known_the_next_one_comes_after_a_rollback(self) -> None:
        made = endpoint(A)
        made.lose_get()
        attempts = Attempts(made, GET, 60)
        attempts.begin()
        assert (made.lost, [it.rolls_back for it in attempts.before]) == (1, [True])


class TestTold:
    """What is heard from ZooKeeper."""

    def endpoint(self, *servers: str, active: str | None = None, turn: int | None = None) -> Endpoint:
        made = Endpoint((), "example", 1001, None, insecure=False, is_told=True)
        made.hear(servers, active, turn)
        return made

    def test_the_active_server_is_asked_first_and_a_server_that_serves_is_not_left_for_what_may_be_old(self) -> None:
        made = self.endpoint(A, B, C, active=B)
        assert made.server == B
        made.hear([A, B, C], A, None)
        assert (made.server, made.generation) == (B, 0)

    def test_a_server_that_fails_is_left_for_the_one_that_is_active_by_now(self) -> None:
        made = self.endpoint(A, B, C, active=A)
        attempts = Attempts(made, GET, 60)
        attempts.begin()
        made.hear([A, B, C], C, None)
        assert attempts.delay(REFUSED) == 0
        assert attempts.begin() == C
        assert attempts.delay(REFUSED) == 0, "the one that was heard of fails as well: the others are asked"
        assert attempts.begin() == B

    def test_a_server_in_use_answers_soon_or_not_at_all_when_another_has_become_active(self) -> None:
        made = self.endpoint(A, B, active=A)
        assert made.limits(A, 60, 10) == (CONNECT, 70)
        made.hear([A, B], None, None)
        assert (made.server, made.deposed) == (A, None), "no server has it yet"
        made.hear([B], B, None)
        assert (made.server, made.deposed) == (A, A)
        assert made.limits(A, 60, 10) == (GRACE, GRACE)
        assert made.limits(A, 0.1, 10) == (0.1, 0.1)
        assert made.limits(B, 60, 10) == (CONNECT, 70)
        attempts = Attempts(made, GET, 60)
        assert attempts.begin() == A, "it has its chance: what was heard may be old"
        assert attempts.delay(LOST) == 0
        assert (made.deposed, attempts.begin()) == (None, B)

    def test_news_that_are_old_cost_a_server_one_detour(self) -> None:
        made = self.endpoint(A, B, active=A)
        made.leave(A, B)  # as A has said
        made.hear([A, B], None, None)
        made.hear([A, B], A, None)
        attempts = Attempts(made, GET, 60)
        assert (made.deposed, attempts.begin()) == (B, B)
        attempts.delay(LOST)
        assert attempts.begin() == A
        assert attempts.delay(fenced(made, B)) > 0, "both were asked"
        assert (attempts.begin(), made.deposed) == (B, None)
        made.hear([A, B], A, 1)
        assert made.deposed is None, "that is not news"

    def test_a_server_that_becomes_active_again_has_its_time(self) -> None:
        made = self.endpoint(A, B, active=A)
        made.hear([A, B], B, None)
        made.hear([A, B], A, None)
        assert (made.server, made.deposed) == (A, None)

    def test_servers_that_all_fail_are_asked_often_as_one_may_take_over_at_any_moment(self) -> None:
        attempts = Attempts(self.endpoint(A, B), GET, 60, lambda _, most: most)
        pauses = []
        for _ in range(20):
            attempts.begin()
            pauses.append(attempts.delay(REFUSED))
        assert max(pauses) == 0.5

    def test_a_turn_begins_with_a_session_and_a_rollback_on_each_server(self) -> None:
        made = self.endpoint(A, B, turn=1)
        attempts = Attempts(made, GET, 60)
        assert attempts.begin() == A
        opening, rollback = attempts.before
        assert opening.opens_session
        made.read(A, opening, reply(200, session="first"))
        made.read(A, rollback, reply(200))
        assert attempts.before == []
        attempts.delay(REFUSED)
        assert attempts.begin() == B
        assert [call.opens_session for call in attempts.before] == [True, False]

    def test_batches_of_a_turn_that_is_over_come_again_and_its_session_stays_refused(self) -> None:
        made = self.endpoint(A, turn=1)
        made.read(A, calls.open_session(), reply(200, session="first"))
        generation = made.generation
        made.hear([A], A, None)
        assert made.generation > generation
        assert made.headers(A, calls.rollback())["Sluice-Session"] == "first", "a late call must not go without"
        made.hear([A], A, 2)
        assert [call.opens_session for call in Attempts(made, GET, 60).before] == [True, False]

    def test_a_token_goes_to_no_server_that_would_let_it_be_read(self) -> None:
        made = Endpoint((), "example", 1001, "secret", insecure=False, is_told=True)
        with pytest.raises(BadParameterError, match="a token over http"):
            made.hear(["http://192.0.2.1:11180"], None, None)
        made.hear(["https://192.0.2.1:11180"], None, None)
        assert made.server == "https://192.0.2.1:11180"
