"""The results in bench/results/ as tables and plots in docs/performance.md and docs/plots/."""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.measuring import say

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
SECTION = "<!-- {} of bench/results/{}.json -->"
"""What stands around a table in the page; one without it gets its place behind the last."""
LESS = "server_cpu_ratio"
LOGARITHMIC = 20
"""From this ratio of the greatest to the least figure on, an axis is logarithmic."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results (%(default)s)")
    parser.add_argument("--page", type=Path, default=PAGE, help="page that is written (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Write the tables and plots of all results there are. Raises SystemExit when there are none."""
    files = sorted(arguments.results.glob("*.json"))
    if not files:
        raise SystemExit(f"no results in {arguments.results}: run `python -m bench deliver --json FILE` first")
    page = arguments.page.read_text()
    cases: list[dict[str, Any]] = []
    for file in files:
        result = json.loads(file.read_text())
        picture = arguments.page.parent / "plots" / f"{file.stem}.svg"
        picture.parent.mkdir(exist_ok=True)
        plot(result, picture)
        lines = [
            conditions(result),
            "",
            *table(result["cases"]),
            *undecoded_table(result["cases"]),
            *stages_table(result["cases"]),
            "",
            f"![{result['bench']}](plots/{picture.name})",
        ]
        page = placed(page, file.stem, "\n".join(lines))
        say(f"report: {file.name}, {len(result['cases'])} cases")
        cases += result["cases"]
    arguments.page.write_text(page)
    return {"versions": {}, "cases": cases}


def placed(page: str, name: str, text: str) -> str:
    """Return the page with the text of a result in its place, or at the end."""
    begin, end = (SECTION.format(word, name) for word in ("begin", "end"))
    block = f"{begin}\n{text}\n{end}"
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return found.sub(lambda _: block, page) if found.search(page) else f"{page.rstrip()}\n\n{block}\n"


def readable(figure: float) -> str:
    """A figure with no more digits than were measured: 1,531,239, or 2.176."""
    return f"{figure:,.4g}" if abs(figure) < 1000 else f"{figure:,.0f}"


