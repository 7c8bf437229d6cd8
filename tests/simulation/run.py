"""Many schedules, on all processors."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.simulation.schedule import Schedule

PIECE = 500


@dataclass
class Result:
    """What some schedules came to."""

    schedules: int = 0
    steps: int = 0
    take_overs: int = 0
    switches: int = 0
    """Of the source."""
    failures: list[str] = field(default_factory=list)


def run_some(first: int, count: int) -> Result:
    """Run schedules one after the other."""
    result = Result()
    for seed in range(first, first + count):
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:  # noqa: BLE001  what a machine raises unexpectedly is a finding as well
            result.failures.append(
                f"seed {seed} at {schedule.world.now:.3f} s: {type(error).__name__}: {error}\n"
                f"    see it by: make simulate SEED={seed}"
            )
        result.schedules += 1
        result.steps += schedule.world.steps
        result.take_overs += schedule.ensemble.nodes.epoch
        result.switches += schedule.checks.switches
    return result


def run_many(first: int, count: int, report: Callable[[str], object] = lambda _: None) -> Result:
    """Run schedules on all processors; ``report`` is told of each failure, and after every 10,000 how far it is."""
    total = Result()
    # Forked processes would share what the caller's threads hold.
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        starts = range(first, first + count, PIECE)
        counts = [min(PIECE, first + count - start) for start in starts]
        for result in pool.map(run_some, starts, counts):
            total.schedules += result.schedules
            total.steps += result.steps
            total.take_overs += result.take_overs
            total.switches += result.switches
            total.failures += result.failures
            for failure in result.failures:
                report(failure)
            if total.schedules % (20 * PIECE) == 0:
                report(f"{total.schedules:,} of {count:,} schedules, {len(total.failures)} failed")
    return total
