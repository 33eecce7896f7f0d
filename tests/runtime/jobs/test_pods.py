"""Pods and Services of jobs, as far as they are the same for all kinds."""

from __future__ import annotations

import pytest
from support.jobworld import KINDS, pytorchjob, replicas

from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import build_pod, build_service
from trainmaster.runtime.jsontree import JsonObject, copy_tree


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