def conditions(result: dict[str, Any]) -> str:
    """Say how a result was measured."""
    environment = result["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    hardware = environment["hardware"]
    return (
        f"`python -m bench {result['bench']}` at commit {environment['commit']}; {hardware['cores']} cores of"
        f" {hardware['cpu']}, {hardware['memory_gib']} GiB, load average {hardware['load_before']:.1f} before;"
        f" {versions}."
    )


def table(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Give the lines of a table."""
    latency = all("p99_ms" in case for case in cases)
    names = ["p50", "p99", "max"] if latency else ["ours", "least to most"]
    beside, goals, less = (any(case.get(key) for case in cases) for key in ("anchor", "goal", LESS))
    heads = [
        "case",
        "unit",
        *names,
        *(["goal"] if goals else ()),
        *(["beside", "its figure", "ratio"] if beside else ()),
    ]
    heads += [*(["times less CPU of the server"] if less else ()), "CPU s per million rows", "MB at most"]
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join(['---'] * len(heads))} |"
    for case in cases:
        figures = [case["p50_ms"], case["p99_ms"], case["max_ms"]] if latency else [case["ours"]]
        cells = [case["case"], case["unit"], *map(readable, figures)]
        if not latency:
            cells.append(" to ".join(map(readable, case["spread"])))
        if goals:
            cells.append(goal_of(case))
        if beside:
            cells += [
                case["anchor_name"] or "",
                readable(case["anchor"]) if case["anchor"] else "",
                str(case["ratio"] or ""),
            ]
        if less:
            cells.append(str(case.get(LESS) or ""))
        used, peak = (
            ", ".join(f"{name} {figure}" for name, figure in (case.get(key) or {}).items())
            for key in ("cpu_s_per_mrow", "peak_mb")
        )
        yield f"| {' | '.join([*cells, used, peak])} |"


def undecoded_table(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Give the lines of a table of runs in which no client decodes; none where there are no such runs."""
    undecoded = [case["undecoded"] for case in cases if "undecoded" in case]
    if undecoded:
        yield from (
            "",
            "The same where no client decodes: it has the bytes, and its rows are counted when the clock has stopped.",
            "",
        )
        yield from table(undecoded)


def goal_of(case: dict[str, Any]) -> str:
    """Return what is to be reached, as a table has it; of a latency p50 and p99."""
    goal = case.get("goal")
    if isinstance(goal, dict):
        return " and ".join(f"{name.removesuffix('_ms')} {figure}" for name, figure in goal.items())
    return f"{goal:,}" if goal else ""


def stages_table(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Give the lines of a table of what each stage takes and, in one thread, adds; none where there are no stages."""
    cases = [case for case in cases if "stages" in case]
    if not cases:
        return
    names = list(dict.fromkeys(stage["stage"] for case in cases for stage in case["stages"]))
    yield ""
    yield "CPU seconds per million rows up to a stage, without the database and the sender; and what the stage adds."
    yield ""
    yield f"| case | {' | '.join(names)} |"
    yield f"| {' | '.join(['---'] * (len(names) + 1))} |"
    for case in cases:
        stages = {stage["stage"]: stage for stage in case["stages"]}
        cells = []
        for name in names:
            stage = stages.get(name, {"cpu_s_per_mrow": {}})
            used = {key: value for key, value in stage["cpu_s_per_mrow"].items() if key not in {"source", "database"}}
            added = f"; {stage['cpu_s_added']:+.3f}" if "cpu_s_added" in stage else ""
            cells.append(f"{sum(used.values()):.3f}{added}" if used else "")
        yield f"| {case['case']} | {' | '.join(cells)} |"


def plot(result: dict[str, Any], file: Path) -> None:
    """Draw the cases beside what they are compared with; for what scales, the line of the ideal."""
    mpl.rcParams["svg.hashsalt"] = "sluice"  # the same results give the same file
    cases = [case for case in result["cases"] if case["unit"] == result["cases"][0]["unit"]]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    if result["bench"] == "scale":
        for group in dict.fromkeys(case["case"].rpartition("-")[0] for case in cases):
            members = [case for case in cases if case["case"].rpartition("-")[0] == group]
            counts = [int(case["case"].rpartition("-")[2]) for case in members]
            (line,) = axes.loglog(counts, [case["ours"] for case in members], "o-", label=group)
            ideal = [max(members[0]["ours"], members[-1]["ours"])] * len(counts)
            axes.loglog(counts, ideal, "--", color=line.get_color(), label=f"{group}, ideal")
        axes.set_xlabel("subscribers, destinations, units of a batch")
    else:
        draw_bars(axes, cases)
    axes.set_ylabel(", ".join(dict.fromkeys(case["unit"] for case in cases)))
    axes.legend()
    figure.savefig(file, metadata={"Date": None})


def draw_bars(axes: Any, cases: Sequence[dict[str, Any]]) -> None:
    """Draw bars with the least and the most of the runs, and those of what they are compared with."""
    places = range(len(cases))
    ours = [case["ours"] for case in cases]
    errors = [
        [case["ours"] - case["spread"][0] for case in cases],
        [case["spread"][1] - case["ours"] for case in cases],
    ]
    axes.bar([place - 0.2 for place in places], ours, 0.4, yerr=errors, capsize=3, label="Sluice")
    anchors = [case["anchor"] or 0 for case in cases]
    if any(anchors):
        names = ", ".join(dict.fromkeys(case["anchor_name"] for case in cases if case["anchor_name"]))
        axes.bar([place + 0.2 for place in places], anchors, 0.4, label=names)
    goals = {place: goal for place, case in enumerate(cases) if isinstance(goal := case.get("goal"), int)}
    if goals:
        axes.plot([place - 0.2 for place in goals], list(goals.values()), "k_", markersize=16, label="goal")
    figures = [figure for figure in (*ours, *anchors) if figure]
    if figures and max(figures) / min(figures) > LOGARITHMIC:
        axes.set_yscale("log")
    axes.set_xticks(list(places), [case["case"] for case in cases], rotation=30, ha="right")
