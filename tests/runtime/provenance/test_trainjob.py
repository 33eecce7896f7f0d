"""Who set which field of what a TrainJob becomes: each leaf has one step, and steps are true."""

import copy
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.objects import replicated_job, runtime_object, trainjob_object
from support.resolutions import FRAMEWORK

from trainmaster.controller.cli.files.manifests import built_in_file, built_in_names
from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value, upsert_env
from trainmaster.runtime.provenance import Provenance, leaves, snapshot_steps
from trainmaster.runtime.resolver import resolve
from trainmaster.runtime.snapshot import build_snapshot
from trainmaster.runtime.yamltext import load_yaml

OURS = [plugin for plugin in load_plugins() if plugin.name in ("plainml", "jobset")]

Told = dict[str, tuple[Any, str]]
"""By object and path, in which elements of lists are named: the value of a leaf, and its step."""


def told(job: JsonObject, runtime: JsonObject, framework: Framework) -> Told:
    parsed = parse_trainjob(job)
    tracer = Provenance(parsed)
    untraced = resolve(parsed, parse_runtime(runtime), framework)
    resolution = resolve(parsed, parse_runtime(runtime), framework, tracer=tracer)
    assert resolution.objects == untraced.objects
    return {
        f"{obj['kind']} {obj['metadata']['name']} {named(obj, path)}": (value, step)
        for obj in (desired.object for desired in resolution.objects)
        for path, value, step in leaves(obj, tracer.steps(obj))
    }


def named(tree: Any, path: Iterable[str | int]) -> str:
    parts = []
    for part in path:
        tree = tree[part]
        is_named = isinstance(part, int) and isinstance(tree, dict) and "name" in tree
        parts.append(str(tree["name"]) if is_named else str(part))
    return " ".join(parts)


def count(tree: Any) -> int:
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return sum(map(count, children)) if children else 1


WORDS = st.sampled_from(["a", "b", "c", "train:1"])
TRAINERS = st.fixed_dictionaries(
    {},
    optional={
        "image": WORDS,
        "command": st.lists(WORDS, max_size=2),
        "args": st.lists(WORDS, max_size=3),
        "numNodes": st.integers(1, 4),
        "env": st.lists(
            st.builds(env_value, st.sampled_from("ABCD"), WORDS), max_size=3, unique_by=lambda e: e["name"]
        ),
        "resourcesPerNode": st.just({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}),
    },
)
PODS = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(st.sampled_from("xy"), WORDS, min_size=1, max_size=2),
        "serviceAccountName": WORDS,
        "volumes": st.just([{"name": "scratch", "emptyDir": {"medium": "m"}}]),
        "containers": st.just([{"name": "side", "image": "patched", "env": [env_value("P", "patched")]}]),
    },
)


def of_one(number: int, tree: Any) -> Any:
    """Values that nobody else has: what two set alike would be of the first of them, and stay without it."""
    if isinstance(tree, dict):
        kept = ("node", "side", "P")
        return {key: value if value in kept else of_one(number, value) for key, value in tree.items()}
    return [of_one(number, value) for value in tree] if isinstance(tree, list) else f"{tree}-{number}"


