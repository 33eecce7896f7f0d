"""The tuning guide names panels, options and metrics that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainmaster.controller.configuration import Configuration
from trainmaster.metrics.alerts import GROUPS, alert_rule
from trainmaster.metrics.dashboards import DASHBOARDS
from trainmaster.metrics.families import families

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tuning.md").read_text()
RUNBOOKS = "".join(path.read_text() for path in (ROOT / "docs/runbooks").glob("*.md"))
TITLES = {each.title.rpartition(" / ")[2]: {panel.title for panel in each.panels} for each in DASHBOARDS}
ROWS = re.findall(r"^\| ([^|]+) \| \*([^*|]+)\* \| ", PAGE, re.MULTILINE)


def options(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every option of a section, and of the sections in it, each with its path."""
    for field in model.model_fields.values():
        yield f"{path}{field.alias}"
        section = _section(field)
        if section is not None:
            yield from options(section, f"{path}{field.alias}.")


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind: Any = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def test_rows_begin_with_panels_of_a_dashboard_and_those_that_lead_to_options_are_there() -> None:
    assert [(dashboard, panel) for dashboard, panel in ROWS if panel not in TITLES[dashboard]] == []
    assert {"Busy workers", "Wait in queues", "Wait for the client's own limit", "CPU", "Memory"} <= {
        panel for _, panel in ROWS
    }


def test_every_panel_that_a_text_names_exists() -> None:
    assert set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", PAGE)) <= set().union(*TITLES.values())


def test_every_option_exists() -> None:
    named = {
        text
        for text in re.findall(r"`([a-z]\w*(?:\.\w+)+)`", PAGE)
        if not text.endswith((".md", ".py", ".json")) and not re.match(r"(life|create|manager)\.", text)
    }
    assert named | {"watchNamespaces"} <= set(options(Configuration))
    assert len(named) > 5


def test_every_metric_exists() -> None:
    named = set(re.findall(r"`((?:trainmaster|workqueue|rest_client|controller_runtime|process)_\w+)`", PAGE))
    assert named
    assert named <= {each.name for each in families()}


def test_panels_alerts_and_runbooks_lead_to_options_that_exist() -> None:
    alerts = [alert_rule(alert) for group in GROUPS.values() for alert in group]
    texts = [panel.description for each in DASHBOARDS for panel in each.panels]
    texts += [text for rule in alerts for text in rule["annotations"].values()]
    known = set(options(Configuration))
    sections = {option.partition(".")[0] for option in known if "." in option}
    named = {
        text
        for text in re.findall(r"\b([a-z]\w*(?:\.[a-zA-Z]\w*)+)\b", " ".join(texts) + RUNBOOKS)
        if text.partition(".")[0] in sections and not text.endswith(".md")
    }
    assert {"plugins.disabled", "clientConnection.qps", "controller.groupKindConcurrency"} <= named
    assert named <= known
