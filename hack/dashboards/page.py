"""A dashboard as a page, laid out as Grafana does it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from dashboards.chart import color_of, sparkline, svg, threshold_color
from dashboards.panels import Answers, Drawn
from dashboards.units import written
from trainmaster.metrics.dashboards import Dashboard, Panel, grafana_dashboard
from trainmaster.metrics.dashboards.model import WHOLE_WIDTH

WIDTH: Final = 1440
_MARGIN, _GAP, _ROW, _HEAD = 14, 8, 30, 58
_TITLE, _LEGEND_LINE, _LEGEND_LINES, _NAME = 26, 16, 5, 38

_STYLE: Final = """
* { box-sizing: border-box; margin: 0 }
body { background: #111217; color: #ccccdc; font: 12px Inter, "Liberation Sans", "DejaVu Sans", sans-serif;
  position: relative }
header { position: absolute; left: 14px; right: 14px; top: 12px; display: flex; gap: 10px; align-items: center }
h1 { font-size: 17px; font-weight: 500; margin-right: auto }
.chip { background: #181b1f; border: 1px solid #2c3235; border-radius: 2px; padding: 5px 9px; color: #9a9ba8 }
.chip b { color: #ccccdc; font-weight: 500 }
.row { position: absolute; font-size: 14px; font-weight: 500; padding-top: 8px }
.row::before { content: "▾ "; color: #9a9ba8 }
.panel { position: absolute; background: #181b1f; border: 1px solid #25282e; border-radius: 2px; overflow: hidden }
.panel h2 { font-size: 13px; font-weight: 500; padding: 6px 9px 0; height: 26px; white-space: nowrap; overflow: hidden }
.stat { position: absolute; inset: 26px 0 0 0 }
.stat svg { position: absolute; left: 0; bottom: 0 }
.figure { position: absolute; inset: 0 0 20px 0; display: flex; align-items: center; justify-content: center; gap: 26px;
  font-size: 32px; font-weight: 500 }
.figure small { display: block; font-size: 12px; color: #ccccdc; font-weight: 400 }
table { position: absolute; bottom: 5px; left: 9px; right: 9px; width: calc(100% - 18px); border-collapse: collapse;
  font-size: 11px; table-layout: fixed }
td, th { height: 16px; padding: 0 0 0 8px; text-align: right; font-weight: 400; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; color: #b6b7c3 }
th { color: #6e9fff } td:first-child, th:first-child { text-align: left; padding: 0 } td.more { color: #7b7c88 }
td i { display: inline-block; width: 12px; height: 3px; margin: 0 6px 3px 0; border-radius: 1px }
col.value { width: 76px }
.none { position: absolute; inset: 26px 0 0 0; display: flex; align-items: center; justify-content: center;
  color: #7b7c88 }
"""


def page(dashboard: Dashboard, answers: Answers) -> tuple[str, int]:
    """Return a page, and how many pixels it is high."""
    panels = {panel.title: panel for panel in dashboard.panels}
    made: list[str] = []
    bottom = 0
    for placed in grafana_dashboard(dashboard)["panels"]:
        left, top, width, height = _box(placed["gridPos"])
        bottom = max(bottom, top + height)
        style = f"left:{left}px;top:{top}px;width:{width}px;height:{height}px"
        if placed["type"] == "row":
            made.append(f'<div class="row" style="{style}">{escape(placed["title"])}</div>')
            continue
        panel = panels[placed["title"]]
        lines = answers.lines[panel.title]
        inner = _stat if panel.kind == "stat" else _diagram
        content = inner(panel, lines, answers, width - 2, height - 2 - _TITLE) if lines else _nothing(panel)
        made.append(f'<div class="panel" style="{style}"><h2>{escape(panel.title)}</h2>{content}</div>')
    variables = grafana_dashboard(dashboard)["templating"]["list"][1:]
    minutes = f"{(answers.end - answers.begin) / 60:.0f} minutes"
    chosen = [("Data source", "Prometheus"), *((each["label"], "All") for each in variables), ("Time", minutes)]
    chips = "".join(f'<span class="chip">{escape(label)} <b>{value}</b></span>' for label, value in chosen)
    head = f"<header><h1>{escape(dashboard.title)}</h1>{chips}</header>"
    bottom += _MARGIN
    whole = f'<body style="width:{WIDTH}px;height:{bottom}px">{head}{"".join(made)}</body>'
    return f'<!DOCTYPE html><html><head><meta charset="utf-8"><style>{_STYLE}</style></head>{whole}</html>', bottom


def _box(position: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return left, top, width and height in pixels."""
    column = (WIDTH - 2 * _MARGIN + _GAP) / WHOLE_WIDTH
    left, right = position["x"] * column, (position["x"] + position["w"]) * column
    top = _HEAD + position["y"] * (_ROW + _GAP)
    return round(_MARGIN + left), top, round(right - left) - _GAP, position["h"] * (_ROW + _GAP) - _GAP


def _diagram(panel: Panel, lines: Sequence[Drawn], answers: Answers, width: int, height: int) -> str:
    shown = sorted(enumerate(lines), key=lambda each: -_highest(each[1]))
    if len(shown) > _LEGEND_LINES:
        shown = shown[: _LEGEND_LINES - 1]
    rows = [
        f'<tr><td><i style="background:{color_of(panel, index, line)}"></i>{escape(_shortened(line.name))}</td>'
        f"<td>{_value(line.points[-1][1], panel)}</td><td>{_value(_highest(line), panel)}</td></tr>"
        for index, line in shown
    ]
    if len(shown) < len(lines):
        rows.append(f'<tr><td class="more" colspan="3">and {len(lines) - len(shown)} more</td></tr>')
    room = height - (len(rows) + 1) * _LEGEND_LINE - 8
    drawing = svg(
        panel, lines, begin=answers.begin, end=answers.end, leaders=answers.leaders, width=width, height=room
    )  # fmt: skip
    columns = '<col><col class="value"><col class="value">'
    head = "<tr><th>Name</th><th>Last</th><th>Max</th></tr>"
    return f"{drawing}<table><colgroup>{columns}</colgroup>{head}{''.join(rows)}</table>"


def _stat(panel: Panel, lines: Sequence[Drawn], _answers: Answers, width: int, height: int) -> str:
    figures = []
    for line in lines:
        value = line.points[-1][1]
        name = f"<small>{escape(line.name)}</small>" if len(lines) > 1 else ""
        figures.append(f'<div style="color:{threshold_color(panel, value)}">{name}{_value(value, panel)}</div>')
    color = threshold_color(panel, lines[0].points[-1][1])
    drawing = sparkline(lines[0].points, color=color, width=width, height=height // 3)
    return f'<div class="stat">{drawing}<div class="figure">{"".join(figures)}</div></div>'


def _nothing(panel: Panel) -> str:
    return f'<div class="none">No data: {escape(panel.may_be_empty)}</div>'


def _highest(line: Drawn) -> float:
    return max(value for _, value in line.points)


def _shortened(name: str) -> str:
    """Return a name without its middle if it is long: pods differ at the end."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 3]}…{name[-(_NAME - _NAME // 3) + 1 :]}"


def _value(value: float, panel: Panel) -> str:
    return escape(written(value, panel.unit))
