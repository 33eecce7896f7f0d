"""PyTorchJob: the environment of torch.distributed, init container, autoscaler, what is admitted, how it ends."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.job_kinds import environment, job, outcome, problems, replica, warnings

from trainmaster.devcluster.apiserver.admission.plugins.podsecurity import violations
from trainmaster.plugins.jobs.initcontainer import InitContainerOptions, InitContainers
from trainmaster.plugins.jobs.pytorchjob import PyTorchJob
from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.loader import load_job_kinds, option_problems
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS

KIND = PyTorchJob()
ELASTIC: JsonObject = {"minReplicas": 1, "maxReplicas": 2}


def elastic_job(policy: JsonObject, workers: int = 2) -> Job:
    return job(KIND, {"Worker": workers}, name="e", elasticPolicy=policy)


@pytest.mark.defect("V1-B15")
@pytest.mark.parametrize(("processes", "world"), [("2", "4"), ("auto", "2"), ("-", "2"), ("1_0", "2"), ("", "2")])
def test_the_world_counts_processes_where_their_number_is_known(processes: str, world: str) -> None:
    """V1-B15: while the rank stays that of the node. torchrun makes both right; jobs count on what there is."""
    env = environment(job(KIND, {"Master": 1, "Worker": 1}, nprocPerNode=processes), "Worker", 0)
    expected = {"WORLD_SIZE": world, "RANK": "1", "PET_NPROC_PER_NODE": processes, "PET_NNODES": "2"}
    assert {name: env[name] for name in expected} == expected


def test_workers_without_a_master_know_their_number_only() -> None:
    expected = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "2"}
    assert environment(job(KIND, {"Worker": 2}), "Worker", 1) == expected


def test_the_operators_variables_come_last_in_all_containers() -> None:
    """V1-B38: as in the original they win over the user's, also in sidecars."""
    master = replica(KIND, 1, env=[{"name": "RANK", "value": "user"}])
    master["template"]["spec"]["containers"].append({"name": "side", "image": "side:1"})
    master["template"]["spec"]["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
    pod = build_pod(job(KIND, {"Master": master}), "Master", 0)["spec"]
    trainer, side = pod["containers"]
    assert [each["value"] for each in trainer["env"] if each["name"] == "RANK"] == ["user", "0"]
    assert trainer["env"][1:] == side["env"]
    assert pod["initContainers"] == [{"name": "fetch", "image": "fetch:1"}]


@pytest.mark.parametrize(
    ("policy", "nnodes"),
    [({"minReplicas": 1}, "1:1"), ({"maxReplicas": 4}, "4:4"), ({"minReplicas": 1, "maxReplicas": 4}, "1:4")],
)
def test_limits_of_an_elastic_job_are_filled_in(policy: JsonObject, nnodes: str) -> None:
    assert environment(elastic_job(policy), "Worker", 0)["PET_NNODES"] == nnodes


@pytest.mark.defect("V1-B13")
@pytest.mark.parametrize("conf", [[], None])
def test_a_rendezvous_without_settings_is_none(conf: list[JsonObject] | None) -> None:
    """V1-B13: an empty list crashed the original."""
    assert "PET_RDZV_CONF" not in environment(elastic_job({**ELASTIC, "rdzvConf": conf}), "Worker", 0)


@pytest.mark.defect("V1-B14")
def test_torchrun_can_read_that_a_node_stands_alone() -> None:
    """V1-B14: torchrun reads a number, and fails with an empty text."""
    assert environment(elastic_job({**ELASTIC, "standalone": True}), "Worker", 0)["PET_STANDALONE"] == "1"
    assert "PET_STANDALONE" not in environment(elastic_job({**ELASTIC, "standalone": False}), "Worker", 0)


@pytest.mark.defect("V1-B23")
@pytest.mark.parametrize("metrics", [[], [{"type": "Resource", "resource": {"name": "cpu"}}]])
def test_metrics_make_an_autoscaler_that_ends_with_the_job(metrics: list[JsonObject]) -> None:
    """V1-B23: it is among what a job has while it is neither suspended nor finished."""
    (hpa,) = KIND.build(elastic_job({**ELASTIC, "metrics": metrics}), [], NO_LISTERS)
    assert hpa == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "e"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "e"},
            "minReplicas": 1,
            "maxReplicas": 2,
            **({"metrics": metrics} if metrics else {}),
        },
    }
    assert not KIND.keeps_objects
    assert [(each.kind, each.writes) for each in KIND.watches()] == [("HorizontalPodAutoscaler", True)]


