"""Many schedules, on all processors: of several servers, and of the members of a merged stream."""

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tests.simulation import merge, schedule

PIECE = 500
KINDS: Mapping[str, "type[schedule.Schedule | merge.Schedule]"] = {
    "servers": schedule.Schedule,
    "members": merge.Schedule,
}


@dataclass
class Result:
    """What some schedules came to."""

    schedules: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    """How often what happened."""
    failures: list[str] = field(default_factory=list)


def run_some(kind: str, first: int, count: int) -> Result:
    """Run schedules of a kind one after the other."""
    result = Result()
    for seed in range(first, first + count):
        running = KINDS[kind](seed)
        try:
            running.run()
        except Exception as error:  # noqa: BLE001  what a machine raises unexpectedly is a finding as well
            result.failures.append(
                f"seed {seed} at {running.seconds:.3f} s: {type(error).__name__}: {error}\n"
                f"    see it by: make simulate SEED={seed} ARGS='--kind {kind}'"
            )
        result.schedules += 1
        for name, number in running.counted.items():
            result.counted[name] += number
    return result


def run_many(kind: str, first: int, count: int, report: Callable[[str], object] = lambda _: None) -> Result:
    """Run schedules on all processors; ``report`` is told of each failure, and after every 10,000 how far it is."""
    total = Result()
    # Forked processes would share what the caller's threads hold.
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        starts = range(first, first + count, PIECE)
        counts = [min(PIECE, first + count - start) for start in starts]
        for result in pool.map(partial(run_some, kind), starts, counts):
            total.schedules += result.schedules
            total.counted += result.counted
            total.failures += result.failures
            for failure in result.failures:
                report(failure)
            if total.schedules % (20 * PIECE) == 0:
                report(f"{total.schedules:,} of {count:,} schedules, {len(total.failures)} failed")
    return total
