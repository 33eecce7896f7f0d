"""Our kinds of jobs keep to the interface: by the kit, and with generated jobs."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import load_yaml, recorded_cases
from support.job_kinds import replica
from support.original_crds import definition

from trainmaster.runtime.jobs.conformance import check_job_kind
from trainmaster.runtime.jobs.constants import installed_kinds
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.pods import build_pod, build_service
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS

CASES = [load_yaml(text) for text in recorded_cases("v1").values()]

ALL: dict[str, JsonObject] = {
    "pytorchjob": {
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 3,
            "maxRestarts": 2,
            "rdzvBackend": "c10d",
            "rdzvPort": 29400,
            "rdzvHost": "host",
            "rdzvId": "id",
            "rdzvConf": [{"key": "k", "value": "v"}],
            "standalone": False,
            "nProcPerNode": 2,
            "metrics": [{"type": "Resource"}],
        }
    },
    "tfjob": {"successPolicy": "AllWorkers", "enableDynamicWorker": True},
    "mpijob": {"slotsPerWorker": 2, "cleanPodPolicy": "Running", "mainContainer": "mpi"},
    "paddlejob": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "maxRestarts": 1, "metrics": []}},
}
"""A job of each kind that has fields of its own, with all of them."""


def recorded(name: str) -> list[JsonObject]:
    """The jobs of a kind that the original admitted, as they were created; those that have the same in them once."""
    found: dict[str, JsonObject] = {}
    for case in CASES:
        for step in case["steps"]:
            results = case["expect"].get(step["stage"], {}).get("results") or []
            created = [action.get("create") for action in step["do"] if {"create", "patch", "delete"} & action.keys()]
            for obj, result in zip(created, results, strict=True):
                if obj and result == "ok" and obj["kind"].lower() == name:
                    found.setdefault(" ".join(fields(obj["spec"])), obj)
    return list(found.values())


def fields(node: Any) -> Iterator[str]:
    """The names of all fields; values do not matter, but for numbers of replicas."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield f"{name}={value}" if name == "replicas" else str(name)
        if isinstance(value, (dict, list)):
            yield from fields(value)


@pytest.mark.parametrize("name", sorted(installed_kinds()))
def test_our_kinds_conform(name: str) -> None:
    (kind,) = load_job_kinds(enabled=[name])
    replicas = {each: replica(kind, 1) for each in kind.replica_types if name != "tfjob" or each != "Master"}
    everything: JsonObject = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "everything"},
        "spec": {kind.replica_specs_field: replicas, **ALL.get(name, {})},
    }
    samples = [everything, *recorded(name)]
    check_job_kind(name, samples, definition=definition(kind.kind), cluster_domain="corp.example")


@pytest.mark.parametrize("transport", ["kubectl-exec", "ssh"])
def test_mpijobs_conform_by_each_transport(transport: str) -> None:
    check_job_kind("mpijob", recorded("mpijob"), options={"transport": transport})


def test_there_is_a_class_for_each_kind_of_the_original() -> None:
    wanted = {"pytorchjob", "tfjob", "xgboostjob", "mpijob", "paddlejob", "jaxjob"}
    assert wanted <= set(installed_kinds())


KINDS = load_job_kinds(cluster_domain="corp.example")

numbers = st.none() | st.integers(-1, 4)
texts = st.none() | st.sampled_from(["", "auto", "2", "c10d", "AllWorkers", "a b"])
settings = st.lists(st.fixed_dictionaries({}, optional={"key": texts, "value": texts}), max_size=2)
elastic = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["minReplicas", "maxReplicas", "maxRestarts", "rdzvPort", "nProcPerNode"], numbers),
        **dict.fromkeys(["rdzvBackend", "rdzvHost", "rdzvId"], texts),
        "rdzvConf": st.none() | settings,
        "standalone": st.none() | st.booleans(),
        "metrics": st.none() | st.just([]) | st.just([{"type": "Resource"}]),
    },
)
own_fields: dict[str, st.SearchStrategy[Any]] = {
    "elasticPolicy": st.none() | elastic,
    "nprocPerNode": texts,
    "successPolicy": texts,
    "enableDynamicWorker": st.none() | st.booleans(),
    "slotsPerWorker": numbers,
    "mainContainer": texts,
    "cleanPodPolicy": texts,
}
"""Fields that some kind has of its own; with a value of another type now and then."""


@st.composite
def replicas(draw: st.DrawFn, kind: JobKind) -> JsonObject:
    ports = st.fixed_dictionaries(
        {"containerPort": st.integers(1, 65535)}, optional={"name": st.sampled_from([kind.port_name or "ssh", "web"])}
    )
    rest = st.fixed_dictionaries(
        {}, optional={"ports": st.lists(ports, max_size=2), "env": st.just([{"name": "RANK", "value": "1"}])}
    )
    containers = [
        {"name": name, "image": "train:1", **draw(rest)}
        for name in draw(st.sampled_from([[kind.container_name], ["side", kind.container_name], ["side"]]))
    ]
    spec: JsonObject = {"containers": containers, "initContainers": []}
    # Most are complete, so that many jobs are admitted.
    for missing in draw(st.sampled_from([[], [], [], ["initContainers"], ["containers"]])):
        del spec[missing]
    given = {
        "replicas": draw(st.sampled_from([None, 1, 1, 2, 3, 0, -1])),
        "restartPolicy": draw(st.sampled_from([None, "Always", "OnFailure", "Never", "ExitCode", "Odd"])),
        "template": {"spec": spec},
    }
    return {name: value for name, value in given.items() if value is not None}


@st.composite
def jobs(draw: st.DrawFn) -> tuple[JobKind, JsonObject]:
    kind = draw(st.sampled_from(KINDS))
    lower = [each.lower() for each in kind.replica_types]
    types = st.sampled_from([*kind.replica_types, *kind.replica_types, *lower, "Odd"])
    spec = draw(st.fixed_dictionaries({}, optional=own_fields))
    for name in draw(st.lists(st.sampled_from(list(own_fields)), max_size=1)):
        spec[name] = draw(numbers | texts)
    spec[kind.replica_specs_field] = draw(st.dictionaries(types, replicas(kind), min_size=1, max_size=3) | st.none())
    metadata = {"name": "demo", "namespace": "team", "uid": "1"}
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


@given(jobs(), st.data())
def test_what_is_admitted_can_be_worked_on(made: tuple[JobKind, JsonObject], data: st.DataObject) -> None:
    kind, obj = made
    if not validate_job(kind, obj, None).allowed:
        return
    job = parse_job(kind, obj)
    pods = [build_pod(job, each, index) for each, spec in job.replica_specs.items() for index in range(spec.replicas)]
    assert len({pod["metadata"]["name"] for pod in pods}) == len(pods)
    for pod in pods:
        for container in pod["spec"]["containers"]:
            assert all(isinstance(each.get("value", ""), str) for each in container.get("env") or [])
    if kind.has_services:
        for replica_type in job.replica_specs:
            build_service(job, replica_type, 0)
    for extra in kind.build(job, pods, NO_LISTERS):
        assert extra["metadata"]["name"]
    check_conditions(job, data)


def check_conditions(job: Job, data: st.DataObject) -> None:
    counts = {each: ReplicaStatus(*data.draw(st.tuples(*[st.integers(0, 3)] * 3))) for each in job.replica_specs}
    updates = list(
        job.kind.update_job_status(job, job.kind.replica_statuses(job, counts), {each: [] for each in counts})
    )
    types = [each.type for each in updates]
    assert not {"Succeeded", "Failed"} <= {*types}
    assert types.count("Succeeded") <= 1