@pytest.mark.defect("V1-B23")
@pytest.mark.parametrize("policy", [None, {}, {**ELASTIC, "metrics": None}])
def test_without_metrics_nothing_scales(policy: JsonObject | None) -> None:
    assert list(KIND.build(job(KIND, {"Worker": 2}, elasticPolicy=policy), [], NO_LISTERS)) == []


@pytest.mark.defect("V1-B17")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            {"minReplicas": 3, "maxReplicas": 2},
            "minReplicas: Invalid value: 3: must be less than or equal to maxReplicas",
        ),
        ({"minReplicas": 0}, "minReplicas: Invalid value: 0: must be greater than or equal to 1"),
        ({"minReplicas": 1, "maxReplicas": -1}, "maxReplicas: Invalid value: -1: must be greater than or equal to 1"),
    ],
)
def test_limits_that_no_number_of_workers_is_within_are_refused(policy: JsonObject, expected: str) -> None:
    """V1-B17: torchrun fails with them, and so does the autoscaler."""
    (problem,) = problems(elastic_job(policy))
    assert problem.startswith(f"spec.elasticPolicy.{expected}")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"elasticPolicy": {"rdzvPort": "2379"}}, 'spec.elasticPolicy.rdzvPort: must be an integer, got "2379"'),
        ({"elasticPolicy": [1]}, "spec.elasticPolicy: must be an object, got a list"),
        ({"elasticPolicy": {"rdzvConf": ["a"]}}, 'spec.elasticPolicy.rdzvConf[0]: must be an object, got "a"'),
    ],
)
def test_fields_of_wrong_types_are_named(spec: JsonObject, expected: str) -> None:
    with pytest.raises(ApiTypeError) as error:
        job(KIND, {"Worker": 1}, **spec)
    assert str(error.value) == expected


@pytest.mark.defect("V1-B16")
@pytest.mark.parametrize(("workers", "metrics", "warned"), [(2, [], False), (None, [], True), (None, None, False)])
def test_the_autoscaler_sees_no_default(workers: int | None, metrics: Any, warned: bool) -> None:
    """V1-B16: the number of workers that it reads, and sets, is the one that is stored."""
    found = warnings(job(KIND, {"Worker": workers}, elasticPolicy={"metrics": metrics}))
    assert [each.partition(":")[0] for each in found] == ["spec.pytorchReplicaSpecs[Worker].replicas"] * warned


READABLE = ("1", "8", "auto", "cpu", "gpu", "xpu")


@pytest.mark.parametrize("number", [*READABLE, "two", "0", "1.5", ""])
def test_a_number_of_processes_that_torchrun_cannot_read_is_warned_of(number: str) -> None:
    warning = (
        "spec.nprocPerNode: torchrun knows a number from 1 on, auto, cpu, gpu and xpu, and fails unless "
        f'"{number}" is the name of a type of devices'
    )
    assert list(warnings(job(KIND, {"Master": 1}, nprocPerNode=number))) == ([] if number in READABLE else [warning])


RUNNING = "Running: PyTorchJob demo is running."
RUNNING_WORKERS = "Running: PyTorchJob team/demo is running."
RESTARTING = "Restarting: PyTorchJob demo is restarting because 1 {} replica(s) failed."
FAILED = "Failed: PyTorchJob demo is failed because 1 {} replica(s) failed."