def patch(manager: str, pods: JsonObject, labels: dict[str, str]) -> JsonObject:
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pods}}}}] if pods else []
    template: JsonObject = {"metadata": {"labels": labels}, "spec": {"replicatedJobs": jobs}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": template}}


LABELS = st.dictionaries(st.sampled_from("lmn"), WORDS, max_size=2)
PATCHES = st.lists(st.tuples(PODS, LABELS), max_size=3).map(
    lambda given: [
        patch(f"acme.io/{number}", *(of_one(number, part) for part in each)) for number, each in enumerate(given)
    ]
)
SPECS = st.fixed_dictionaries({"runtimePatches": PATCHES}, optional={"trainer": TRAINERS, "suspend": st.booleans()})


def mixed_runtime() -> JsonObject:
    containers: list[JsonObject] = [
        {"name": "node", "image": "train:1", "env": [env_value("A", "runtime")]},
        {"name": "side", "image": "s"},
    ]
    jobs = (replicated_job(containers=containers), replicated_job("other", ancestor=None))
    obj = runtime_object(*jobs, policy={"numNodes": 2}, network={"subdomain": "net"})
    obj["spec"]["template"]["metadata"] = {"labels": {"l": "runtime"}, "annotations": {"n": "runtime"}}
    return obj


class Setter:
    """Sets some fields to its own name, in one of the phases."""

    def __init__(self, name: str, phase: str, fields: frozenset[str]) -> None:
        self.name = name
        self._fields = fields
        setattr(self, phase, self._enforce if phase != "build" else self._build)

    def _enforce(self, info: Any) -> None:
        for field in self._fields:
            for pods in info.pod_sets:
                self._set(field, info, pods)

    def _set(self, field: str, info: Any, pods: Any) -> None:
        container = pods.pod_spec["containers"][0]
        match field:
            case "label":
                info.labels["l"] = self.name
            case "template":
                info.template["network"]["subdomain"] = self.name
            case "annotation":
                pods.pod_template.setdefault("metadata", {}).setdefault("annotations", {})["of"] = self.name
            case "env":
                upsert_env(container, [env_value("A", self.name), env_value(self.name, self.name)])
            case "image":
                container["image"] = self.name
            case "volumes":
                pods.pod_spec["volumes"] = [{"name": self.name, "emptyDir": {"medium": self.name}}]

    def _build(self, info: Any) -> Iterator[Desired]:
        self._enforce(info)
        yield Desired(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name, "labels": info.labels},
                "data": {"by": self.name, "node": info.template["replicatedJobs"][0]},
            }
        )


