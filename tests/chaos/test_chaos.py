"""A minute of random faults on real servers. `make chaos SEED=… MINUTES=…` runs other ones, and longer."""

from pathlib import Path

import pytest

from tests.chaos.plan import make_plan
from tests.chaos.run import Run

SECONDS = 60.0


@pytest.mark.extended
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [7, pytest.param(10, marks=pytest.mark.extended)])
def test_promises_are_kept_under_random_faults(seed: int, tmp_path: Path) -> None:
    plan = make_plan(seed, SECONDS)
    said = [str(plan)]
    verdict = Run(plan, tmp_path, said.append).carry_out()
    assert not verdict.violations, "\n".join(
        [*verdict.violations[:20], *said, f"journals in {tmp_path}", f"again: make chaos SEED={seed} MINUTES=1"]
    )
    assert verdict.taken_over >= 6, "too calm to show anything"
    assert verdict.refused, "no late ack was tried"
