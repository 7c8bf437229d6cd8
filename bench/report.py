"""The results in bench/results/ as tables and plots in docs/performance.md and docs/plots/."""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bench.measuring import say

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
SECTION = "<!-- {} of bench/results/{}.json -->"
"""The lines before and after a table in the page; a new table is added at the end."""
LESS = "server_cpu_ratio"


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
    names = ["p50", "p99", "max"] if latency else ["Sluice", "range"]
    beside, goals, less = (any(case.get(key) for case in cases) for key in ("anchor", "goal", LESS))
    heads = [
        "case",
        "unit",
        *names,
        *(["goal"] if goals else ()),
        *(["compared with", "its result", "ratio"] if beside else ()),
    ]
    heads += [*(["server CPU, times less"] if less else ()), "CPU s per million rows", "peak MB"]
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
    """Give the lines of a table of runs in which no client decodes; none without such runs."""
    undecoded = [case["undecoded"] for case in cases if "undecoded" in case]
    if undecoded:
        yield from (
            "",
            "The same without decoding. The client keeps the bytes; its rows are counted after the clock has stopped.",
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
    """Give the lines of a table of what each stage takes and, in one thread, adds; none without stages."""
    cases = [case for case in cases if "stages" in case]
    if not cases:
        return
    names = list(dict.fromkeys(stage["stage"] for case in cases for stage in case["stages"]))
    yield ""
    yield "CPU seconds per million rows up to a stage, without the database and the sender, and what the stage adds."
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
    """Draw the cases, and beside them their ratios to what they are compared with; for what scales, lines."""
    mpl.rcParams["svg.hashsalt"] = "sluice"  # the same results give the same file
    cases = [case for case in result["cases"] if case["unit"] == result["cases"][0]["unit"]]
    figure = scale_lines(cases) if result["bench"] == "scale" else bars(cases)
    figure.savefig(file, metadata={"Date": None})


def scale_lines(cases: Sequence[dict[str, Any]]) -> Figure:
    """Return a line of each group of cases, and beside it the line of the ideal, on axes of powers of ten."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for group in dict.fromkeys(case["case"].rpartition("-")[0] for case in cases):
        scaled = [case for case in cases if case["case"].rpartition("-")[0] == group]
        counts = [int(case["case"].rpartition("-")[2]) for case in scaled]
        (line,) = axes.loglog(counts, [case["ours"] for case in scaled], "o-", label=group)
        ideal = [max(scaled[0]["ours"], scaled[-1]["ours"])] * len(counts)
        axes.loglog(counts, ideal, "--", color=line.get_color(), label=f"{group}, ideal")
    axes.set_xlabel("subscribers, destinations, units of a batch")
    axes.set_ylabel(cases[0]["unit"])
    axes.legend()
    return figure


def bars(cases: Sequence[dict[str, Any]]) -> Figure:
    """Return two panels with linear axes: the figures, with the least and the most of the runs, and their ratios.

    Workloads differ by a factor of twenty, so that of the least only the ratio can be seen. Without anything to compare
    with there is one panel.
    """
    compared = any(case["anchor"] for case in cases)
    figure = Figure(figsize=(10 if compared else 8, 1.4 + 0.45 * len(cases)), layout="constrained")
    panels = figure.subplots(1, 2 if compared else 1, sharey=True, squeeze=False)[0]
    draw_figures(panels[0], cases)
    if compared:
        draw_ratios(panels[1], cases)
    panels[0].set_yticks(range(len(cases)), [f"{case['case']}  {readable(case['ours'])}" for case in cases])
    panels[0].invert_yaxis()  # the first case on top, as in the table
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_figures(axes: Any, cases: Sequence[dict[str, Any]]) -> None:
    """Draw what was measured, what it is compared with, and the goals, in the unit of the cases."""
    half = 0.4 if any(case["anchor"] for case in cases) else 0
    ours = [case["ours"] for case in cases]
    errors = [
        [case["ours"] - case["spread"][0] for case in cases],
        [case["spread"][1] - case["ours"] for case in cases],
    ]
    places = [place - half / 2 for place in range(len(cases))]
    axes.barh(places, ours, 0.4, xerr=errors, capsize=2, color="C0", label="Sluice")
    if half:
        names = ", ".join(dict.fromkeys(case["anchor_name"] for case in cases if case["anchor_name"]))
        axes.barh(
            [place + half for place in places], [case["anchor"] or 0 for case in cases], 0.4, color="C1", label=names
        )
    goals = {
        place: goal for place, case in zip(places, cases, strict=True) if isinstance(goal := case.get("goal"), int)
    }
    if goals:
        axes.plot(list(goals.values()), list(goals), "k|", markersize=12, label="goal")
    axes.set_xlabel(cases[0]["unit"])
    axes.xaxis.set_major_formatter(EngFormatter())  # 500 k, 1 M
    # A single slow run must not make all bars small: its whisker is cut.
    axes.set_xlim(0, 1.1 * max(*ours, *(case["anchor"] or 0 for case in cases), *goals.values()))


def draw_ratios(axes: Any, cases: Sequence[dict[str, Any]]) -> None:
    """Draw how many times what it is compared with each case is, and a line where both are equal."""
    ratios = {place: case["ours"] / case["anchor"] for place, case in enumerate(cases) if case["anchor"]}
    drawn = axes.barh(list(ratios), list(ratios.values()), 0.6, color="C0")
    axes.bar_label(drawn, [f"{ratio:.3g}" for ratio in ratios.values()], padding=3, fontsize=8)
    axes.axvline(1, color="C1")
    goals = {
        place: goal / cases[place]["anchor"] for place in ratios if isinstance(goal := cases[place].get("goal"), int)
    }
    axes.plot(list(goals.values()), list(goals), "k|", markersize=16)
    axes.set_xlabel("ratio")
    axes.margins(x=0.15)  # room for the figures at the ends of the bars
