"""Dashboards as Grafana imports them: schema 42, that of Grafana 12 and 13."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from trainmaster.metrics.controller import MASTER_STATUS
from trainmaster.metrics.dashboards.model import QUERIES, WHOLE_WIDTH, Dashboard, Panel, Variable
from trainmaster.metrics.process import TASKS
from trainmaster.metrics.promql import Expression, Queries

Json: TypeAlias = dict[str, Any]

SCHEMA_VERSION: Final = 42

TAG: Final = "trainmaster"
"""By which dashboards find each other."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

_TARGETS: Final = (
    Variable(name="job", label="Job", values=Queries(target="", window="").series(TASKS)),
    Variable(name="namespace", label="Namespace", values=Queries(target='job=~"$job"', window="").series(TASKS)),
)
"""Of any metric that nobody else has: the families of controllers are those of other controllers as well."""

_LEADS: Final = QUERIES.series(MASTER_STATUS)
LEADERS: Final = (_LEADS > 0).unless(_LEADS.earlier("1m") > 0)
"""Who began to lead within a minute: marks in every diagram."""


def grafana_dashboard(dashboard: Dashboard) -> Json:
    """Return a dashboard as JSON."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["kubeflow", TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "refresh": "1m",
        "links": [_LINK],
        "annotations": {"list": [_ANNOTATION]},
        "templating": {"list": [_DATA_SOURCE, *(_variable(each) for each in (*_TARGETS, *dashboard.variables))]},
        "panels": _panels(dashboard),
    }


_LINK: Final[Json] = {
    "type": "dashboards", "title": "Trainmaster", "tags": [TAG], "asDropdown": True, "icon": "external link",
    "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": "",
}  # fmt: skip

_ANNOTATION: Final[Json] = {
    "name": "New leader", "datasource": _SOURCE, "enable": True, "hide": False, "iconColor": "purple",
    "expr": LEADERS.text, "step": "30s", "titleFormat": "New leader", "textFormat": "{{pod}}",
}  # fmt: skip

_DATA_SOURCE: Final[Json] = {
    "name": "datasource", "type": "datasource", "label": "Data source", "query": "prometheus", "regex": "",
    "refresh": 1, "hide": 0, "multi": False, "includeAll": False, "options": [], "skipUrlSync": False,
}  # fmt: skip


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.values.text}, {variable.name})"
    made: Json = {
        "name": variable.name, "type": "query", "label": variable.label, "datasource": _SOURCE, "definition": query,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "regex": "", "refresh": 2, "sort": 1, "hide": 0, "multi": True, "includeAll": True, "options": [],
        "current": {"text": ["All"], "value": ["$__all"]}, "skipUrlSync": False,
    }  # fmt: skip
    if variable.name != "job":
        made["allValue"] = ".*"  # also what has no such label
    return made


def _panels(dashboard: Dashboard) -> list[Json]:
    made: list[Json] = []
    y = 0
    for row in dashboard.rows:
        position = {"x": 0, "y": y, "w": WHOLE_WIDTH, "h": 1}
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": position,
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > WHOLE_WIDTH:
                x, y, height = 0, y + height, 0
            position = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            made.append({"id": len(made) + 1, "gridPos": position, **_panel(panel)})
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return made


def _panel(panel: Panel) -> Json:
    is_stat = panel.kind == "stat"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": _stat_field(panel) if is_stat else _line_field(panel),
            "overrides": _overrides(panel),
        },
        "options": _STAT_OPTIONS if is_stat else _LINE_OPTIONS,
        "targets": [
            _target(chr(ord("A") + index), query.expression, query.legend) for index, query in enumerate(panel.queries)
        ],
    }


_STAT_OPTIONS: Final[Json] = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
    "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto", "wideLayout": True,
}  # fmt: skip

_LINE_OPTIONS: Final[Json] = {
    "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
    "tooltip": {"mode": "multi", "sort": "desc"},
}  # fmt: skip


def _target(name: str, expression: Expression, legend: str) -> Json:
    return {
        "refId": name, "datasource": _SOURCE, "editorMode": "code", "range": True,
        "expr": expression.text, "legendFormat": legend,
    }  # fmt: skip


def _overrides(panel: Panel) -> list[Json]:
    return [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for name, color in panel.colors
    ]


def _stat_field(panel: Panel) -> Json:
    return {
        "unit": panel.unit,
        "noValue": panel.no_value,
        "color": {"mode": "thresholds"},
        "thresholds": _thresholds(panel),
        "mappings": [],
    }


def _line_field(panel: Panel) -> Json:
    return {
        "unit": panel.unit,
        "noValue": panel.no_value,
        "min": 0,
        "color": {"mode": "palette-classic"},
        "thresholds": _thresholds(panel),
        "mappings": [],
        "custom": {
            "drawStyle": "line",
            "lineInterpolation": "linear",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.is_stacked else 8,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.steps else "off"},
        },
    }


def _thresholds(panel: Panel) -> Json:
    steps: list[Json] = [{"color": panel.base, "value": None}]
    return {"mode": "absolute", "steps": [*steps, *({"color": color, "value": value} for value, color in panel.steps)]}
