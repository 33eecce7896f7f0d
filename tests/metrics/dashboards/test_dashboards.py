"""Dashboards are whole: each panel is explained, laid out, and asks for what exists."""

import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.debian import program

from trainmaster.controller.debugging.handlers import INDEX
from trainmaster.controller.explain.state import State
from trainmaster.metrics.alerts import JOB
from trainmaster.metrics.cache import InformerMetrics
from trainmaster.metrics.controller import LeaderMetrics, controller_series
from trainmaster.metrics.dashboards import DASHBOARDS, Dashboard, Query, grafana_dashboard
from trainmaster.metrics.dashboards.model import IDLE, UNSEEN
from trainmaster.metrics.plugins import publish_plugin
from trainmaster.metrics.promql import Queries, UnknownLabel
from trainmaster.metrics.queue import DEPTH, WorkQueueMetrics
from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.rest_client import RequestMetrics
from trainmaster.metrics.webhook import WebhookMetrics

OF_ALL = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
VARIABLE = re.compile(r"\$(\w+)")


def test_there_are_some_and_each_has_a_uid_of_its_own() -> None:
    assert [each.uid for each in DASHBOARDS] == [
        "trainmaster", "trainmaster-trainjobs", "trainmaster-controller", "trainmaster-plugins", "trainmaster-webhooks",
        "trainmaster-v1-jobs",
    ]  # fmt: skip


@OF_ALL
def test_panels_say_what_they_mean_and_every_row_has_some(dashboard: Dashboard) -> None:
    titles = [panel.title for panel in dashboard.panels]
    assert all(titles)
    assert len(set(titles)) == len(titles)
    assert all(row.panels for row in dashboard.rows)
    for panel in dashboard.panels:
        assert len(panel.description) > 40, panel.title
        assert panel.description.endswith("."), panel.title
        lines = [query.legend for query in panel.queries]
        assert lines, panel.title
        assert len(set(lines)) == len(lines), "two lines of a diagram have the same name"
        for debugged in re.findall(r"/debug/\w+", panel.description):
            assert debugged in INDEX, panel.title


@OF_ALL
def test_panels_lie_beside_each_other(dashboard: Dashboard) -> None:
    made = grafana_dashboard(dashboard)["panels"]
    boxes = [panel["gridPos"] for panel in made]
    assert len({panel["id"] for panel in made}) == len(made)
    assert all(box["x"] >= 0 and box["x"] + box["w"] <= 24 for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@OF_ALL
def test_it_uses_the_variables_that_it_has(dashboard: Dashboard) -> None:
    made = grafana_dashboard(dashboard)
    variables = [variable["name"] for variable in made["templating"]["list"]]
    assert variables[:3] == ["datasource", "job", "namespace"]
    assert len(set(variables)) == len(variables)
    used = set(VARIABLE.findall(json.dumps([panel.get("targets", []) for panel in made["panels"]])))
    assert used - {"__rate_interval"} == set(variables) - {"datasource"}
    for panel in made["panels"]:
        if panel["type"] != "row":
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    assert made["uid"] == dashboard.uid
    assert "id" not in made, "Grafana gives it one"
    assert "__inputs" not in made, "who imports it is asked for nothing"


@pytest.mark.nightly
@OF_ALL
def test_prometheus_takes_every_query(dashboard: Dashboard, tmp_path: Path) -> None:
    made = grafana_dashboard(dashboard)
    asked = [target["expr"] for panel in made["panels"] for target in panel.get("targets", [])]
    asked += [annotation["expr"] for annotation in made["annotations"]["list"]]
    filled = [VARIABLE.sub(".*", expression.replace("$__rate_interval", "5m")) for expression in asked]
    rules: list[dict[str, Any]] = [{"record": f"a:{n}", "expr": text} for n, text in enumerate(filled)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked = subprocess.run([program("promtool"), "check", "rules", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(asked)} rules found" in checked.stdout


@OF_ALL
def test_a_panel_of_an_idle_manager_has_a_value_or_says_why_not(dashboard: Dashboard) -> None:
    for panel in grafana_dashboard(dashboard)["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]
        for target in panel["targets"]:
            text = target["expr"]
            if "histogram_quantile" in text:
                assert re.search(r" >= 0\)?( or vector\(0\))?$", text), (
                    f"{panel['title']} is NaN where nothing was observed"
                )
            if " / " in text:
                assert " > 0)" in text.partition(" / ")[2], f"{panel['title']} is NaN where nothing happened"
            if panel["type"] == "stat":
                is_told = panel["fieldConfig"]["defaults"]["noValue"] not in {IDLE, UNSEEN}
                assert text.endswith(" or vector(0)") or is_told, f"{panel['title']} has no value while nothing happens"


@pytest.mark.nightly
@OF_ALL
def test_prometheus_finds_no_nan_on_an_idle_manager(dashboard: Dashboard, tmp_path: Path) -> None:
    made = grafana_dashboard(dashboard)
    wrong: list[str] = []
    for panel in made["panels"]:
        for target in panel.get("targets", []):
            filled = VARIABLE.sub(".*", target["expr"].replace("$__rate_interval", "5m"))
            wrong.append(f"count(({filled}) != ({filled}))")
            if panel["fieldConfig"]["defaults"]["noValue"] == UNSEEN or filled.endswith(" or vector(0)"):
                wrong.append(f"absent({filled})")
    tests = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value:.10g}x200"} for name, value in idle_series().items()],
        "promql_expr_test": [{"expr": each, "eval_time": "3h", "exp_samples": []} for each in wrong],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(json.dumps({"evaluation_interval": "1m", "tests": [tests]}))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def idle_series() -> dict[str, float]:
    """Return what Prometheus stores of a manager that has started and done nothing."""
    controller_series("trainjob_controller").max_concurrent.set(16)
    RequestMetrics("kubernetes.default.svc")
    InformerMetrics("trainjobs.trainer.kubeflow.org")
    WorkQueueMetrics("trainjob_controller")
    LeaderMetrics("trainer.kubeflow.org").leading(now=True)
    WebhookMetrics("/validate-trainjob")
    publish_plugin("acme", guarded=True)
    found = {"up": 1.0, "scrape_samples_post_metric_relabeling": 900.0} | {
        sample.name + "".join(f',{name}="{value}"' for name, value in sorted(sample.labels.items())): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
    }
    target = f'{{job="{JOB}",namespace="kubeflow",pod="manager-a"'
    return {f"{name.replace(',', target + ',', 1) if ',' in name else name + target}}}": v for name, v in found.items()}


def test_states_are_those_that_jobs_have() -> None:
    selected = {
        state
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for query in panel.queries
        for states in re.findall(r'\bstate=~?"([^"]*)"', query.expression.text)
        for state in states.split("|")
    }
    assert selected
    assert selected <= {str(state) for state in State}


def test_a_legend_names_labels_that_are_left() -> None:
    depth = Queries(target="", window="5m").series(DEPTH)
    assert Query(depth, "{{controller}} {{priority}}").legend
    with pytest.raises(UnknownLabel, match="has no label colour for"):
        Query(depth, "{{colour}}")
