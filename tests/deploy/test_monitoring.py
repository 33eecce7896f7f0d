"""Alerts and dashboards name metrics that the manager has, and labels that these have."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from typing import Any

import pytest
import yaml
from support.manifests import DEPLOY, MANAGER

import trainmaster.metrics
from trainmaster.metrics.registry import REGISTRY

COMPONENT = DEPLOY / "components/monitoring"

_SELECTED = re.compile(r"\b([a-z][a-z0-9_]*)\{([^}]*)\}")
_LABEL = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"')
_GROUPED = re.compile(r"\bby \(([^)]*)\)")

BY_PROMETHEUS = {"job", "pod", "le"}
"""Labels that Prometheus adds to what it scrapes, and that of buckets."""


@pytest.fixture(scope="module")
def families() -> dict[str, set[str]]:
    """Every series that the manager may have: its name, and its labels."""
    for module in pkgutil.iter_modules(trainmaster.metrics.__path__):
        importlib.import_module(f"trainmaster.metrics.{module.name}")
    collectors: dict[str, Any] = REGISTRY._names_to_collectors
    return {name: set(getattr(collector, "_labelnames", ())) for name, collector in collectors.items()}


def alert_rules() -> list[dict[str, Any]]:
    rule = yaml.safe_load((COMPONENT / "prometheus_rule.yaml").read_text())
    return [rule for group in rule["spec"]["groups"] for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Every expression by the name of its alert or the title of its panel."""
    dashboard = json.loads((COMPONENT / "trainmaster.json").read_text())
    panels = {
        f"{panel['title']} {line['refId']}": line["expr"] for panel in dashboard["panels"] for line in panel["targets"]
    }
    return {rule["alert"]: rule["expr"] for rule in alert_rules()} | panels


@pytest.mark.parametrize("name", expressions())
def test_expressions_name_metrics_that_exist_and_labels_that_they_have(
    name: str, families: dict[str, set[str]]
) -> None:
    expression = expressions()[name]
    selected = _SELECTED.findall(expression)
    assert selected
    known = set(BY_PROMETHEUS)
    for family, selectors in selected:
        assert family in families, expression
        known |= families[family]
        assert set(_LABEL.findall(selectors)) <= families[family] | BY_PROMETHEUS, expression
        assert f'job="{MANAGER}"' in selectors, "series of other controllers have the same names"
    for labels in _GROUPED.findall(expression):
        assert set(labels.split(", ")) <= known, expression


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule["alert"])
def test_alerts_say_what_is_wrong_and_use_labels_that_are_left(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    texts = " ".join(rule["annotations"].values())
    used = set(re.findall(r"\$labels\.([a-z_]+)", texts))
    left = {label for labels in _GROUPED.findall(rule["expr"]) for label in labels.split(", ")}
    assert used <= left - {"le"}
    assert rule["annotations"].keys() == {"summary", "description"}


def test_names_of_alerts_and_panels_are_unique() -> None:
    dashboard = json.loads((COMPONENT / "trainmaster.json").read_text())
    assert len({rule["alert"] for rule in alert_rules()}) == len(alert_rules())
    assert len({panel["title"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
