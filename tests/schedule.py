"""Which tests run side by side when pytest has several processes, and how long each part took.

A file stays in one process, for the sake of what its tests share. All that shares a Spark is one such file: several
Sparks would only wait for each other on two cores. It begins first, for it takes longest; the tests that kill Sparks of
their own come when it is about to end, and the short files last, so that all processes end at about the same time.
Where there are three processes or more, the last one takes nothing but the tests that mostly wait.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SPARK = "tests/spark/"
WAITS = "tests/chaos/"
"""What mostly waits, and costs the others little."""
ORDER = (SPARK, "tests/integration/", "tests/faults/test_spark_kills.py", "tests/faults/", WAITS)
"""What begins first; all else follows."""


class Schedule(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Hands one file after the other to a process that has nothing to do, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return next((part for part in (SPARK, WAITS) if nodeid.startswith(part)), nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the next file to a process, or, if it is the last of several, what mostly waits."""
        last = f"gw{self.numnodes - 1}"
        if self.numnodes > 2 and last in [it.gateway.id for it in self.nodes]:
            scope = next((it for it in self.workqueue if (it == WAITS) == (node.gateway.id == last)), None)
            if scope is None:  # what is left is for others
                node.shutdown()
                return
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def rank(nodeid: str) -> int:
    """Tell when a test begins, 0 for the first."""
    return next((number for number, part in enumerate(ORDER) if nodeid.startswith(part)), len(ORDER))


def seconds(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """Add up what the tests of each folder took."""
    found: dict[str, float] = defaultdict(float)
    for report in reports:
        found[report.nodeid.partition("::")[0].rpartition("/")[0]] += report.duration
    return dict(found)
