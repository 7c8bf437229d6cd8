"""Name what changed between two result files beyond the noise: `python -m bench.compare OLD NEW`.

A case has changed when its medians differ by more than a tenth, and the runs of the two do not overlap. CPU per row is
compared too, which suffers less from other work on the machine: there a fifth counts. Exits with 1 when something got
worse.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOISE, CPU_NOISE = 0.1, 0.2
LOWER_IS_BETTER = {"ms", "MB", "bytes/row"}


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    arguments = parser.parse_args()
    old, new = (json.loads(file.read_text()) for file in (arguments.old, arguments.new))
    if old["bench"] != new["bench"]:
        raise SystemExit(f"{arguments.old} is of {old['bench']}, {arguments.new} of {new['bench']}")
    if old["environment"]["hardware"]["cpu"] != new["environment"]["hardware"]["cpu"]:
        sys.stdout.write("another machine: only ratios can be compared\n")
    found = list(changes(old["cases"], new["cases"]))
    for worse, text in found:
        sys.stdout.write(f"{'worse ' if worse else 'better'} {text}\n")
    if not found:
        sys.stdout.write("nothing changed beyond the noise\n")
    sys.exit(any(worse for worse, _ in found))


def changes(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[tuple[bool, str]]:
    """Give what got worse, and what got better, of the cases that are in both."""
    before = {case["case"]: case for case in old}
    for case in new:
        was = before.get(case["case"])
        if was is None or not was["ours"] or not case["ours"]:
            continue
        growth = case["ours"] / was["ours"] - 1
        apart = case["spread"][0] > was["spread"][1] or case["spread"][1] < was["spread"][0]
        if apart and abs(growth) > NOISE:
            worse = (growth > 0) == (case["unit"] in LOWER_IS_BETTER)
            yield worse, f"{case['case']}: {was['ours']:,} to {case['ours']:,} {case['unit']} ({growth:+.0%})"
        for process, seconds in case["cpu_s_per_mrow"].items():
            had = was["cpu_s_per_mrow"].get(process)
            if had and abs(seconds / had - 1) > CPU_NOISE:
                text = f"{had} to {seconds} CPU s per million rows ({seconds / had - 1:+.0%})"
                yield seconds > had, f"{case['case']}, {process}: {text}"


if __name__ == "__main__":
    main()
