"""Jobs of `kubeflow.org/v1` in files: `validate` and `render` know them, `run` says that it does not follow them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.acmejob import install_acmejob
from support.commands import Ran
from support.job_kinds import job_object

from trainmaster.controller.cli import main
from trainmaster.controller.cli.files.manifests import load_manifests
from trainmaster.controller.cli.run.submit import Diagnosis, require_jobs
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml_documents

KINDS = {kind.kind: kind for kind in load_job_kinds()}
HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(*objects: JsonObject) -> str:
    Path("jobs.yaml").write_text(yaml.safe_dump_all(objects))
    return "jobs.yaml"


def pytest_job(**spec: Any) -> JsonObject:
    obj = job_object(KINDS["PyTorchJob"], {"Master": 1, "Worker": 3}, name="pytest", **spec)
    del obj["metadata"]["uid"], obj["metadata"]["namespace"]
    return obj


WRONG = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: pytest
spec:
  runPolicy:
    cleanPodPolicy: Some
  pytorchReplicaSpecs:
    Master:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            imag: a
    Wrker:
      template: {}
---
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: jax}
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: many
---
apiVersion: kubeflow.org/v1
kind: PytorchJob
metadata: {name: other}
---
apiVersion: kubeflow.org/v1beta2
kind: TFJob
metadata: {name: old}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: of-the-mpi-operator}
---
apiVersion: kubeflow.org/v1
kind: Notebook
metadata: {name: of-others}
"""


def test_everything_that_is_wrong_is_told_with_its_place(ran: Ran) -> None:
    Path("jobs.yaml").write_text(WRONG)
    printed = ran("validate", "-f", "jobs.yaml", code=1)
    specs = "PyTorchJob pytest: spec.pytorchReplicaSpecs"
    containers = f"{specs}[Wrker].template.spec.containers: Required value"
    assert [line.removeprefix("jobs.yaml:") for line in printed.out.splitlines()] == [
        (
            "warning: MPIJob of kubeflow.org/v2beta1 belongs to the MPI operator, and is not checked: leave it to that "
            "operator, or write a TrainJob with a runtime of mlPolicy.mpi, which starts ranks by ssh as well"
        ),
        (
            '7:5: warning: PyTorchJob pytest: spec.runPolicy.cleanPodPolicy: "Some" is none of All, Running, None, and '
            "is taken for All"
        ),
        f"10:7: error: {specs}[Master].replicas: Forbidden: must be 1",
        f"14:13: error: {specs}[Master].template.spec.containers[0].image: Required value: must be required",
        f'15:13: error: {specs}.Master.template.spec.containers[0].imag: unknown field (did you mean "image"?)',
        f'16:5: error: {specs}[Wrker]: Unsupported value: "Wrker": supported values: "Master", "Worker"',
        f"17:7: error: {containers}: must be specified",
        f"17:7: error: {containers}: must have at least one container with name pytorch",
        (
            '25:7: error: JAXJob jax: spec.jaxReplicaSpecs.Worker.replicas: Invalid value: "string": '
            'spec.jaxReplicaSpecs.Worker.replicas in body must be of type integer: "string"'
        ),
        '28:1: error: PytorchJob other: kind: kubeflow.org/v1 has no kind "PytorchJob" (did you mean "PyTorchJob"?)',
        "31:1: error: TFJob old: apiVersion: there is no version v1beta2 of TFJob, but v1",
    ]
    assert printed.err == ("trainmaster: 4 objects checked, 9 errors, 2 warnings, not checked: MPIJob, Notebook\n")


def test_a_job_of_each_kind_is_found_in_order(ran: Ran) -> None:
    for name, kind in KINDS.items():
        replicas = {"MPIJob": {"Launcher": 1, "Worker": 1}, "XGBoostJob": {"Master": 1}}.get(name, {"Worker": 1})
        assert (
            ran("validate", "-f", write(job_object(kind, replicas))).err
            == "trainmaster: 1 object checked, 0 errors, 0 warnings\n"
        )


def test_a_wrong_job_is_neither_valid_nor_rendered(ran: Ran) -> None:
    assert (
        "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"
        in ran("validate", "-f", write(job_object(KINDS["MPIJob"], {"Worker": 1})), code=1).out
    )
    printed = ran("render", "-f", write(job_object(KINDS["XGBoostJob"], {"Worker": 1})), code=1)
    assert printed.out == ""
    assert "error: XGBoostJob demo: spec.xgbReplicaSpecs[Master]: Required value: must be present" in printed.err


