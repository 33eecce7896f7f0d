"""What the examples and the README show works as it stands there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.controller.cli import main
from trainmaster.runtime.api.constants import SCHEDULING_GATE
from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolver import resolve

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/train.py"))
_OTHERS = ("v1", "job-kind", "plugins")
DIRECTORIES = sorted(path for path in ROOT.glob("examples/*") if path.is_dir() and path.name not in _OTHERS)
"""Those of TrainJobs; tests/e2e/test_job_frameworks.py runs the jobs of kubeflow.org/v1, test_job_kind.py its own, and
test_plugins.py the plugins."""

NODES = {"plain-sweep": 4}
NODE_COUNTS = {
    "jax-digits": "JAX_NUM_PROCESSES",
    "numpy-digits": "PET_NNODES",
    "torch-digits": "PET_NNODES",
    "xgboost-digits": "DMLC_NUM_WORKER",
}


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
    return {entry["name"]: entry.get("value") for entry in pod["containers"][0].get("env", ())}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_becomes_nodes_that_run_its_script(example: Path) -> None:
    job, pod = pods_of(example, Framework(load_plugins()))
    nodes = NODES.get(example.name, 2)
    assert job["parallelism"] == job["completions"] == nodes
    if example.name in NODE_COUNTS:
        assert environment(pod)[NODE_COUNTS[example.name]] == str(nodes)
    script = load(example / "script.yaml")
    (volume,) = pod["volumes"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert volume["configMap"]["name"] == script["metadata"]["name"]
    assert mount["name"] == volume["name"]
    assert pod["containers"][0]["command"][-1] == f"{mount['mountPath']}/train.py"
    assert script["data"]["train.py"] == (example / "train.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
def test_every_example_is_valid_and_becomes_a_jobset(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that need container images, which nobody runs here. Some use the runtime of another example."""
    files = ["-f", str(directory), "-f", str(ROOT / "examples/plain-sweep/runtime.yaml")]
    files += ["--feature-gates", f"{SCHEDULING_GATE}=true"]
    assert main(["validate", *files]) == 0, capsys.readouterr().out
    capsys.readouterr()
    assert main(["render", *files, "--only", "JobSet", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"]


def test_the_plugin_of_the_readme_works() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    module: dict[str, Any] = {}
    exec(compile(source, "README.md", "exec"), module)
    framework = Framework([*load_plugins(), module["CostCentre"]()])
    _, pod = pods_of(ROOT / "examples/numpy-digits", framework)
    assert environment(pod)["COST_CENTRE"] == "research"
