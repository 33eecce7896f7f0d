"""`trainmaster render`: what TrainJobs become, from files alone, and with `--explain` who set each field."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support import training
from support.commands import Ran

from trainmaster.controller.cli import main
from trainmaster.controller.cli.files.manifests import built_in_names
from trainmaster.controller.cli.files.render import with_comments
from trainmaster.controller.cli.printers import to_yaml
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.provenance import leaves, set_by
from trainmaster.runtime.yamltext import load_yaml, load_yaml_documents

ROOT = Path(__file__).resolve().parents[4]
BUILT_IN = sorted(path.stem for path in (ROOT / "deploy/runtimes").glob("*.yaml"))


def trainjob(runtime: str = "torch-distributed", *, name: str = "demo", **spec: Any) -> JsonObject:
    return {**training.trainjob(name, on=runtime, **spec), "metadata": {"name": name}}


def configuration(path: Path, **sections: Any) -> str:
    return write(path, {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration", **sections})


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


def test_the_trainjob_counts_and_generated_names_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_runtimes_may_come_last_and_from_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = yaml.safe_load((ROOT / "deploy/runtimes/jax-distributed.yaml").read_text())
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
    config = configuration(tmp_path / "config.yaml", plugins={"disabled": ["torch"]})
    assert "no installed plugin serves mlPolicy.torch" in ran("render", "-f", file, "--config", config, code=1).err
    assert "nowhere.yaml" in ran("render", "-f", file, "--config", "nowhere.yaml", code=2).err


@pytest.mark.parametrize("where", ["flag", "file"])
def test_plugins_behind_feature_gates_take_part_if_the_gates_are_open(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "job.yaml", trainjob())
    gates = ["--feature-gates", "TrainJobStatus=true"]
    if where == "file":
        sections = {"featureGates": {"TrainJobStatus": True}, "certManagement": {"webhookServiceName": "ours"}}
        gates = ["--config", configuration(tmp_path / "config.yaml", **sections)]
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


EXAMPLES = ["examples/deepspeed", "examples/flux", "examples/torchtune", "examples/v1/mpijob.yaml"]


def render(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["render", *arguments]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("where", [*EXAMPLES, *built_in_names()])
def test_without_comments_it_is_as_rendered(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ROOT / where
    if where not in EXAMPLES:
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(trainjob(where)))
    plain, explained = (render(capsys, "-f", str(file), *more).splitlines() for more in ([], ["--explain"]))
    assert len(plain) == len(explained) > 10
    for line, commented in zip(plain, explained, strict=True):
        assert re.fullmatch(re.escape(line) + r"( *  # \S.*)?", commented)
    told = [commented[len(line) :].lstrip(" #") for line, commented in zip(plain, explained, strict=True)]
    fields = json.loads(render(capsys, "-f", str(file), "--explain", "-o", "json"))
    assert [step for step in told if step] == [each["step"] for each in fields], "one for each value, in their order"


def test_json_is_a_list_of_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(trainjob(trainer={"image": "mine:1"})))
    arguments = ["-f", str(file), "--only", "JobSet"]
    fields = json.loads(render(capsys, *arguments, "--explain", "-o", "json"))
    path = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].image"
    assert {"object": "JobSet demo", "path": path, "step": "TrainJob spec.trainer.image"} in fields
    (jobset,) = json.loads(render(capsys, *arguments, "-o", "json"))["items"]
    assert len(fields) == len({each["path"] for each in fields}) == len(list(leaves(jobset, set_by("", jobset))))


def test_secrets_are_told_only_on_request_and_what_would_be_refused_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(trainjob("deepspeed-distributed")))
    arguments = ["-f", str(file), "--only", "Secret", "--explain"]
    assert set(load_yaml(printed := render(capsys, *arguments))["data"].values()) == {"<redacted>"}
    assert re.search(r"ssh-privatekey: <redacted> +# plugin mpi in build\n", printed)
    assert "<redacted>" not in load_yaml(render(capsys, *arguments, "--show-secrets"))["data"].values()
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(trainjob(trainr={})))
    assert render(capsys, "-f", str(file), "--explain", code=1) == ""


def test_a_pod_of_a_job_is_of_its_template_or_of_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples/v1/pytorchjob.yaml")
    fields = json.loads(render(capsys, "-f", file, "--only", "Pod", "--explain", "-o", "json"))
    steps = {(each["object"], each["path"]): each["step"] for each in fields}
    worker = "Pod pytorchjob-worker-0"
    assert steps[worker, "spec.containers[0].image"] == "PyTorchJob spec.pytorchReplicaSpecs.Worker.template"
    assert steps[worker, "spec.restartPolicy"] == "PyTorchJob spec.pytorchReplicaSpecs.Worker.restartPolicy"
    assert steps[worker, "metadata.name"] == "kind PyTorchJob"
    assert "kind PyTorchJob" in {step for (_, path), step in steps.items() if ".env[" in path}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.lists(st.integers(0, 9), max_size=12) | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
@example({"a": "x\u2028y\nz", "b": "\x85", "c": "e\x85f\n", "d": "x\n\u2029\n", "e": " \n lead", "f": "tab\t\n"})
@example({"numbers": list(range(20)), "anchor": "&a", "y": "y", "comment": "a # b", "bars": "|\n>\n"})
def test_whatever_is_in_an_object_stays_what_it_is(obj: JsonObject) -> None:
    text = with_comments(obj, set_by("some step (acme.io/x)", obj))
    assert load_yaml(text) == load_yaml(to_yaml(obj))
    assert text.count("  # some step (acme.io/x)\n") >= 1


def test_long_lines_are_whole() -> None:
    """The writer of YAML folds what is longer than a million characters, and no comment may get into it."""
    obj = {"plain": "word " * 210_000, "quoted": "word: " * 210_000, "after": {}}
    is_same = load_yaml(with_comments(obj, set_by("runtime", obj))) == obj
    assert is_same