def test_a_kind_of_others_is_checked_by_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    install_acmejob(tmp_path, monkeypatch)
    job = {"apiVersion": "kubeflow.org/v1", "kind": "AcmeJob", "metadata": {"name": "a"}, "spec": {}}
    assert ran("validate", "-f", write(job), code=1).out.splitlines() == [
        "warning: nobody offers the schema of AcmeJob: names and types of its fields are unchecked",
        "jobs.yaml:5:1: error: AcmeJob a: spec.acmeReplicaSpecs: Required value: must be required",
    ]


def test_a_kind_of_another_group_is_known_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    install_acmejob(tmp_path, monkeypatch, group="acme.example")
    replicas = {"Worker": {"template": {"spec": {"containers": [{"name": "acme", "image": "a"}]}}}}
    job = {"apiVersion": "acme.example/v1", "kind": "AcmeJob", "metadata": {"name": "a"}}
    file = write({**job, "spec": {"acmeReplicaSpecs": replicas}})
    assert "name: a-worker-0" in ran("render", "-f", file, "--only", "Pod").out
    manifests = load_manifests([file])
    require_jobs(manifests, Diagnosis(manifests, namespace=None))


def test_a_kind_that_fails_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(job_object(KINDS["JAXJob"], {"Worker": 1}))
    with monkeypatch.context() as patched:
        patched.setattr(type(KINDS["JAXJob"]), "set_cluster_spec", lambda *_: 1 / 0)
        for command in ("validate", "render"):
            assert main([command, "-f", file]) == 1
            text = "JAXJob demo: spec: the kind JAXJob cannot judge it: ZeroDivisionError: division by zero"
            assert text in "".join(capsys.readouterr())
    monkeypatch.setattr(type(KINDS["JAXJob"]), "build", lambda *_: 1 / 0)
    assert ran("render", "-f", file, code=2).err == (
        "trainmaster: jobs.yaml:1: JAXJob demo: the kind JAXJob cannot build it: ZeroDivisionError: division by zero\n"
    )


def test_a_job_becomes_pods_and_services(ran: Ran) -> None:
    objects = [
        document for _, document in load_yaml_documents(ran("render", "-f", write(pytest_job()), "-n", "team").out)
    ]
    names = ["pytest-master-0", "pytest-worker-0", "pytest-worker-1", "pytest-worker-2"]
    for kind in ("Pod", "Service"):
        assert [each["metadata"]["name"] for each in objects if each["kind"] == kind] == names
    assert {each["metadata"]["namespace"] for each in objects} == {"team"}
    assert len(objects) == 8


def test_kinds_and_gang_scheduler_are_those_of_the_configuration(ran: Ran) -> None:
    Path("config.yaml").write_text(f"{HEAD}trainingOperator: {{gangSchedulerName: volcano}}\n")
    file = write(pytest_job())
    (group,) = yaml.safe_load(
        ran("render", "-f", file, "--config", "config.yaml", "--only", "podgroup", "-o", "json").out
    )["items"]
    assert (group["metadata"]["name"], group["spec"]["minMember"], group["spec"]["queue"]) == ("pytest", 4, "default")
    Path("config.yaml").write_text(f"{HEAD}trainingOperator: {{enableScheme: [jaxjob]}}\n")
    assert (
        ran("render", "-f", write(pytest_job()), "--config", "config.yaml", code=1).err
        == "trainmaster: no job in the files; there is nothing to render\n"
    )


def test_what_a_job_becomes_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    mpi = ["Role", "RoleBinding", "ServiceAccount", "ConfigMap", "Pod", "Pod"]
    for kind, replicas, kinds in (("MPIJob", {"Launcher": 1, "Worker": 1}, mpi), ("JAXJob", {"Worker": 0}, [])):
        main(["render", "-f", write(job_object(KINDS[kind], replicas))])
        objects = [document for _, document in load_yaml_documents(capsys.readouterr().out)]
        assert [each["kind"] for each in objects] == kinds
        assert all(each["metadata"]["ownerReferences"][0]["kind"] == kind for each in objects)
    main(["render", "-f", write(pytest_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))])
    assert capsys.readouterr().out == "", "of another controller"
