"""A minute of random faults on real servers. `make chaos SEED=… MINUTES=…` runs other ones, and longer."""

from pathlib import Path

import pytest

from tests.chaos.plan import make_plan
from tests.chaos.run import Run
from tests.servers import CI

MINUTE = [pytest.mark.extended, pytest.mark.timeout(600)]
LONG = [pytest.mark.soak, pytest.mark.timeout(1800)]
PARTS = [(seed, 180.0, kind) for kind in CI for seed in range(100, 110)]
"""Half an hour for each kind of source, in parts: what has passed is not run again."""


@pytest.mark.parametrize(
    ("seed", "seconds", "kind"),
    [
        pytest.param(7, 60.0, "mariadb118", marks=MINUTE),
        pytest.param(10, 60.0, "mysql97", marks=MINUTE),
        *(pytest.param(*part, marks=LONG) for part in PARTS),
    ],
)
def test_promises_are_kept_under_random_faults(seed: int, seconds: float, kind: str, tmp_path: Path) -> None:
    plan = make_plan(seed, seconds, kind)
    said = [str(plan)]
    verdict = Run(plan, tmp_path, said.append).carry_out()
    again = f"again: make chaos SEED={seed} MINUTES={seconds / 60:g} SERVER={kind}"
    assert not verdict.violations, "\n".join([*verdict.violations[:20], *said, f"journals in {tmp_path}", again])
    assert verdict.taken_over >= 6, "too calm to show anything"
    assert verdict.refused, "no late ack was tried"
