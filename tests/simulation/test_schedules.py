"""Random schedules of crashes, pauses, lost messages and expired sessions: what must hold holds after each step."""

import pytest

from tests.effort import times
from tests.simulation.run import run_many
from tests.simulation.schedule import PAIRED, STEPS, Schedule


@pytest.mark.timeout(900)
def test_what_must_hold_holds_in_random_schedules() -> None:
    schedules = times(120, 2_000)
    result = run_many("servers", 0, schedules)
    assert not result.failures, "\n".join(result.failures[:5])
    assert result.counted["steps"] >= schedules * STEPS
    assert result.counted["take-overs"] >= 2 * schedules, "the schedules are too calm to show anything"
    assert result.counted["switches"] >= schedules / (4 * PAIRED), "the source is switched too rarely"


@pytest.mark.parametrize("seed", range(times(10, 50)))
def test_a_seed_replays_exactly(seed: int) -> None:
    traces = []
    for _ in range(2):
        schedule = Schedule(seed, trace=True)
        schedule.run()
        traces.append(schedule.world.trace)
    assert traces[0] == traces[1]
    assert traces[0]
