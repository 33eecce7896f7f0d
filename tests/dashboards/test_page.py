"""Pages show every panel, with its lines or the reason why there are none."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dashboards.chart import svg
from dashboards.page import WIDTH, page
from dashboards.panels import Answers, Drawn
from dashboards.units import written
from trainmaster.metrics.dashboards import DASHBOARDS, Dashboard, Panel
from trainmaster.metrics.dashboards.model import Unit

LINE = [(float(at), at % 7.0) for at in range(0, 300, 3)]


def answers(dashboard: Dashboard) -> Answers:
    lines = {panel.title: [Drawn(f"<{query.legend}>", LINE) for query in panel.queries] for panel in dashboard.panels}
    return Answers(0, 300, lines, [150.0], [], [])


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_page_has_every_panel_within_its_bounds(dashboard: Dashboard) -> None:
    html, height = page(dashboard, answers(dashboard))
    assert html.count('<div class="panel"') == len(dashboard.panels)
    assert "<{{" not in html, "names of lines are texts"
    for left, top, width, tall in re.findall(r"left:(\d+)px;top:(\d+)px;width:(\d+)px;height:(\d+)px", html):
        assert int(left) + int(width) < WIDTH
        assert int(top) + int(tall) < height


def test_a_panel_without_lines_says_why() -> None:
    dashboard = next(each for each in DASHBOARDS if each.uid == "trainmaster-v1-jobs")
    nothing = replace(answers(dashboard), lines={panel.title: [] for panel in dashboard.panels})
    assert "No data: no job of kubeflow.org/v1 has come so far" in page(dashboard, nothing)[0]


def drawing(panel: Panel, *lines: Drawn) -> str:
    return svg(panel, lines, begin=0, end=300, leaders=[], width=400, height=200)


def outlines(text: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in points.split())]
        for points in re.findall(r'<polyline points="([^"]*)"', text)
    ]


@pytest.fixture(scope="module")
def panel() -> Panel:
    return replace(DASHBOARDS[0].panels[0], steps=(), unit="short", is_stacked=False)


def test_a_line_is_cut_where_there_was_no_value(panel: Panel) -> None:
    gap = Drawn("a", [(0, 1), (3, 1), (30, 1), (33, 1)])
    assert [len(piece) for piece in outlines(drawing(panel, gap))] == [2, 2]


def test_stacked_lines_lie_upon_each_other(panel: Panel) -> None:
    two = Drawn("a", [(0, 1), (3, 1)]), Drawn("b", [(0, 1), (3, 1)])
    upper, lower = outlines(drawing(replace(panel, is_stacked=True), *two))
    assert upper[0][1] < lower[0][1]
    assert drawing(panel, *two).count("<polyline") == 2


@pytest.mark.parametrize(
    ("unit", "highest", "ticks"),
    [
        ("short", 8, ["0", "2.5", "5", "7.5", "10"]),
        ("short", 0, ["0", "1"]),
        ("s", 280, ["0 s", "2 min", "4 min", "6 min"]),
        ("bytes", 3 * 2**20, ["0 B", "1 MiB", "2 MiB", "3 MiB"]),
    ],
)
def test_axes_have_round_values(panel: Panel, unit: Unit, highest: float, ticks: list[str]) -> None:
    line = Drawn("a", [(0, 0), (3, highest)])
    text = svg(replace(panel, unit=unit), [line], begin=0, end=50, leaders=[], width=400, height=200)
    assert [each for each in re.findall(r">([^<>]+)</text>", text) if ":" not in each] == ticks


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.000012, "s", "12 µs"),
        (0.0234, "s", "23.4 ms"),
        (0, "s", "0 s"),
        (90, "s", "1.5 min"),
        (8 * 86400, "s", "8 days"),
        (1_234_567, "short", "1.23M"),
        (100, "short", "100"),
        (0.1234, "percentunit", "12.3%"),
        (123_456_789, "bytes", "118 MiB"),
        (1024, "Bps", "1 KiB/s"),
        (0.5, "ops", "0.5 ops/s"),
        (-2, "short", "-2"),
    ],
)
def test_a_value_has_three_digits_and_its_unit(value: float, unit: Unit, text: str) -> None:
    assert written(value, unit) == text
