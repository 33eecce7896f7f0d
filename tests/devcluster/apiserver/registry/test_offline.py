"""Checking Trainer's objects without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from trainmaster.devcluster.apiserver.registry import offline
from trainmaster.devcluster.apiserver.registry.offline import check
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml

ROOT = Path(__file__).resolve().parents[4]


def trainjob(**spec: Any) -> JsonObject:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "demo"},
        "spec": {"runtimeRef": {"name": "rt"}, **spec},
    }


def faults(obj: JsonObject) -> list[tuple[str, str]]:
    answer = check(obj)
    assert answer is not None
    return [(fault.path, fault.message) for fault in answer[1]]


def test_defaults_are_filled_in_and_the_original_stays() -> None:
    obj = trainjob()
    before = copy_tree(obj)
    answer = check(obj)
    assert answer is not None
    checked, found = answer
    assert not found
    assert checked["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime"
    assert obj == before


def test_unknown_fields_come_with_the_known_ones() -> None:
    answer = check(trainjob(trainer={"env": [{"name": "A", "vale": "1"}]}))
    assert answer is not None
    (fault,) = answer[1]
    assert (fault.path, fault.known) == ("spec.trainer.env[0].vale", ("name", "value", "valueFrom"))


@pytest.mark.parametrize(
    ("obj", "path", "message"),
    [
        (trainjob(trainer={"numProcPerNode": 0}), "spec.trainer.numProcPerNode", "greater than or equal to 1"),
        (trainjob(activeDeadlineSeconds="1"), "spec.activeDeadlineSeconds", "must be of type integer"),
        (trainjob() | {"metadata": {"name": "Demo"}}, "metadata.name", "lowercase RFC 1123"),
        (trainjob() | {"metadata": {"name": "1"}}, "", "must match RFC 1035"),
        (trainjob() | {"metadata": {"name": "a", "labels": {"b": "c d"}}}, "metadata.labels", "a valid label"),
        (trainjob() | {"metadata": {"name": "a", "labels": {"b": 1}}}, "metadata.labels", "type string"),
        (trainjob() | {"apiVersion": "trainer.kubeflow.org/v2"}, "apiVersion", "no version v2 of TrainJob"),
    ],
)
def test_faults_are_those_of_the_api_server(obj: JsonObject, path: str, message: str) -> None:
    found = faults(obj)
    assert any(where.startswith(path) and message in text for where, text in found), found


def test_kinds_of_others_are_left_to_them() -> None:
    assert check({"apiVersion": "v1", "kind": "TrainJob", "metadata": {"name": "a"}}) is None
    assert check({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "Other", "metadata": {"name": "a"}}) is None


def test_the_definitions_are_those_that_are_deployed() -> None:
    """They are read here as JSON, for its speed."""
    directory = Path(offline.__file__).parent / "definitions"
    read = {path.stem: orjson.loads(path.read_bytes()) for path in directory.glob("*.json")}
    folders = (ROOT / "deploy/crds", ROOT / "hack/trainmaster/devcluster/crds")
    assert read == {path.stem: load_yaml(path.read_text()) for folder in folders for path in folder.glob("*.yaml")}


def test_jobs_of_the_training_operator_are_checked_too() -> None:
    worker = {"replicas": "2", "templat": {}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "demo"}}
    found = faults(job | {"spec": {"jaxReplicaSpecs": {"Worker": worker}}})
    assert ("spec.jaxReplicaSpecs.Worker.templat", "unknown field") in found
    assert any(path == "spec.jaxReplicaSpecs.Worker.replicas" and "integer" in message for path, message in found)
    assert check({**job, "kind": "MXJob"}) is None