FIELDS = st.frozensets(st.sampled_from(["label", "template", "annotation", "env", "image", "volumes"]))
PHASES = st.sampled_from(["enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "pre_build", "build"])
SETTERS = st.lists(st.tuples(PHASES, FIELDS), max_size=3)


def made(setters: list[tuple[str, frozenset[str]]], without: int | None = None) -> Framework:
    theirs = [Setter(f"p{number}", *each) for number, each in enumerate(setters) if number != without]
    return Framework([*OURS, *theirs])


def differences(one: Told, other: Told) -> set[str]:
    """The leaves of one that the other has not, or otherwise."""
    return {path for path, (value, _) in counted(one) if path not in other or other[path][0] != value}


def by(found: Told, step: str) -> set[str]:
    return {path for path, (_, each) in counted(found) if each.startswith(step)}


def counted(found: Told) -> Iterator[tuple[str, tuple[Any, str]]]:
    """What counts: the name of an element of a list is there as long as anybody sets something in it."""
    return ((path, each) for path, each in found.items() if not path.endswith(" name") and each[0] not in ({}, []))


@given(SPECS, SETTERS)
@settings(max_examples=60)
def test_without_a_plugin_only_what_it_set_differs(spec: JsonObject, setters: list[tuple[str, frozenset[str]]]) -> None:
    job, runtime = trainjob_object(**spec), mixed_runtime()
    found = told(job, runtime, made(setters))
    for number in range(len(setters)):
        less = told(job, runtime, made(setters, without=number))
        # What it builds goes as a whole, with what is of others in it.
        others = {path: each for path, each in found.items() if not path.startswith(f"ConfigMap p{number} ")}
        assert differences(others, less) == by(others, f"plugin p{number} in ")


@given(SPECS, SETTERS)
@settings(max_examples=60)
def test_without_a_patch_only_what_it_set_differs(spec: JsonObject, setters: list[tuple[str, frozenset[str]]]) -> None:
    runtime, framework = mixed_runtime(), made(setters)
    found = told(trainjob_object(**spec), runtime, framework)
    for number, patch in enumerate(spec["runtimePatches"]):
        others = [each for place, each in enumerate(spec["runtimePatches"]) if place != number]
        less = told(trainjob_object(**{**spec, "runtimePatches": others}), runtime, framework)
        assert differences(found, less) == by(found, f"patch ({patch['manager']})")


@given(SPECS, SETTERS)
@settings(max_examples=60)
def test_removing_a_setting_of_the_trainjob_changes_what_it_set_and_nothing_else(
    spec: JsonObject, setters: list[tuple[str, frozenset[str]]]
) -> None:
    runtime, framework = mixed_runtime(), made(setters)
    found = told(trainjob_object(**spec), runtime, framework)
    for field in ("image", "numNodes", "resourcesPerNode", "env"):
        trainer = {name: value for name, value in spec.get("trainer", {}).items() if name != field}
        less = told(trainjob_object(**{**spec, "trainer": trainer}), runtime, framework)
        assert differences(found, less) == by(found, f"TrainJob spec.trainer.{field}")


@pytest.mark.parametrize("name", built_in_names())
@given(SPECS)
@settings(max_examples=8)
def test_each_leaf_of_each_object_has_one_step(name: str, spec: JsonObject) -> None:
    """With all plugins, and every runtime that comes with Trainmaster."""
    file = built_in_file(name)
    assert file is not None
    runtime = load_yaml(file.read_bytes())
    spec = {key: value for key, value in spec.items() if key != "runtimePatches"}
    job = parse_trainjob(trainjob_object(**spec))
    tracer = Provenance(job)
    for desired in resolve(job, parse_runtime(runtime), FRAMEWORK, tracer=tracer).objects:
        found = list(leaves(desired.object, tracer.steps(desired.object)))
        assert len({path for path, _, _ in found}) == len(found) == count(desired.object)
        assert all(step.startswith(("runtime", "TrainJob ", "plugin ")) for _, _, step in found)


def test_the_steps_as_people_read_them() -> None:
    job = trainjob_object(
        trainer={
            "image": "mine:1",
            "command": ["python", "train.py"],
            "args": ["--fast"],
            "numNodes": 3,
            "env": [env_value("LEVEL", "debug")],
            "resourcesPerNode": {"limits": {"cpu": 2}},
        },
        initializer={"dataset": {"storageUri": "hf://a/b", "env": [env_value("E", "1")], "secretRef": {"name": "s"}}},
        runtimePatches=[patch("acme.io/team", {"serviceAccountName": "them"}, {"team": "vision"})],
        suspend=True,
    )
    mount = {"name": "initializer", "mountPath": "/workspace"}
    containers = [{"name": "dataset-initializer", "image": "init", "volumeMounts": [mount]}]
    runtime = runtime_object(
        replicated_job("dataset-initializer", ancestor="dataset-initializer", containers=containers),
        replicated_job(),
        policy={"torch": {}},
    )
    found = told(job, runtime, FRAMEWORK)
    steps = {path.removeprefix("JobSet demo "): step for path, (_, step) in found.items()}
    jobs, pod = "spec replicatedJobs", "template spec template spec"
    node = f"{jobs} node {pod} containers node"
    loader = f"{jobs} dataset-initializer {pod} containers dataset-initializer"
    expected = {
        "kind": "plugin jobset in build",
        "metadata name": "TrainJob metadata.name",
        "metadata namespace": "TrainJob metadata",
        "metadata ownerReferences demo uid": "TrainJob metadata",
        "metadata labels team": "patch (acme.io/team)",
        "spec suspend": "TrainJob spec.suspend",
        f"{jobs} node name": "runtime",
        f"{jobs} node template spec parallelism": "TrainJob spec.trainer.numNodes",
        f"{jobs} node {pod} serviceAccountName": "patch (acme.io/team)",
        f"{node} image": "TrainJob spec.trainer.image",
        f"{node} command 1": "TrainJob spec.trainer.command",
        f"{node} args 0": "TrainJob spec.trainer.args",
        f"{node} env LEVEL value": "TrainJob spec.trainer.env",
        f"{node} resources limits cpu": "TrainJob spec.trainer.resourcesPerNode",
        f"{node} env PET_NNODES value": "plugin torch in enforce_ml_policy",
        f"{jobs} dataset-initializer template spec parallelism": "runtime",
        f"{loader} image": "runtime",
        f"{loader} env STORAGE_URI value": "TrainJob spec.initializer.dataset.storageUri",
        f"{loader} env E value": "TrainJob spec.initializer.dataset.env",
        f"{loader} envFrom 0 secretRef name": "TrainJob spec.initializer.dataset.secretRef",
    }
    assert {path: steps.get(path) for path in expected} == expected


def test_the_number_of_nodes_may_be_that_of_the_runtime() -> None:
    found = told(trainjob_object(), runtime_object(policy={"numNodes": 4}), Framework(OURS))
    path = "JobSet demo spec replicatedJobs node template spec parallelism"
    assert found[path] == (4, "runtime")


def test_a_command_is_of_the_plugin_that_made_it() -> None:
    """torchtune's is made when the policy is enforced, and put in place with the JobSet."""
    file = built_in_file("torchtune-llama3.2-1b")
    assert file is not None
    runtime = load_yaml(file.read_bytes())
    job = trainjob_object(runtimeRef={"name": "torchtune-llama3.2-1b"}, trainer={"command": ["tune", "run"]})
    found = told(job, runtime, FRAMEWORK)
    steps = {step for path, (_, step) in found.items() if " containers node command " in path}
    assert steps == {"runtime", "plugin torch in enforce_ml_policy"}


class Workload:
    """Builds a workload of its own from trees of the Info, in the ways in which that is done."""

    name = "workload"
    replaces = ("jobset",)

    def applies_to(self) -> bool:
        return True

    def build(self, info: Any, job: Any) -> Iterator[Desired]:
        (replicated_job, *_) = info.template["replicatedJobs"]
        pods = replicated_job["template"]["spec"]["template"]
        pods["spec"]["restartPolicy"] = "Never"
        head = {"apiVersion": "acme.io/v1", "kind": "Workload"}
        yield Desired(
            {
                **head,
                "metadata": {"name": job.metadata.name, "labels": {**info.labels, "by": "workload"}},
                "spec": {
                    "suspend": job.spec.suspend,
                    "original": info.runtime_template["replicatedJobs"][0],
                    "whole": pods,
                    "changed": {**pods["spec"], "hostNetwork": True},
                    "jobs": [{**each, "extra": 1} for each in info.template["replicatedJobs"]],
                    "containers": [*pods["spec"]["containers"], {"name": "more"}],
                },
            }
        )


def test_what_a_plugin_builds_of_trees_that_there_are_keeps_their_steps() -> None:
    runtime = mixed_runtime()
    before = copy.deepcopy(runtime)
    job = trainjob_object(runtimePatches=[patch("acme.io/a", {"serviceAccountName": "them"}, {"team": "a"})])
    found = told(job, runtime, Framework([*OURS, Workload()]))
    assert runtime == before
    steps = {path.removeprefix("Workload demo "): step for path, (_, step) in found.items()}
    theirs = "plugin workload in build"
    expected = {
        "metadata name": "TrainJob metadata.name",
        "metadata labels l": "runtime",
        "metadata labels team": "patch (acme.io/a)",
        "metadata labels by": theirs,
        "spec suspend": "TrainJob spec.suspend",
        "spec original name": "runtime",
        "spec whole spec serviceAccountName": "patch (acme.io/a)",
        "spec whole spec restartPolicy": theirs,
        "spec changed serviceAccountName": "patch (acme.io/a)",
        "spec changed hostNetwork": theirs,
        "spec changed containers side image": "runtime",
        "spec jobs node name": "runtime",
        "spec jobs node extra": theirs,
        "spec jobs node template spec template spec serviceAccountName": "patch (acme.io/a)",
        "spec containers side image": "runtime",
        "spec containers more name": theirs,
    }
    assert {path: steps.get(path) for path in expected} == expected


def test_a_snapshot_is_of_the_runtime() -> None:
    snapshot = build_snapshot(parse_trainjob(trainjob_object()), "kind: TrainingRuntime\n")
    steps = {" ".join(map(str, path)): step for path, _, step in leaves(snapshot, snapshot_steps(snapshot))}
    assert steps["data runtime"] == "runtime"
    assert steps["kind"] == "snapshot of the runtime"
    assert steps["metadata ownerReferences 0 uid"] == "TrainJob metadata"


@pytest.mark.nightly
def test_a_manager_does_not_even_load_it() -> None:
    code = "import sys, trainmaster.controller.cli.manager; sys.exit('trainmaster.runtime.provenance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
