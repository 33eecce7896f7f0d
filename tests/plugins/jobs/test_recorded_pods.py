"""The pods that the Training Operator made of jobs, as recorded: ours are given the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.golden import load_yaml, recorded_cases

from trainmaster.runtime.api.constants import COSCHEDULING_POD_LABEL
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject

KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
PROFILES: dict[str, JsonObject] = {
    "custom": {
        "options": {
            "pytorchjob": {"initContainerImage": "registry.example/tools/busybox:9", "initContainerMaxTries": 7}
        },
        "cluster_domain": "corp.example",
    }
}
"""How the operator was started: what differs from the default."""


def created(case: JsonObject) -> Iterator[JsonObject]:
    """The jobs that were created first."""
    for action in case["steps"][0]["do"]:
        if (obj := action.get("create")) and obj["kind"] in KINDS:
            yield obj


LOADED = {name: load_yaml(text) for name, text in recorded_cases("v1").items()}
JOBS = {
    name: (case, obj)
    for name, case in LOADED.items()
    for obj in created(case)
    # Without what a test of its own is about, and without pods of others.
    if case["expect"][case["steps"][0]["stage"]].get("pods")
    and case["given"]["profile"] != "template"
    and not case["given"].get("objects")
}


def kind_of(case: JsonObject, obj: JsonObject) -> JobKind:
    settings = PROFILES.get(case["given"]["profile"], {})
    return next(each for each in load_job_kinds(**settings) if each.kind == obj["kind"])


def pods(job: Job) -> dict[str, JsonObject]:
    built = (build_pod(job, each, index) for each, spec in job.replica_specs.items() for index in range(spec.replicas))
    return {pod["metadata"]["name"]: pod for pod in built}


def told(pod: JsonObject) -> Any:
    """What a pod is told of the others: by container its environment and ports; who waits for them; its labels."""
    spec = pod["spec"]
    env = {each["name"]: each.get("env") or [] for each in spec["containers"]}
    ports = {each["name"]: sorted(map(str, each.get("ports") or [])) for each in spec["containers"]}
    unlike = {"image", "command", "imagePullPolicy"}
    waiting = [{key: each[key] for key in each.keys() - unlike} for each in spec.get("initContainers") or []]
    labels = {name: value for name, value in pod["metadata"]["labels"].items() if name != COSCHEDULING_POD_LABEL}
    return env, ports, waiting, labels, spec["restartPolicy"]


def improve(pod: JsonObject) -> None:
    """Change a recorded pod where we differ on purpose."""
    for container in pod["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == "PET_STANDALONE":
                variable["value"] = "1"  # V1-B14; it was empty
            if variable["name"] == "TF_CONFIG":
                variable["value"] = variable["value"].replace('"ps":null', '"ps":[]')  # V1-B39


@pytest.mark.parametrize(("case", "obj"), JOBS.values(), ids=JOBS.keys())
def test_pods_are_told_what_was_recorded(case: JsonObject, obj: JsonObject) -> None:
    """But for the image and the command of the init container (V1-B22)."""
    namespace = case["given"].get("namespace", "NS")
    kind = kind_of(case, obj)
    job = parse_job(kind, {**obj, "metadata": {**obj["metadata"], "namespace": namespace, "uid": "1"}})
    recorded = case["expect"][case["steps"][0]["stage"]]["pods"]
    ours = pods(job)
    assert ours.keys() == recorded.keys()
    for name, pod in recorded.items():
        improve(pod)
        assert told(ours[name]) == told(pod)


def test_every_kind_was_recorded() -> None:
    assert {obj["kind"] for _, obj in JOBS.values()} == set(KINDS)
