"""Each alert fires when it should and else stays silent, in Prometheus' own words; and each has a runbook."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.alerts import manager, requests, trainjobs
from support.alerts.scenario import Scenario
from support.debian import program

from trainmaster.metrics.alerts import GROUPS, Alert, alert_rule, rule_groups

ROOT = Path(__file__).resolve().parents[3]
RUNBOOKS = (ROOT / "docs/runbooks/README.md").read_text()

ALERTS = {alert.name: alert for alerts in GROUPS.values() for alert in alerts}
CASES: dict[str, list[Scenario]] = {**manager.CASES, **requests.CASES, **trainjobs.CASES}


@pytest.mark.nightly
def test_the_rules_are_what_prometheus_takes(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": rule_groups(GROUPS)}))
    checked = subprocess.run(
        [program("promtool"), "check", "rules", rules], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALERTS)
def test_it_fires_and_stays_silent(name: str, tmp_path: Path) -> None:
    alert, scenarios = ALERTS[name], CASES[name]
    silent = [scenario for scenario in scenarios if not scenario.labels]
    assert 0 < len(silent) < len(scenarios), "nothing makes it fire, or nothing leaves it silent"
    metrics = set(re.findall(r"(\w+)\{", alert.expression.text))
    for scenario in silent:
        seen = {each.partition("{")[0] for each in scenario.series}
        assert any(metric in seen for metric in metrics) or "up" in seen, "it is silent because there is nothing"
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": [{"name": "one", "rules": [alert_rule(alert)]}]}))
    tests = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [scenario_test(alert, scenario) for scenario in scenarios],
    }
    written = tmp_path / "tests.yaml"
    written.write_text(json.dumps(tests))
    done = subprocess.run([program("promtool"), "test", "rules", written], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def scenario_test(alert: Alert, scenario: Scenario) -> dict[str, object]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in scenario.series.items()],
        "alert_rule_test": [
            {
                "eval_time": scenario.at,
                "alertname": alert.name,
                "exp_alerts": [
                    {"exp_labels": {**labels, "severity": alert.severity}, "exp_annotations": told_of(alert, labels)}
                    for labels in scenario.labels
                ],
            }
        ],
    }


def told_of(alert: Alert, labels: dict[str, str]) -> dict[str, str]:
    def told(text: str) -> str:
        return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)

    return {name: told(text) for name, text in alert_rule(alert)["annotations"].items()}


def test_every_alert_is_tried_and_no_other() -> None:
    assert CASES.keys() == ALERTS.keys()
    assert len(ALERTS) == sum(map(len, GROUPS.values())), "two alerts have the same name"


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    sections = dict(re.findall(r"^### (Trainmaster\w+)\n(.*?)(?=^###? |\Z)", RUNBOOKS, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(ALERTS)
    for name, alert in ALERTS.items():
        # From a notification, somebody without a checkout follows it.
        assert alert.runbook == f"docs/runbooks/README.md#{name.lower()}"
        meaning, commands, actions = re.split(r"^```(?:sh)?$", sections[name], flags=re.MULTILINE)
        when = "at once" if alert.duration.startswith("0") else f"after {alert.duration}"
        assert meaning.strip().startswith(f"`{alert.severity}`, {when}: "), name
        assert commands.strip(), f"{name} has no command to look with"
        assert actions.strip().startswith("- "), f"{name} does not say what to do"
