"""`trainmaster convert`: what is printed where, and the exit codes."""

import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from support.commands import Ran
from support.conversions import problems, recorded

from trainmaster.controller.cli import main
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml_documents

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "mine"}, "spec": {"ports": [{"port": 80}]}}


def job(kind: str = "JAXJob", *, name: str = "demo", run_policy: JsonObject | None = None, **spec: Any) -> JsonObject:
    prefix, container = {"JAXJob": ("jax", "jax"), "XGBoostJob": ("xgb", "xgboost")}[kind]
    template = {"spec": {"containers": [{"name": container, "image": "i:1"}]}}
    types = {"JAXJob": "Worker", "XGBoostJob": "Master"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            f"{prefix}ReplicaSpecs": {types[kind]: {"replicas": 1, "template": template}},
            **({"runPolicy": run_policy} if run_policy else {}),
            **spec,
        },
    }


def write(path: Path, *objects: JsonObject) -> str:
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def documents(text: str) -> list[JsonObject]:
    return [document for _, document in load_yaml_documents(text)]


def titles(objects: list[JsonObject]) -> list[str]:
    return [f"{obj['kind']} {obj['metadata']['name']}" for obj in objects]


def test_objects_are_printed_in_the_order_of_the_files_directories_and_lists(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "a.yaml", SERVICE, job(name="one"))
    second = write(tmp_path / "b.yaml", job("XGBoostJob", name="two"))
    printed = ran("convert", "-f", first, "-f", second)
    found = documents(printed.out)
    assert titles(found) == [
        "Service mine",
        "TrainingRuntime one",
        "TrainJob one",
        "TrainingRuntime two",
        "TrainJob two",
    ]
    assert found[0] == SERVICE
    assert printed.err.splitlines()[-1] == (
        "trainmaster: 2 objects converted, printed as they are: Service, 0 fields without an equivalent"
    )
    # Directories lists and standard input are read.
    directory = tmp_path / "directory"
    directory.mkdir()
    write(directory / "list.yaml", {"apiVersion": "v1", "kind": "List", "items": [job(name="one"), job(name="two")]})
    text = yaml.safe_dump(job(name="three")).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    listed = json.loads(ran("convert", "-f", str(directory), "-f", "-", "-o", "json").out)
    assert listed["kind"] == "List"
    assert titles(listed["items"])[1::2] == ["TrainJob one", "TrainJob two", "TrainJob three"]


def test_what_is_converted_can_be_converted_again_and_stays(tmp_path: Path, ran: Ran) -> None:
    first = ran("convert", "-f", write(tmp_path / "a.yaml", job())).out
    (tmp_path / "b.yaml").write_text(first)
    again = ran("convert", "-f", str(tmp_path / "b.yaml"))
    assert documents(again.out) == documents(first)
    assert "0 objects converted, printed as they are: TrainingRuntime, TrainJob" in again.err


def test_each_note_has_its_place_and_what_is_lost_is_a_comment_too(tmp_path: Path, ran: Ran) -> None:
    file = write(tmp_path / "a.yaml", job(run_policy={"cleanPodPolicy": "All"}))
    printed = ran("convert", "-f", file)
    line = next(
        number for number, text in enumerate(Path(file).read_text().splitlines(), 1) if "cleanPodPolicy" in text
    )
    assert f"trainmaster: {file}:{line}:5: lost: JAXJob demo: spec.runPolicy.cleanPodPolicy: pods that" in printed.err
    assert "1 field without an equivalent" in printed.err
    comments = [text for text in printed.out.splitlines() if text.startswith("#")]
    assert comments[0] == "# Converted from JAXJob demo (kubeflow.org/v1)."
    assert comments[1].startswith("# Lost: spec.runPolicy.cleanPodPolicy: pods that have ended are kept")
    assert len(comments) == 2


def test_strict_fails_for_what_is_lost_also_for_want_of_the_gang_scheduler(tmp_path: Path, ran: Ran) -> None:
    kept = write(tmp_path / "kept.yaml", job(run_policy={"cleanPodPolicy": "Running"}))
    lost = write(tmp_path / "lost.yaml", job(run_policy={"cleanPodPolicy": "None"}))
    assert ": note: JAXJob demo: spec.runPolicy.cleanPodPolicy: " in ran("convert", "-f", kept, "--strict").err
    without = ran("convert", "-f", lost)
    assert ran("convert", "-f", lost, "--strict", code=1) == without
    assert titles(documents(without.out))[-1] == "TrainJob demo"
    # The gang scheduler is that of v1.
    file = write(tmp_path / "a.yaml", job(run_policy={"schedulingPolicy": {"queue": "q"}}))
    assert "name the one of V1 with --gang-scheduler-name" in ran("convert", "-f", file, "--strict", code=1).err
    runtime, _ = documents(ran("convert", "-f", file, "--gang-scheduler-name", "volcano", "--strict").out)
    assert runtime["spec"]["podGroupPolicy"] == {"volcano": {}}


