"""What the examples and the README show works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.runtime.api import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolving import resolve

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/trainjob.yaml"))


def load(path: Path) -> JsonObject:
    obj: JsonObject = yaml.safe_load(path.read_text(encoding="utf-8"))
    return obj


def pods_of(example: Path, framework: Framework) -> tuple[JsonObject, JsonObject]:
    """The Job that the example's TrainJob becomes, and its pod."""
    raw = load(example / "trainjob.yaml")
    raw["metadata"] |= {"namespace": "default", "uid": "1"}
    resolution = resolve(parse_trainjob(raw), parse_runtime(load(example / "runtime.yaml")), framework)
    (desired,) = resolution.objects
    job: JsonObject = desired.object["spec"]["replicatedJobs"][0]["template"]["spec"]
    return job, job["template"]["spec"]


def environment(pod: JsonObject) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_becomes_two_nodes_that_run_its_script(example: Path) -> None:
    job, pod = pods_of(example, Framework(load_plugins()))
    assert job["parallelism"] == job["completions"] == 2
    assert environment(pod)["PET_NNODES"] == "2"
    script = load(example / "script.yaml")
    (volume,) = pod["volumes"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert volume["configMap"]["name"] == script["metadata"]["name"]
    assert mount["name"] == volume["name"]
    assert pod["containers"][0]["command"][-1] == f"{mount['mountPath']}/train.py"
    assert script["data"]["train.py"] == (example / "train.py").read_text(encoding="utf-8")


def test_the_plugin_of_the_readme_works() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    module: dict[str, Any] = {}
    exec(compile(source, "README.md", "exec"), module)
    framework = Framework([*load_plugins(), module["CostCentre"](centre="robotics")])
    _, pod = pods_of(EXAMPLES[0], framework)
    assert environment(pod)["COST_CENTRE"] == "robotics"
