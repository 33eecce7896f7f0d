"""What is installed for Prometheus and Grafana names metrics that the manager has, and labels that these have."""

import importlib
import json
import pkgutil
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.debian import program
from support.manifests import DEPLOY, MANAGER, one, overlay

import trainmaster.metrics
from trainmaster.metrics.promql import BY_PROMETHEUS, TARGET_LABELS
from trainmaster.metrics.registry import REGISTRY

COMPONENT = DEPLOY / "components/monitoring"
DASHBOARDS = sorted((COMPONENT / "dashboards").glob("*.json"))

_SELECTED = re.compile(r"\b([a-z][a-z0-9_]*)\{([^}]*)\}(?:\[[^]]*\])?")
_LABEL = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"')
_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_WORD = re.compile(r"\b[a-z_]\w*\b")
_OF_PROMQL = {
    "sum", "min", "max", "count", "topk", "rate", "increase", "changes", "min_over_time", "max_over_time",
    "histogram_quantile", "absent", "vector", "time", "round", "or", "and", "unless", "by", "offset",
}  # fmt: skip


@pytest.fixture(scope="module")
def families() -> dict[str, set[str]]:
    """Every series that the manager may have: its name, and its labels."""
    for module in pkgutil.iter_modules(trainmaster.metrics.__path__):
        importlib.import_module(f"trainmaster.metrics.{module.name}")
    collectors: dict[str, Any] = REGISTRY._names_to_collectors
    found = {name: set(getattr(collector, "_labelnames", ())) for name, collector in collectors.items()}
    for name, collector in collectors.items():
        if not hasattr(collector, "_labelnames"):
            for metric in collector.collect():
                if name.startswith(metric.name):
                    found[name] |= set(metric._labelnames)
    return found | {family.name: set(family.labels) for family in BY_PROMETHEUS}


def alert_rules() -> list[dict[str, Any]]:
    rule = yaml.safe_load((COMPONENT / "prometheus_rule.yaml").read_text())
    return [rule for group in rule["spec"]["groups"] for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Every expression by the name of its alert, or the dashboard and title of its panel."""
    found = {rule["alert"]: rule["expr"] for rule in alert_rules()}
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            for line in panel.get("targets", []):
                found[f"{path.stem}/{panel['title']}/{line['refId']}"] = line["expr"]
        for annotation in dashboard["annotations"]["list"]:
            found[f"{path.stem}/{annotation['name']}"] = annotation["expr"]
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
                assert label is not None
                found[f"{path.stem}/${variable['name']}"] = f"count by ({label[2]}) ({label[1]})"
    return found


def test_expressions_name_metrics_that_exist_and_labels_that_they_have(families: dict[str, set[str]]) -> None:
    for name, expression in expressions().items():
        selected = _SELECTED.findall(expression)
        assert selected, name
        known = TARGET_LABELS | {"le"}
        for family, selectors in selected:
            assert family in families, expression
            known |= families[family]
            assert set(_LABEL.findall(selectors)) <= families[family] | TARGET_LABELS, expression
            if "$job" not in name:
                by = f'job="{MANAGER}"' if "/" not in name else 'job=~"$job"'
                assert by in selectors, "series of other controllers have the same names"
        for labels in _GROUPED.findall(expression):
            assert set(labels.split(", ")) <= known, expression
        rest = re.sub(r"\d+[smhd]\b", "", _GROUPED.sub("", _SELECTED.sub("", expression)))
        assert set(_WORD.findall(rest)) <= _OF_PROMQL, f"{name} has a name without a selector"


def test_alerts_say_what_is_wrong_and_use_labels_that_are_left() -> None:
    for rule in alert_rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        used = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
        left = {label for labels in _GROUPED.findall(rule["expr"]) for label in labels.split(", ")}
        assert used <= left - {"le"}, rule["alert"]


def test_prometheus_takes_the_configuration_of_the_guide(tmp_path: Path) -> None:
    guide = (DEPLOY.parent / "docs/monitoring.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    configuration = yaml.safe_load(text)
    (scraped,) = configuration["scrape_configs"]
    assert scraped["job_name"] == MANAGER
    scraped["authorization"] = {"credentials": "a"}
    del scraped["tls_config"]["ca_file"]
    # Debian builds Prometheus without this one.
    assert scraped.pop("kubernetes_sd_configs") == [{"role": "endpoints", "namespaces": {"names": ["kubeflow"]}}]
    scraped["file_sd_configs"] = [{"files": ["targets.json"]}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    (tmp_path / "trainmaster.rules.yaml").write_text((DEPLOY / "prometheus/trainmaster.rules.yaml").read_text())
    checked = subprocess.run(
        [program("promtool"), "check", "config", tmp_path / "prometheus.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alert_rules())} rules found" in checked.stdout


def test_every_dashboard_is_in_a_config_map_that_grafana_finds() -> None:
    objects = overlay("monitoring")
    maps = {
        name: obj
        for (kind, _, name), obj in objects.items()
        if kind == "ConfigMap" and obj["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    }
    shown = {key: text for obj in maps.values() for key, text in obj["data"].items()}
    assert shown == {path.name: path.read_text() for path in DASHBOARDS}
    assert len(maps) == len(DASHBOARDS), "several in one are too large to be applied by kubectl"
    assert one(objects, "ConfigMap", "kubeflow-trainer-dashboard")["data"].keys() == {"trainmaster.json"}