def test_what_cannot_be_converted_is_told_and_the_rest_is(tmp_path: Path, ran: Ran) -> None:
    wrong = job(name="wrong")
    wrong["spec"]["jaxReplicaSpecs"]["Worker"]["replicas"] = "three"
    file = write(tmp_path / "a.yaml", wrong, job(name="good"))
    printed = ran("convert", "-f", file, "-f", str(tmp_path / "none.yaml"), code=1)
    assert titles(documents(printed.out)) == ["TrainingRuntime good", "TrainJob good"]
    where = f"{file}:8:7: error: JAXJob wrong: spec.jaxReplicaSpecs.Worker.replicas"
    assert f"trainmaster: {where}: Invalid value" in printed.err
    assert f"trainmaster: {tmp_path}/none.yaml: cannot be read: No such file or directory\n" in printed.err
    assert printed.err.endswith("1 object converted, 0 fields without an equivalent, 2 errors\n")
    # Jobs that become the same trainjob are told.
    file = write(tmp_path / "a.yaml", job(), job("XGBoostJob"), SERVICE, SERVICE)
    err = ran("convert", "-f", file, code=1).err
    assert (
        f"error: XGBoostJob demo: metadata.name: JAXJob demo in {file}:1 becomes TrainingRuntime demo, too; rename"
        in err
    )
    assert err.count(" error: ") == 1


def test_every_error_is_one_line_with_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, case in recorded().items():
        if not case.get("refused"):
            continue
        file = write(tmp_path / "a.yaml", case["job"])
        code = main(["convert", "-f", file])
        lines = capsys.readouterr().err.splitlines()
        assert all(line.startswith("trainmaster: ") for line in lines), name
        if code:
            assert len(lines) > 1, name
            assert all(line.startswith(f"trainmaster: {file}:") for line in lines[:-1]), name
            assert lines[-1].endswith(", 1 error"), name


def test_files_without_objects_fail(tmp_path: Path, ran: Ran) -> None:
    for text, complaint in (
        ("", "nothing to convert: the files hold no object"),
        ("a: [\n]]", "a.yaml:2: "),
        ("kind: PyTorchJob", "apiVersion is missing"),
    ):
        (tmp_path / "a.yaml").write_text(text)
        printed = ran("convert", "-f", str(tmp_path / "a.yaml"), code=1)
        assert complaint in printed.err
        assert printed.out == ""


def test_unknown_fields_are_left_out_with_what_was_meant_and_a_comment_stays_one_line(tmp_path: Path, ran: Ran) -> None:
    # Unknown fields are left out with what was meant. The API server drops them, so they never counted; what is
    # printed has to be valid.
    odd = job(runPolice={"suspend": True})
    pod_spec = odd["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]
    pod_spec["nodeSelectors"] = {"a.b/c": "d"}
    pod_spec["containers"][0]["enw"] = []
    printed = ran("convert", "-f", write(tmp_path / "a.yaml", odd))
    for path, meant in (
        ("spec.runPolice", "runPolicy"),
        ("spec.jaxReplicaSpecs.Worker.template.spec.nodeSelectors", "nodeSelector"),
        ("spec.jaxReplicaSpecs.Worker.template.spec.containers[0].enw", "env"),
    ):
        assert f"note: JAXJob demo: {path}: left out, as the API server leaves it out" in printed.err
        assert f'(did you mean "{meant}"?)' in printed.err
    assert not problems(documents(printed.out), tmp_path)
    # A comment stays one line.
    odd = job()
    odd["metadata"]["finalizers"] = ["a/b"]
    odd["metadata"]["name"] = "demo"
    odd["spec"]["a\nkind: Secret"] = 1
    assert titles(documents(ran("convert", "-f", write(tmp_path / "a.yaml", odd)).out)) == [
        "TrainingRuntime demo",
        "TrainJob demo",
    ]


@pytest.mark.parametrize("has_schema", [True, False])
def test_odd_shapes_take_one_line(has_schema: bool, tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody offers the schema: the image of the controller has no embedded cluster."""
    if not has_schema:
        missing = Mock(side_effect=ModuleNotFoundError(name="trainmaster.devcluster"))
        monkeypatch.setattr("trainmaster.controller.cli.files.convert.check_schema", missing)
    nameless = {"containers": [{"name": "jax", "env": [{}]}]}
    texts = {"nodeSelector": "a", "containers": "b"}
    changes: list[JsonObject] = [
        {"spec": []},
        *({"spec": {"jaxReplicaSpecs": {"Worker": {"template": {"spec": each}}}}} for each in (nameless, texts)),
        {"metadata": {"name": "demo", "labels": {"a": 1}}},
    ]
    for change in changes:
        file = write(tmp_path / "a.yaml", job() | change)
        printed = ran("convert", "-f", file, code=1)
        assert printed.out == ""
        *told, summary = printed.err.splitlines()
        assert told
        assert all(line.startswith(f"trainmaster: {file}:") and " error: JAXJob demo: " in line for line in told)
        assert summary.endswith(", 1 error")


def test_jobs_that_nobody_can_convert_are_told(tmp_path: Path, ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    for api_version, kind, hint in (
        ("kubeflow.org/v1", "PytorchJob", '(did you mean "PyTorchJob of kubeflow.org/v1"?)'),
        ("kubeflow.org/v1beta2", "TFJob", '(did you mean "TFJob of kubeflow.org/v1"?)'),
        ("kubeflow.org/v2beta1", "MPIJob", None),
        ("kubeflow.org/v1", "Notebook", None),
        ("batch/v1", "Job", None),
    ):
        obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "demo"}}
        file = write(tmp_path / "a.yaml", obj)
        printed = ran("convert", "-f", file)
        assert documents(printed.out) == [obj]
        assert f"printed as they are: {kind}" in printed.err
        told = f"lost: {kind} demo: kind: printed as it is: nobody knows what it would be as a TrainJob {hint}"
        assert (told in printed.err) == (hint is not None)
        assert ("it belongs to the MPI operator; as a TrainJob" in printed.err) == (kind == "MPIJob")
        assert main(["convert", "-f", file, "--strict"]) == (1 if hint or kind == "MPIJob" else 0)
        capsys.readouterr()
