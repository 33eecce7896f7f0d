"""Pods, their templates and Services, as far as they are the same for all kinds of jobs."""

from typing import Any

import pytest
from support.job_kinds import job, job_object, replica
from support.jobworld import KINDS, pytorchjob, replicas

from trainmaster.plugins.jobs.pytorchjob import PyTorchJob
from trainmaster.plugins.jobs.tfjob import TFJob
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import build_pod, build_service, service_ports
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject, copy_tree

KIND = PyTorchJob()
WORKER = "spec.pytorchReplicaSpecs[Worker].template.spec"


def worker(spec: JsonObject | None = None, **container: Any) -> JsonObject:
    made = replica(KIND, 1, **container)
    made["template"]["spec"] |= spec or {}
    return job_object(KIND, {"Master": 1, "Worker": made})


@pytest.mark.parametrize(("workers", "most"), [(11, 53), (1000, 52)])
def test_a_name_is_short_enough_for_the_last_service(workers: int, most: int) -> None:
    replicas = {"Master": 1, "Worker": workers}
    assert validate_job(KIND, job_object(KIND, replicas, name="a" * most), None).allowed
    name = "a" * (most + 1)
    assert validate_job(KIND, job_object(KIND, replicas, name=name), None).message == (
        f'metadata.name: Invalid value: "{name}": must be no more than {most} characters: the Service of the last '
        f'Worker would be called "{name}-worker-{workers - 1}", and a Service has a name of at most 63'
    )


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            worker({"initContainers": [{"name": "init-pytorch", "image": "a"}]}),
            f"{WORKER}.initContainers: Forbidden: the pods would be refused: Duplicate value: 'init-pytorch'",
        ),
        (
            worker(ports=[{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]),
            f'{WORKER}.containers[0].ports: Forbidden: the pods would be refused: Duplicate value: "a"',
        ),
        (
            worker(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            (
                f"{WORKER}.containers[0].resources.requests: Forbidden: the pods would be refused: 2 must be less than "
                "or equal to cpu limit of 1"
            ),
        ),
        (
            worker(env=[{"name": "A=B", "value": ""}]),
            (
                f"{WORKER}.containers[0].env[0].name: Forbidden: the pods would be refused: a valid environment "
                "variable name must consist only of printable ASCII characters other than '='"
            ),
        ),
    ],
)
def test_pods_that_would_be_refused_are_refused_with_their_place(obj: JsonObject, message: str) -> None:
    assert validate_job(KIND, obj, None).message == message


def test_pods_are_judged_as_those_of_a_small_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells each pod of thousands of others would hold up whoever waits for a verdict."""
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(TFJob, "set_cluster_spec", lambda _kind, job, *_: seen.append((job.name, job.total_replicas)))
    kind = TFJob()
    replicas = {"Worker": 8_000, **{f"other{number}": 1 for number in range(1000)}}
    assert validate_job(kind, job_object(kind, replicas), None).allowed
    assert seen == [("demo", 29)] * 20


def test_what_an_admission_plugin_may_add_is_a_warning() -> None:
    result = validate_job(KIND, worker(volumeMounts=[{"name": "data", "mountPath": "/data"}]), None)
    assert result.allowed
    assert result.warnings == [
        (
            f"{WORKER}.containers[0].volumeMounts[0].name: the pods will be refused, unless an admission plugin of the "
            'cluster adds what is missing: Not found: "data"'
        )
    ]


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        {"ports": [{"containerPort": 80}, {"name": "b", "containerPort": 80}]},
    ],
)
def test_what_pods_may_have_twice_is_admitted(container: dict[str, Any]) -> None:
    result = validate_job(KIND, worker(**container), None)
    assert (result.message, list(result.warnings)) == ("", [])


@pytest.mark.defect("V1-B38")
def test_a_variable_that_the_operator_sets_is_warned_about() -> None:
    env = [{"name": "MASTER_ADDR", "value": "elsewhere"}, {"name": "LR", "value": "1"}]
    assert validate_job(KIND, worker(env=env), None).warnings == [
        f"{WORKER}.containers[0].env[0]: MASTER_ADDR has no effect: the operator sets it"
    ]


@pytest.mark.defect("V1-B21")
@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"containerPort": 23456}], [{"name": "pytorchjob-port", "port": 23456}]),
        ([{"name": "mine", "containerPort": 23456}], [{"name": "pytorchjob-port", "port": 23456}]),
        (
            [{"name": "a", "containerPort": 1}, {"name": "b", "containerPort": 1}],
            [{"name": "a", "port": 1}, {"name": "pytorchjob-port", "port": 23456}],
        ),
        (
            [{"name": "a", "containerPort": 1}, {"name": "b", "containerPort": 1, "protocol": "UDP"}],
            [
                {"name": "a", "port": 1},
                {"name": "b", "port": 1, "protocol": "UDP"},
                {"name": "pytorchjob-port", "port": 23456},
            ],
        ),
    ],
)
def test_a_service_has_each_port_once(ports: list[JsonObject], expected: list[JsonObject]) -> None:
    """A Service with the same port under two names is refused."""
    assert service_ports(job(KIND, {"Worker": replica(KIND, ports=ports)}), "Worker") == expected


def job_with(worker: JsonObject) -> Job:
    return parse_job(KINDS["PyTorchJob"], pytorchjob(master=replicas(1), worker=worker))


def with_ports(*ports: JsonObject) -> JsonObject:
    worker = replicas(1)
    worker["template"]["spec"]["containers"][0]["ports"] = list(ports)
    return worker


def test_nothing_of_the_job_is_changed_by_building() -> None:
    job = job_with(replicas(2))
    before = copy_tree(job.raw)
    first = build_pod(job, "Worker", 1)
    first["spec"]["containers"][0]["env"].clear()
    assert build_pod(job, "Worker", 1) != first
    assert job.raw == before


@pytest.mark.defect("V1-B21")
def test_a_service_publishes_pods_that_are_not_ready_and_loses_no_port() -> None:
    ports: list[JsonObject] = [
        {"containerPort": 8000},
        {"containerPort": 8001},
        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
    ]
    spec = build_service(job_with(with_ports(*ports)), "Worker", 0)["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["ports"] == [
        {"name": "port-8000", "port": 8000},
        {"name": "port-8001", "port": 8001},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "pytorchjob-port", "port": 23456},
    ]


@pytest.mark.defect("V1-B16")
def test_lower_case_types_are_taken_as_they_are_meant() -> None:
    raw = pytorchjob(master=replicas(1))
    raw["spec"]["pytorchReplicaSpecs"]["worker"] = replicas(2)
    job = parse_job(KINDS["PyTorchJob"], raw)
    assert [(name, each.replicas) for name, each in job.replica_specs.items()] == [("Master", 1), ("Worker", 2)]


def test_replicas_that_say_nothing_are_one_and_null_is_the_same() -> None:
    raw = pytorchjob(worker={"template": None, "replicas": None})
    assert parse_job(KINDS["PyTorchJob"], raw).replicas("Worker") == 1
    raw["spec"]["pytorchReplicaSpecs"]["Worker"] = None
    assert parse_job(KINDS["PyTorchJob"], raw).replicas("Worker") == 1
