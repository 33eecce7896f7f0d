"""`trainmaster render`: what TrainJobs become, from files alone."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.commands import Ran

from trainmaster.controller.cli import main
from trainmaster.controller.cli.manifests import built_in_names
from trainmaster.controller.cli.printers import to_yaml
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml, load_yaml_documents

BUILT_IN = sorted(path.stem for path in (Path(__file__).resolve().parents[3] / "deploy/runtimes").glob("*.yaml"))


def trainjob(runtime: str = "torch-distributed", *, name: str = "demo", **spec: Any) -> JsonObject:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime}, **spec},
    }


def write(path: Path, *objects: JsonObject) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def rendered(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[JsonObject]:
    assert main(["render", *arguments]) == code
    return [document for _, document in load_yaml_documents(capsys.readouterr().out)]


def test_a_minimal_trainjob_becomes_snapshot_and_jobset_with_each_built_in_runtime(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(BUILT_IN) == 9
    assert built_in_names() == BUILT_IN
    for runtime in BUILT_IN:
        objects = rendered(capsys, "-f", write(tmp_path / "job.yaml", trainjob(runtime)))
        assert (objects[0]["kind"], objects[0]["metadata"]["name"]) == ("ConfigMap", "demo-runtime-snapshot")
        assert (objects[-1]["kind"], objects[-1]["metadata"]["name"]) == ("JobSet", "demo")
        assert all(obj["metadata"]["namespace"] == "default" for obj in objects)
        # What the definition of runtimes fills in has been filled in.
        assert all(job["groupName"] == "default" for job in objects[-1]["spec"]["replicatedJobs"])


def test_the_trainjob_counts_and_generated_names_are_shown_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "job.yaml", trainjob(trainer={"numNodes": 3, "image": "mine:1"}))
    (jobset,) = rendered(capsys, "-f", file, "--only", "jobset", "-n", "team")
    assert jobset["metadata"]["namespace"] == "team"
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["parallelism"] == 3
    container = job["template"]["spec"]["containers"][0]
    assert container["image"] == "mine:1"
    assert {"name": "PET_NNODES", "value": "3"} in container["env"]
    job = trainjob()
    job["metadata"] = {"generateName": "demo-"}
    (jobset,) = rendered(capsys, "-f", write(tmp_path / "job.yaml", job), "--only", "JobSet")
    assert jobset["metadata"]["name"] == "demo-xxxxx"


def test_runtimes_may_come_after_trainjobs_and_from_directories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = yaml.safe_load((Path(__file__).resolve().parents[3] / "deploy/runtimes/jax-distributed.yaml").read_text())
    runtime |= {"kind": "TrainingRuntime", "metadata": {"name": "mine"}}
    reference: JsonObject = {"runtimeRef": {"name": "mine", "kind": "TrainingRuntime"}}
    write(tmp_path / "a.yaml", trainjob(name="first", **reference), trainjob(name="second", **reference))
    write(tmp_path / "b.yml", runtime)
    (tmp_path / "notes.txt").write_text("not: [yaml")
    objects = rendered(capsys, "-f", str(tmp_path), "--only", "JobSet")
    assert [obj["metadata"]["name"] for obj in objects] == ["first", "second"]


def test_json_is_one_list(tmp_path: Path, ran: Ran) -> None:
    printed = json.loads(ran("render", "-f", write(tmp_path / "job.yaml", trainjob()), "-o", "json").out)
    assert printed["kind"] == "List"
    assert [item["kind"] for item in printed["items"]] == ["ConfigMap", "JobSet"]


def test_nothing_to_render_fails(tmp_path: Path, ran: Ran) -> None:
    for text, options, complaint in (
        ("", [], "no job in the files"),
        ("a: [\n]]", [], "job.yaml:2:2: error: "),
        (yaml.safe_dump(trainjob("torch-distribute")), [], 'did you mean "torch-distributed"?'),
        (yaml.safe_dump(trainjob()), ["--only", "Pod"], "nothing is of kind Pod; there are: ConfigMap, JobSet"),
    ):
        (tmp_path / "job.yaml").write_text(text)
        printed = ran("render", "-f", str(tmp_path / "job.yaml"), *options, code=1)
        assert complaint in printed.err
        assert printed.out == ""


def test_what_would_be_refused_is_not_rendered_and_the_rest_is(tmp_path: Path, ran: Ran) -> None:
    file = write(tmp_path / "job.yaml", trainjob(name="typo", trainr={}), trainjob(name="good"))
    printed = ran("render", "-f", file, "--only", "JobSet", code=1)
    assert [doc["metadata"]["name"] for _, doc in load_yaml_documents(printed.out)] == ["good"]
    assert 'TrainJob typo: spec.trainr: unknown field (did you mean "trainer"?)' in printed.err


def test_plugins_are_those_of_the_configuration(tmp_path: Path, ran: Ran) -> None:
    file = write(tmp_path / "job.yaml", trainjob())
    configuration = write(
        tmp_path / "config.yaml",
        {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "plugins": {"disabled": ["torch"]},
        },
    )
    assert (
        "no installed plugin serves mlPolicy.torch" in ran("render", "-f", file, "--config", configuration, code=1).err
    )
    assert "nowhere.yaml" in ran("render", "-f", file, "--config", "nowhere.yaml", code=2).err


@pytest.mark.parametrize("where", ["flag", "file"])
def test_plugins_behind_feature_gates_take_part_if_the_gates_are_open(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "job.yaml", trainjob())
    gates = ["--feature-gates", "TrainJobStatus=true"]
    if where == "file":
        configuration = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "featureGates": {"TrainJobStatus": True},
            "certManagement": {"webhookServiceName": "ours"},
        }
        gates = ["--config", write(tmp_path / "config.yaml", configuration)]
    objects = {obj["metadata"]["name"]: obj for obj in rendered(capsys, "-f", file, *gates)}
    assert "demo-tls-config" in objects
    job = objects["demo"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    variables = {each["name"]: each.get("value") for each in job["containers"][0]["env"]}
    service = "ours" if where == "file" else "kubeflow-trainer-controller-manager"
    assert variables["KUBEFLOW_TRAINER_SERVER_URL"].startswith(f"https://{service}.")
    if where == "file":
        closed = rendered(capsys, "-f", file, *gates, "--feature-gates", "TrainJobStatus=false")
        assert [obj["metadata"]["name"] for obj in closed] == ["demo-runtime-snapshot", "demo"]


def test_feature_gates_that_do_not_exist_are_told(tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    # The logs are those of this process and its other tests, too.
    monkeypatch.setattr("trainmaster.controller.cli.diff.command.configure_logs", lambda **_: None)
    file = write(tmp_path / "job.yaml", trainjob())
    for command, (gates, complaint) in product(
        ("render", "validate", "diff"),
        (("Trainjobstatus=true", "known are: TrainJobStatus"), ("TrainJobStatus", "write it as Name=true or ")),
    ):
        printed = ran(command, "-f", file, "--feature-gates", gates, code=2)
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        assert complaint in printed.err


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])) | st.sampled_from(["y", "1e3"]))
def test_a_text_stays_a_text(text: str) -> None:
    """YAML has many ways of taking a text for something else, and Kubernetes knows more of them than PyYAML."""
    assert load_yaml(to_yaml({"a": text})) == {"a": text}
