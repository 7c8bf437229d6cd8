"""Single-row commits at a steady pace, by a process of its own: `python -m bench.pace '{...}'`.

Each row has the time in µs at which it was due, whenever it was really sent: a writer that falls behind does not hide
that. Prints when the commits were done, after that time.
"""

import json
import sys
import time
from collections.abc import Iterable

import pymysql
from hdrh.histogram import HdrHistogram

LONGEST = 600_000_000  # µs


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    interval = task["of"] / task["rate"]
    taken: list[float] = []
    with pymysql.connect(**task["account"], autocommit=True) as connection, connection.cursor() as cursor:
        begin = task["begin"] + task["number"] / task["rate"]
        for i in range(round(task["seconds"] / interval)):
            due = begin + i * interval
            time.sleep(max(0.0, due - time.time()))
            cursor.execute(f"INSERT INTO {task['table']} (due) VALUES ({round(due * 1e6)})")
            taken.append(time.time() - due)
    json.dump(in_ms(taken[round(task["warm_up"] / interval) :]), sys.stdout)


def in_ms(latencies: Iterable[float]) -> dict[str, float]:
    """Sum up latencies in seconds: p50, p99 and the greatest, in ms."""
    histogram = HdrHistogram(1, LONGEST, 3)
    for latency in latencies:
        histogram.record_value(max(1, round(latency * 1e6)))
    return {
        "p50_ms": histogram.get_value_at_percentile(50) / 1000,
        "p99_ms": histogram.get_value_at_percentile(99) / 1000,
        "max_ms": histogram.get_max_value() / 1000,
    }


if __name__ == "__main__":
    main()
