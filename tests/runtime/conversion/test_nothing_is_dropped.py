"""No field of a V1 job is dropped silently: whatever a job has is found in the output again, or told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversions import JOB_KINDS, convert_job, problems
from support.generated_jobs import jobs

from trainmaster.runtime.conversion.source import leaves
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

ROOT = Path(__file__).resolve().parents[3]

MEANT_OTHERWISE = (
    *(r"apiVersion", r"kind"),
    r"spec\.\w+ReplicaSpecs\.\w+\.restartPolicy",  # that of the pods, backoffLimit and podFailurePolicy
    r"spec\.\w+ReplicaSpecs\.\w+\.replicas",  # nodes are counted together
    r"spec\.successPolicy",  # the success policy of the Job
    r"spec\.elasticPolicy\.standalone",  # the variable PET_STANDALONE
    r"spec\.runPolicy\.suspend",
)
"""Paths of leaves whose value is said by other words; each has a test of its own in test_fields.py."""


def _missing(job: JsonObject, gang_scheduler: str) -> Iterator[str]:
    conversion = convert_job(job, gang_scheduler=gang_scheduler)
    output = json.dumps(conversion.objects)
    told = {note.path for note in conversion.notes}
    for path in (path.removeprefix(".") for path in leaves(job, "")):
        if any(re.fullmatch(pattern, path) for pattern in MEANT_OTHERWISE):
            continue
        if any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in told):
            continue
        value = _value(job, path)
        if value in ({}, [], "", None) or isinstance(value, bool):
            continue  # says nothing
        if re.search(rf"(?<![\w]){re.escape(str(value))}(?![\w])", output) is None:
            yield f"{path}: {value!r}"


def _value(job: Any, path: str) -> Any:
    """The value at a path; keys of maps may have dots."""
    if not path:
        return job
    if isinstance(job, list):
        place, _, rest = path.removeprefix("[").partition("]")
        return _value(job[int(place)], rest.removeprefix("."))
    for key in job:
        if path == key or path.startswith((f"{key}.", f"{key}[")):
            return _value(job[key], path.removeprefix(key).removeprefix("."))
    raise AssertionError(path)


@settings(max_examples=150)
@given(jobs(), st.sampled_from(["", "volcano", "scheduler-plugins"]))
def test_every_leaf_is_in_the_output_or_told(job: JsonObject, gang_scheduler: str) -> None:
    assert not list(_missing(job, gang_scheduler))


def test_the_check_finds_what_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is taken and forgotten fails the test above."""
    container = {"name": "jax", "image": "i"}
    specs = {"Worker": {"template": {"spec": {"containers": [container]}}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "job"},
        "spec": {"jaxReplicaSpecs": specs, "runPolicy": {"ttlSecondsAfterFinished": 7001}},
    }
    monkeypatch.setattr("trainmaster.runtime.conversion.run_policy._convert_ttl", lambda source, *_: source.take_all())
    assert list(_missing(job, "")) == ["spec.runPolicy.ttlSecondsAfterFinished: 7001"]


@settings(max_examples=40)
@given(jobs(), st.sampled_from(["", "volcano", "scheduler-plugins"]))
def test_every_output_is_valid(tmp_path_factory: pytest.TempPathFactory, job: JsonObject, gang_scheduler: str) -> None:
    objects = convert_job(job, gang_scheduler=gang_scheduler).objects
    directory: Path = tmp_path_factory.mktemp("converted")
    assert not problems(objects, directory)


@pytest.mark.parametrize("kind", sorted(JOB_KINDS))
def test_every_field_of_the_definition_is_known(kind: str) -> None:
    """None is told as one that the kind does not have."""
    definition = load_yaml((ROOT / f"deploy/crds/kubeflow.org_{kind.lower()}s.yaml").read_bytes())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    types = {"XGBoostJob": ["Master", "Worker"], "MPIJob": ["Launcher", "Worker"]}.get(kind, ["Worker"])
    template = {"spec": {"containers": [{"name": JOB_KINDS[kind].container_name, "image": "i"}]}}
    spec = {
        name: _sample(name, field)
        for name, field in schema["properties"].items()
        if name != JOB_KINDS[kind].replica_specs_field
    }
    specs = {each: {"replicas": 1, "restartPolicy": "Never", "template": template} for each in types}
    fields = schema["properties"][JOB_KINDS[kind].replica_specs_field]["additionalProperties"]["properties"]
    assert set(fields) == {"replicas", "restartPolicy", "template"}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "job"},
        "spec": {**spec, JOB_KINDS[kind].replica_specs_field: specs},
    }
    if kind == "PyTorchJob":
        del job["spec"]["nprocPerNode"]  # type: ignore[attr-defined]  # it excludes the older field, which is set
    unknown = [note.path for note in convert_job(job).notes if "has no such field" in note.message]
    assert not unknown


_WORDS = {
    "cleanPodPolicy": "Running",
    "managedBy": "kueue.x-k8s.io/multikueue",
    "successPolicy": "AllWorkers",
    "mainContainer": "mpi",
}


def _sample(name: str, schema: dict[str, Any]) -> Any:
    """Some value of a field."""
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {each: _sample(each, field) for each, field in schema["properties"].items()}
        case "object":
            return {"cpu": "1"}
        case "array":
            return [] if name == "metrics" else [_sample(name, schema["items"])]
        case "integer":
            return 1
        case "boolean":
            return True
        case _:
            return _WORDS.get(name, "some")
