"""Random schedules of crashes, pauses, lost messages and expired sessions: what must hold holds after each step."""

import pytest

from tests.simulation.run import run_many
from tests.simulation.schedule import STEPS, Schedule


@pytest.mark.timeout(900)
@pytest.mark.parametrize("schedules", [2_500, pytest.param(10_000, marks=pytest.mark.extended)])
def test_what_must_hold_holds_in_random_schedules(schedules: int) -> None:
    result = run_many(0, schedules)
    assert not result.failures, "\n".join(result.failures[:5])
    assert result.steps >= schedules * STEPS
    assert result.take_overs >= 2 * schedules, "the schedules are too calm to show anything"


@pytest.mark.parametrize("seed", range(50))
def test_a_seed_replays_exactly(seed: int) -> None:
    traces = []
    for _ in range(2):
        schedule = Schedule(seed, trace=True)
        schedule.run()
        traces.append(schedule.world.trace)
    assert traces[0] == traces[1]
    assert traces[0]
