"""Random schedules of a merged stream: what must hold holds after each step."""

from collections import Counter

import pytest

from tests.effort import times
from tests.simulation.merge import STEPS, Schedule

WANTED = {"steps": STEPS, "late": 1, "take_overs": 1, "parts": 1, "passed": 0.1, "broken": 0.02}
"""What has to happen in a schedule, on average."""


@pytest.mark.timeout(1800)
def test_what_must_hold_holds_in_random_schedules() -> None:
    count, seen = times(100, 2_000), Counter[str]()
    failures: list[str] = []
    for seed in range(count):
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:  # noqa: BLE001  what the machine raises unexpectedly is a finding as well
            failures.append(f"{type(error).__name__}: {error}, in seed {seed}")
        seen.update({name: getattr(schedule, name) for name in WANTED})
    assert not failures, "\n".join(failures[:5])
    calm = [name for name, least in WANTED.items() if seen[name] < least * count]
    assert not calm, f"the schedules are too calm to show anything: {seen}"


@pytest.mark.parametrize("seed", range(times(3, 20)))
def test_a_seed_replays_exactly(seed: int) -> None:
    slots = []
    for _ in range(2):
        schedule = Schedule(seed)
        schedule.run()
        slots.append(schedule.server.slots)
    assert slots[0] == slots[1]
    assert slots[0]
