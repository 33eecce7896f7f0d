"""Reading API objects: what is kept, what is defaulted, and what a person is told about wrong types."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.objects import SUSPENDED, replicated_job

from trainmaster.runtime.api import constants as c
from trainmaster.runtime.api.decoding import ApiTypeError, parse_runtime, parse_trainjob
from trainmaster.runtime.jsontree import JsonObject

PATCHED: JsonObject = {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}}
TRAINJOB: JsonObject = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {
        "name": "mnist",
        "namespace": "team-a",
        "uid": "8b8c",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "mnist"},
        "annotations": {"note": "x"},
        "finalizers": ["example.com/keep"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Sweep", "name": "s", "uid": "1", "controller": True}],
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "runtimeRef": {"name": "torch", "apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime"},
        "initializer": {
            "dataset": {"storageUri": "hf://data", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "s"}},
            "model": {"storageUri": "hf://model"},
        },
        "trainer": {
            "image": "example.com/train:1",
            "command": ["torchrun"],
            "args": ["train.py"],
            "env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "numNodes": 2,
            "numProcPerNode": 4,
            "resourcesPerNode": {"limits": {"cpu": "500m", "memory": 1.5, "nvidia.com/gpu": 1}},
            "resourceClaimsPerNode": [{"name": "gpus", "resourceClaimTemplateName": "t", "containerNames": ["node"]}],
        },
        "runtimePatches": [
            {
                "manager": "kueue.x-k8s.io/manager",
                "time": "2026-01-01T00:00:00Z",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [PATCHED]}}},
            }
        ],
        "suspend": True,
        "activeDeadlineSeconds": 60,
        "managedBy": "kueue.x-k8s.io/multikueue",
    },
    "status": {
        "conditions": [SUSPENDED],
        "jobsStatus": [{"name": "node", "ready": 1, "succeeded": 2, "failed": 3, "active": 4, "suspended": 5}],
        "trainerStatus": {"progressPercentage": 7, "metrics": [{"name": "loss", "value": "0.1"}]},
    },
}

RUNTIME: JsonObject = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch", "labels": {c.FRAMEWORK_LABEL: "torch"}},
    "spec": {
        "mlPolicy": {
            "numNodes": 2,
            "torch": {"envInjection": {"targets": [{"jobName": "helper", "containerNames": ["sidecar"]}]}},
        },
        "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 5}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"replicatedJobs": [replicated_job(replicas=1)]}},
    },
}


def problems(obj: Any) -> tuple[str, ...]:
    with pytest.raises(ApiTypeError) as caught:
        parse_trainjob(obj)
    return caught.value.problems


def changed(obj: JsonObject, path: tuple[str | int, ...], value: Any) -> JsonObject:
    """Copy an object and put a value somewhere into it."""
    result = copy.deepcopy(obj)
    node: Any = result
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return result


def places(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """List the paths of everything inside a JSON tree."""
    children: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for step, child in children for place in [(*path, step), *places(child, (*path, step))]]


@pytest.mark.parametrize(("parse", "obj"), [(parse_trainjob, TRAINJOB), (parse_runtime, RUNTIME)])
def test_to_json_gives_back_what_was_read(parse: Any, obj: JsonObject) -> None:
    """Also the fields that no model knows, and none that were not given."""
    before = copy.deepcopy(obj)
    assert parse(obj).to_json() == before
    assert obj == before


def test_null_is_absent() -> None:
    trainer: JsonObject = {"env": None, "command": []}
    spec: JsonObject = {"runtimeRef": {"name": "torch", "kind": None}, "suspend": None, "trainer": trainer}
    spec |= {"runtimePatches": None, "initializer": None, "managedBy": None, "activeDeadlineSeconds": None}
    job = parse_trainjob({"metadata": {"labels": None, "creationTimestamp": None}, "spec": spec, "status": None})
    assert job.spec.runtime_ref.kind == c.CLUSTER_TRAINING_RUNTIME_KIND
    assert job.spec.suspend is False
    assert job.spec.runtime_patches == []
    assert job.spec.trainer is not None
    assert job.spec.trainer.env == []
    assert (job.spec.trainer.command, job.spec.trainer.args) == ([], None), "an empty one is not an absent one"
    assert job.metadata.labels == {}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("spec", "trainer", "numNodes"), "two", 'spec.trainer.numNodes: must be an integer, got "two"'),
        (("spec", "trainer", "numNodes"), 2.0, "spec.trainer.numNodes: must be an integer, got 2.0"),
        (("spec", "trainer", "numNodes"), True, "spec.trainer.numNodes: must be an integer, got true"),
        (("spec", "trainer"), [], "spec.trainer: must be an object, got a list"),
        (("spec", "trainer", "command"), "run", 'spec.trainer.command: must be a list, got "run"'),
        (("spec", "trainer", "args"), [1], "spec.trainer.args[0]: must be a string, got 1"),
        (("spec", "trainer", "env", 0), {"value": "1"}, "spec.trainer.env[0].name: is required"),
        (
            ("spec", "trainer", "resourcesPerNode", "limits", "cpu"),
            [],
            (
                "spec.trainer.resourcesPerNode.limits.cpu: must be a quantity, that is a number or a string like"
                ' "500m", got a list'
            ),
        ),
        (("spec", "suspend"), "yes", 'spec.suspend: must be a boolean, got "yes"'),
        (("spec", "runtimeRef", "name"), None, "spec.runtimeRef.name: must be a string, got null"),
        (("spec",), "x", 'spec: must be an object, got "x"'),
        (("kind",), "Pod", 'kind: must be "TrainJob", got "Pod"'),
        (("apiVersion",), "v1", 'apiVersion: must be "trainer.kubeflow.org/v1alpha1", got "v1"'),
        (("metadata", "labels", "version"), 1.0, "metadata.labels.version: must be a string, got 1.0"),
        (("metadata", "labels", "a\nb"), None, 'metadata.labels["a\\nb"]: must be a string, got null'),
        (("metadata", "labels"), {1: "a"}, "metadata.labels: every key must be a string, got 1"),
        (("spec", 1), "a", "spec[1]: a key of a JSON object must be a string; put it in quotes"),
    ],
)
def test_wrong_types_are_named_by_path(path: tuple[str | int, ...], value: Any, message: str) -> None:
    assert problems(changed(TRAINJOB, path, value)) == (message,)


def test_a_patch_must_be_walkable() -> None:
    """Merging steps through it by name, so what has no name must not get that far."""
    path = ("spec", "runtimePatches", 0, "trainingRuntimeSpec", "template", "spec", "replicatedJobs", 0)
    prefix = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"
    assert problems(changed(TRAINJOB, path, {})) == (f"{prefix}.name: is required",)
    assert problems(changed(TRAINJOB, path, {"name": "node", "template": {"spec": 1}})) == (
        f"{prefix}.template.spec: must be an object, got 1",
    )


@pytest.mark.parametrize("obj", [{}, {"spec": None}, {"spec": {}}])
def test_a_trainjob_without_spec_lacks_its_runtime(obj: JsonObject) -> None:
    """The CRD lets it pass, so the controller does meet it."""
    assert problems(obj) == ("spec.runtimeRef: is required",)


@pytest.mark.parametrize(("obj", "shown"), [([], "a list"), (None, "null")])
def test_something_that_is_no_object_is_refused(obj: Any, shown: str) -> None:
    assert problems(obj) == (f"must be an object, got {shown}",)
    with pytest.raises(ApiTypeError, match="must be an object"):
        parse_runtime(obj)


def test_every_problem_has_its_line() -> None:
    obj = {"spec": {"runtimeRef": {"name": 1}, "suspend": 2}}
    with pytest.raises(ApiTypeError) as caught:
        parse_trainjob(obj)
    assert str(caught.value).splitlines() == [
        "spec.runtimeRef.name: must be a string, got 1",
        "spec.suspend: must be a boolean, got 2",
    ]
    assert caught.value.__context__ is None


def test_long_values_are_cut() -> None:
    """Messages end up in conditions and logs."""
    [line] = problems({"spec": {"runtimeRef": {"name": "torch"}, "suspend": "x" * 10_000}})
    assert len(line) < 150


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("kind",), "Pod", 'kind: must be "TrainingRuntime" or "ClusterTrainingRuntime", got "Pod"'),
        (("spec", "template", "spec"), [], "spec.template.spec: must be an object, got a list"),
        (
            ("spec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers"),
            None,
            "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers: must be a list, got null",
        ),
        (
            ("spec", "mlPolicy", "torch", "envInjection", "targets", 0),
            {"containerNames": []},
            "spec.mlPolicy.torch.envInjection.targets[0].jobName: is required",
        ),
    ],
)
def test_wrong_runtimes_are_explained(path: tuple[str | int, ...], value: Any, message: str) -> None:
    with pytest.raises(ApiTypeError) as caught:
        parse_runtime(changed(RUNTIME, path, value))
    assert caught.value.problems == (message,)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), children, max_size=3)
    ),
    max_leaves=5,
)


@given(st.data(), json_values)
def test_anything_anywhere_is_read_or_explained(data: st.DataObject, value: Any) -> None:
    """YAML files hold anything, dates and numeric keys included: there is no third outcome."""
    parse, obj = data.draw(st.sampled_from([(parse_trainjob, TRAINJOB), (parse_runtime, RUNTIME)]))
    damaged = changed(obj, data.draw(st.sampled_from(places(obj))), value)
    try:
        parse(damaged)
    except ApiTypeError as error:
        lines = error.problems
    else:
        return
    assert lines
    assert not [line for line in lines if "\n" in line or "must be valid" in line]
