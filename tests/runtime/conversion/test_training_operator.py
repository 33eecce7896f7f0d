"""Recorded jobs of Training Operator V1: what they become is valid, and its pods see the variables that V1's saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from support.conversions import (
    JOB_KINDS,
    built,
    convert_job,
    converted,
    environment,
    expected_environment,
    new_host,
    pods,
    problems,
    recorded,
)
from support.generated_jobs import jobs

from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.conversion.training_operator import KINDS
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject, copy_tree

VALID = [name for name, case in recorded().items() if not case.get("refused")]
REFUSED = [name for name, case in recorded().items() if case.get("refused")]
WITH_ENVIRONMENT = [name for name in VALID if "environment" in recorded()[name]]

REFUSED_BY_V1_ALONE = {"067-xgb-invalid-master-nil-replicas": "one replica is meant, and there is one"}
"""Jobs that V1 refuses and the conversion understands."""


def test_every_kind_was_recorded() -> None:
    assert {recorded()[name]["job"]["kind"] for name in WITH_ENVIRONMENT} == set(KINDS)


@pytest.mark.parametrize("name", VALID)
def test_a_recorded_job_becomes_a_valid_runtime_and_trainjob(name: str, tmp_path: Path) -> None:
    conversion = converted(recorded()[name])
    assert [obj["kind"] for obj in conversion.objects] == ["TrainingRuntime", "TrainJob"]
    assert {obj["metadata"]["name"] for obj in conversion.objects} == {recorded()[name]["job"]["metadata"]["name"]}
    assert not problems(conversion.objects, tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_what_v1_refused_is_refused(name: str) -> None:
    if name in REFUSED_BY_V1_ALONE:
        assert converted(recorded()[name]).objects
        return
    with pytest.raises(ConversionError):
        converted(recorded()[name])


def test_converting_changes_nothing_of_the_job() -> None:
    for name in VALID:
        job = recorded()[name]["job"]
        before = copy_tree(job)
        first = convert_job(job)
        assert job == before, name
        assert convert_job(job) == first, name


@pytest.mark.parametrize("name", WITH_ENVIRONMENT)
def test_pods_see_the_variables_of_v1_with_the_new_names_of_hosts(name: str) -> None:
    case = recorded()[name]
    conversion = converted(case)
    is_torch = "torch" in conversion.objects[0]["spec"].get("mlPolicy", {})
    jobset = built(conversion)
    hosts = {old: new_host(jobset, case["job"], old) for old in case["environment"]}
    found = {host: (spec, fields) for host, spec, fields in pods(jobset)}
    assert set(hosts.values()) == set(found)
    for old, containers in case["environment"].items():
        spec, fields = found[hosts[old]]
        names = [each["name"] for each in spec["containers"]]
        old_names = list(containers)
        assert len(names) == len(old_names)
        for place, seen in enumerate(containers.values()):
            new = environment(spec["containers"][place], fields)
            wanted = expected_environment(seen, hosts, fields, is_torch=is_torch)
            assert {key: new.get(key) for key in wanted} == wanted, (old, old_names[place])


@settings(max_examples=100)
@given(jobs())
def test_pods_see_what_pods_of_v1_jobs_see(old: JsonObject) -> None:
    kind = JOB_KINDS[old["kind"]]
    job = parse_job(kind, old)
    conversion = convert_job(old)
    is_torch = "torch" in conversion.objects[0]["spec"].get("mlPolicy", {})
    jobset = built(conversion)
    found = {host: (spec, fields) for host, spec, fields in pods(jobset)}
    places = [(type_, index) for type_, each in job.replica_specs.items() for index in range(each.replicas)]
    hosts = {kind.pod_name(job, *place): new_host(jobset, old, kind.pod_name(job, *place)) for place in places}
    assert set(hosts.values()) == set(found)
    for type_, index in places:
        pod = build_pod(job, type_, index)
        spec, fields = found[hosts[pod["metadata"]["name"]]]
        for was, now in zip(pod["spec"]["containers"], spec["containers"], strict=True):
            told = {each["name"]: each.get("value", each.get("valueFrom")) for each in was.get("env", [])}
            told = {name: value for name, value in told.items() if value is None or "secretKeyRef" not in value}
            wanted = expected_environment(told, hosts, fields, is_torch=is_torch)
            seen = environment(now, fields)
            assert {name: seen.get(name) for name in wanted} == wanted, pod["metadata"]["name"]
