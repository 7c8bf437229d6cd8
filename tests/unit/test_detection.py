"""Whether a source lives: how often in a row it did not answer, and what is done about it."""

import logging
import threading
from collections.abc import Iterator

import pytest

from sluice.instance.config import Probing
from sluice.instance.serving.detection import Detection
from sluice.protocol.errors import SourceError
from tests.waiting import eventually


class Server:
    """Answers, or does not; counts how often it was taken for dead."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = threading.Semaphore(0)
        self.dead = 0

    def probe(self) -> None:
        self.asked.release()
        if self.error is not None:
            raise self.error

    def down(self) -> None:
        self.dead += 1


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def detection(server: Server) -> Iterator[Detection]:
    found = Detection("shop", Probing(0.01, 3, switches=False), server.probe, server.down)
    yield found
    found.stop()


def test_a_server_that_answers_lives(server: Server, detection: Detection) -> None:
    for _ in range(5):
        server.asked.acquire()
    assert (detection.failures, detection.failure, server.dead) == (0, "", 0)


def test_more_failures_in_a_row_than_allowed_are_a_death_which_is_said_once_until_it_answers_again(
    server: Server, detection: Detection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    server.error = SourceError("no route to it")
    eventually(lambda: server.dead >= 3, "it is taken for dead after each further failure")
    assert detection.failures > 3
    assert detection.failure == "no route to it"
    server.error = None
    eventually(lambda: detection.failures == 0, "it lives")
    assert detection.failure == ""
    (dead, alive) = [it.message for it in caplog.records]
    assert "did not answer 4 times in a row: no route to it" in dead
    assert "heartbeatHaEnable" in dead
    assert alive == "the source answers again"


def test_an_error_of_our_own_counts_as_no_answer_and_is_logged(
    server: Server, detection: Detection, caplog: pytest.LogCaptureFixture
) -> None:
    server.error = ZeroDivisionError("ours")
    eventually(lambda: server.dead > 0, "it is taken for dead")
    assert detection.failure == "ZeroDivisionError: ours"
    assert any(it.exc_info for it in caplog.records)


def test_nothing_is_asked_after_the_end(server: Server) -> None:
    detection = Detection("shop", Probing(0.01, 3, switches=True), server.probe, server.down)
    server.asked.acquire()
    detection.stop()
    eventually(lambda: not any(it.name == "detect shop" for it in threading.enumerate()), "the thread ends")
    while server.asked.acquire(blocking=False):
        pass
    assert not server.asked.acquire(timeout=0.05)
