"""docs/convert.md, with conversions.md for an example of each kind, and docs/tuning.md: names are right."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from support.conversions import problems

from trainmaster.controller.cli import main
from trainmaster.controller.configuration import Configuration
from trainmaster.metrics.alerts import GROUPS, alert_rule
from trainmaster.metrics.dashboards import DASHBOARDS
from trainmaster.metrics.families import families
from trainmaster.runtime.conversion.training_operator import KINDS
from trainmaster.runtime.yamltext import load_yaml, load_yaml_documents

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/convert.md").read_text(encoding="utf-8")
CONVERSIONS = (Path(__file__).parent / "conversions.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```\n\nbecomes\n\n```yaml\n(.*?)```\n", CONVERSIONS, re.DOTALL)
TABLE = TEXT.partition("## Every field")[2].partition("### MPI by ssh")[0]


def test_there_is_an_example_of_each_kind() -> None:
    assert sorted([load_yaml(old)["kind"] for old, _ in EXAMPLES]) == sorted([*KINDS, "TrainJob"])


@pytest.mark.parametrize(("old", "new"), EXAMPLES, ids=[load_yaml(old)["kind"] for old, _ in EXAMPLES])
def test_examples_are_what_is_printed(old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.yaml").write_text(old)
    assert main(["convert", "-f", str(tmp_path / "old.yaml")]) == 0
    assert capsys.readouterr().out == new
    assert not problems([document for _, document in load_yaml_documents(new)], tmp_path)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_field_of_a_kind_is_in_the_table(kind: str) -> None:
    definition = load_yaml((ROOT / f"deploy/crds/kubeflow.org_{kind.lower()}s.yaml").read_bytes())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert not [name for name in _fields(spec) if not re.search(rf"\b{name}\b", TABLE)]


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """The names of all fields but those of pods and metrics, which are Kubernetes' own."""
    for name, field in schema.get("properties", {}).items():
        if name.endswith("ReplicaSpecs"):
            yield from field["additionalProperties"]["properties"]
            continue
        yield name
        if name != "metrics":
            yield from _fields(field)


REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/tuning.md").read_text()
RUNBOOKS = (REPOSITORY / "docs/runbooks/README.md").read_text()
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
