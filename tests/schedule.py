"""Which tests run side by side when pytest has several processes, and how long each part took.

A file stays in one process, for the sake of what its tests share; so do all that need a Spark, or a broker of Kafka:
more of these would only wait for each other on two cores. They begin first, for they take longest; beside them what
mostly waits. The short files come last, so that all processes end at about the same time.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"
CHAOS = "tests/chaos/"
KAFKA = re.compile(r"tests/\w+/test_(?:kafka\w*|tdsql|tidb_\w+)\.py")
ORDER = (
    SPARK,
    CHAOS,
    "tests/integration/test_kafka.py",
    "tests/integration/",
    "tests/faults/test_spark_kills.py",
    "tests/faults/",
)
"""What begins first; all else follows."""


class Schedule(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Hands one file after the other to a process that has nothing to do, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        shared = next((it for it in (SPARK, CHAOS) if nodeid.startswith(it)), "")
        return shared or ("Kafka" if KAFKA.match(nodeid) else nodeid.partition("::")[0])


def rank(nodeid: str) -> int:
    """Tell when a test begins, 0 for the first."""
    return next((number for number, part in enumerate(ORDER) if nodeid.startswith(part)), len(ORDER))


def seconds(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """Add up what the tests of each folder took."""
    found: dict[str, float] = defaultdict(float)
    for report in reports:
        found[report.nodeid.partition("::")[0].rpartition("/")[0]] += report.duration
    return dict(found)
