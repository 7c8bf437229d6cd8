"""Random schedules of crashes, pauses, lost messages and expired sessions: what must hold holds after each step."""

import pytest

from tests.simulation.run import run_many
from tests.simulation.schedule import STEPS, Schedule

SCHEDULES = 10_000


@pytest.mark.timeout(900)
def test_what_must_hold_holds_in_random_schedules() -> None:
    result = run_many(0, SCHEDULES)
    assert not result.failures, "\n".join(result.failures[:5])
    assert result.steps >= SCHEDULES * STEPS
    assert result.take_overs >= 2 * SCHEDULES, "the schedules are too calm to show anything"


@pytest.mark.parametrize("seed", range(50))
def test_a_seed_replays_exactly(seed: int) -> None:
    traces = []
    for _ in range(2):
        schedule = Schedule(seed, trace=True)
        schedule.run()
        traces.append(schedule.world.trace)
    assert traces[0] == traces[1]
    assert traces[0]