@pytest.mark.parametrize(
    ("policy", "counts", "expected"),
    [
        ("OnFailure", {"Worker": (2,)}, []),
        ("OnFailure", {"Master": (1,)}, [RUNNING]),
        ("OnFailure", {"Master": (0, 1), "Worker": (2,)}, ["Succeeded: PyTorchJob demo is successfully completed."]),
        ("Never", {"Master": (0, 0, 1), "Worker": (2,)}, [FAILED.format("Master")]),
        ("Never", {"Master": (0, 1), "Worker": (0, 0, 1)}, ["Succeeded: PyTorchJob demo is successfully completed."]),
    ],
)
def test_the_master_says_how_a_job_fares(policy: str, counts: Any, expected: list[str]) -> None:
    given = job(KIND, {"Worker": replica(KIND, 2, policy), "Master": replica(KIND, 1, policy)})
    assert outcome(given, **counts) == expected


@pytest.mark.parametrize(
    ("elastic", "counts", "expected"),
    [
        (None, {"Worker": (2,)}, [RUNNING_WORKERS]),
        (None, {"Worker": (1, 1)}, [RUNNING_WORKERS]),
        (None, {"Worker": (0, 2)}, ["Succeeded: PyTorchJob team/demo successfully completed."]),
        ({}, {"Worker": (1, 1)}, ["Succeeded: PyTorchJob team/demo successfully completed."]),
        ({}, {"Worker": (0, 0, 1)}, [RESTARTING.format("Worker")]),
    ],
)
def test_workers_without_master_say_it_themselves(elastic: JsonObject | None, counts: Any, expected: list[str]) -> None:
    assert outcome(job(KIND, {"Worker": 2}, elasticPolicy=elastic), **counts) == expected


@pytest.mark.defect("V1-B12")
@pytest.mark.parametrize("order", [("Master", "Worker"), ("Worker", "Master")])
def test_the_order_in_which_types_are_written_changes_nothing(order: tuple[str, str]) -> None:
    """V1-B12: with a running master and a failed worker the state flipped between Running and Restarting."""
    replicas = {"Master": replica(KIND, 1), "Worker": replica(KIND, 2)}
    given = job(KIND, {each: replicas[each] for each in order})
    assert outcome(given, Master=(1,), Worker=(1, 0, 1)) == [RUNNING, RESTARTING.format("Worker")]
    assert outcome(given, Master=(0, 1), Worker=(1, 0, 1)) == ["Succeeded: PyTorchJob demo is successfully completed."]


def test_of_an_elastic_job_with_a_master_one_worker_is_not_enough() -> None:
    given = job(KIND, {"Master": 1, "Worker": 2}, elasticPolicy={})
    assert outcome(given, Master=(1,), Worker=(1, 1)) == [RUNNING]


TEMPLATE = """
- name: wait-a
  image: {{.InitContainerImage}}
  command: ["sh", "-c", "echo {{.MasterAddr}} {{ .MaxTries }}"]
- name: wait-b
  image: registry.example/b:1
  args: ["{{- .MasterAddr -}}"]
"""


def build(template: str | None = None, tries: int | None = None) -> list[JsonObject]:
    options = InitContainerOptions(init_container_template=template, init_container_max_tries=tries)
    return InitContainers(options).build("demo-master-0", {})


def test_workers_of_a_master_wait_for_it_after_what_the_user_has_them_do() -> None:
    kind = PyTorchJob()
    worker = {"template": {"spec": {"initContainers": [{"name": "fetch"}], "containers": [{"name": "pytorch"}]}}}
    given = job(kind, {"Master": 1, "Worker": worker})
    waiting = build_pod(given, "Worker", 0)["spec"]["initContainers"]
    assert [each["name"] for each in waiting] == ["fetch", "init-pytorch"]
    assert waiting[1]["resources"]["limits"] == {"cpu": "100m", "memory": "20Mi"}
    assert waiting[1]["imagePullPolicy"] == "IfNotPresent"
    assert "initContainers" not in build_pod(given, "Master", 0)["spec"]
    assert "initContainers" not in build_pod(job(kind, {"Worker": 2}), "Worker", 1)["spec"]


