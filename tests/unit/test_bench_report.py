"""The plots of a report show ratios where workloads differ by more than a bar can show."""

from typing import Any

import pytest

from bench.report import bars


def case(name: str, ours: int, anchor: int | None) -> dict[str, Any]:
    return {
        "case": name,
        "unit": "rows/s",
        "ours": ours,
        "spread": [ours, ours],
        "anchor": anchor,
        "anchor_name": "Canal" if anchor else None,
        "goal": None,
    }


def widths(axes: Any) -> list[float]:
    return [bar.get_width() for bar in axes.patches]


def test_ratios_are_drawn_from_zero_on_a_linear_axis() -> None:
    _, ratios = bars([case("bulk", 1_600_000, 200_000), case("text", 96_000, 8_000)]).axes
    assert widths(ratios) == pytest.approx([8, 12])
    assert ratios.get_xscale() == "linear"
    assert ratios.get_xlim()[0] == 0


def test_figures_stay_on_a_linear_axis_when_they_differ_a_hundredfold() -> None:
    figures, _ = bars([case("bulk", 1_600_000, 200_000), case("text", 16_000, 8_000)]).axes
    assert figures.get_xscale() == "linear"
    assert figures.get_xlim()[0] == 0


def test_a_case_without_anything_beside_it_has_a_figure_but_not_a_ratio() -> None:
    figures, ratios = bars([case("bulk", 10, 5), case("mixed", 7, None)]).axes
    assert widths(figures) == [10, 7, 5, 0]
    assert widths(ratios) == [2]


def test_one_slow_run_does_not_shrink_the_bars() -> None:
    (figures,) = bars([case("bulk", 10, None) | {"spread": [9, 500]}]).axes
    assert figures.get_xlim() == (0, 11)


def test_there_is_one_panel_when_nothing_is_compared() -> None:
    assert len(bars([case("bulk", 10, None)]).axes) == 1
