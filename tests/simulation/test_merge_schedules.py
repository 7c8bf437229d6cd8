"""Random schedules of a merged stream: what must hold holds after each step."""

import pytest

from tests.effort import times
from tests.simulation.merge import STEPS, Schedule
from tests.simulation.run import run_many

WANTED = {
    "steps": STEPS,
    "take-overs": 1,
    "late": 0.5,
    "in parts": 1,
    "passed": 0.05,
    "broken off": 0.02,
    "caught up": 0.05,
    "acked later": 0.05,
}
"""What has to happen in a schedule, on average."""


@pytest.mark.timeout(1800)
def test_what_must_hold_holds_in_random_schedules() -> None:
    count = times(60, 1_000)
    result = run_many("members", 0, count)
    assert not result.failures, "\n".join(result.failures[:5])
    calm = [name for name, least in WANTED.items() if result.counted[name] < least * count]
    assert not calm, f"the schedules are too calm to show anything: {result.counted}"


@pytest.mark.parametrize("seed", range(times(3, 20)))
def test_a_seed_replays_exactly(seed: int) -> None:
    traces = []
    for _ in range(2):
        schedule = Schedule(seed, trace=True)
        schedule.run()
        traces.append(schedule.lines)
    assert traces[0] == traces[1]
    assert traces[0]