@pytest.mark.parametrize("of_pod", [True, False])
def test_workers_that_meet_the_restricted_standard_still_do_when_they_wait(of_pod: bool) -> None:
    user = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    privileges = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    worker = replica(KIND, 1, securityContext=privileges if of_pod else {**user, **privileges})
    if of_pod:
        worker["template"]["spec"]["securityContext"] = user
    spec = build_pod(job(KIND, {"Master": 1, "Worker": worker}), "Worker", 0)["spec"]
    assert [*violations(spec, "restricted")] == []
    (waiting,) = spec["initContainers"]
    assert ("runAsUser" in waiting["securityContext"]) != of_pod
    plain = build_pod(job(KIND, {"Master": 1, "Worker": 1}), "Worker", 0)["spec"]["initContainers"]
    assert plain[0]["securityContext"] == privileges


def run(script: str, tmp_path: Path, *, resolves_at: int, by: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the container, with tools of which the named one finds the master at the given attempt."""
    (tmp_path / "count").write_text("")
    count = f'echo >> {tmp_path}/count; test "$*" = "{"hosts demo-master-0" if by == "getent" else "demo-master-0"}"'
    tools = {"sleep": "true", by: f'{count} && test "$(wc -l < {tmp_path}/count)" -ge {resolves_at}'}
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("seq", "wc"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    environment = {**os.environ, "PATH": str(tmp_path)}
    command = ["/bin/sh", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.nightly
@pytest.mark.defect("V1-B22")
@pytest.mark.parametrize(
    ("by", "tries", "resolves_at", "code"),
    [("getent", None, 150, 0), ("nslookup", 3, 3, 0), ("getent", 3, 4, 1), ("nslookup", None, 1, 0)],
)
def test_they_wait_for_the_master(tmp_path: Path, by: str, tries: int | None, resolves_at: int, code: int) -> None:
    """V1-B22: the original gave up after 100 attempts. Images have getent or nslookup, not always both."""
    (container,) = build(tries=tries)
    assert container["command"][:2] == ["sh", "-c"]
    ended = run(container["command"][2], tmp_path, resolves_at=resolves_at, by=by)
    assert ended.returncode == code
    assert ended.stdout.count("waiting for master") == (tries if code and tries else resolves_at - 1)


@pytest.mark.defect("V1-B22")
def test_the_image_is_maintained() -> None:
    """V1-B22: alpine:3.10 has had no security updates for years."""
    assert build()[0]["image"] == "alpine:3"


def test_a_template_is_filled_in_for_each_pod_anew() -> None:
    containers = InitContainers(InitContainerOptions(init_container_template=TEMPLATE))
    expected = [
        {"name": "wait-a", "image": "alpine:3", "command": ["sh", "-c", "echo demo-master-0 100"]},
        {"name": "wait-b", "image": "registry.example/b:1", "args": ["demo-master-0"]},
    ]
    for _ in range(2):
        built = containers.build("demo-master-0", {})
        assert built == expected
        built[0]["command"].append("changed")
    assert build(TEMPLATE, tries=7)[0]["command"][2] == "echo demo-master-0 7"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"initContainerTemplate": "- name: a\n  image: {{.Image}}"}, "{{.Image}} stands for nothing (there are: "),
        ({"initContainerTemplate": "- {name: a, image: {{.MasterAdr}}}"}, 'nothing (did you mean ".MasterAddr"?)'),
        ({"initContainerTemplate": "- name: ["}, "initContainerTemplate: is no YAML: "),
        (
            {"initContainerTemplate": "name: a"},
            "initContainerTemplate: must be a list of containers, of which each has",
        ),
        ({"initContainerMaxTries": 0}, "initContainerMaxTries: must be 1 or more, got 0; leave it out for no limit"),
        ({"initContainerMaxTries": "7"}, 'initContainerMaxTries: must be an integer, got "7"'),
    ],
)
def test_options_that_make_no_container_are_refused_at_start(options: JsonObject, expected: str) -> None:
    (problem,) = option_problems(PyTorchJob, options)
    assert problem.startswith("trainingOperator.options.pytorchjob.initContainer")
    assert expected in problem
    with pytest.raises(PluginInvalid, match="does not accept its options"):
        load_job_kinds(enabled=["PyTorchJob"], options={"pytorchjob": options})
