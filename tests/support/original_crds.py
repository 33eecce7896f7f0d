"""The definitions of the originals, on which Trainmaster runs while it is being swapped in.

Those of TrainJobs and runtimes are of Kubeflow Trainer v2.3.0, those of the six job kinds of Training Operator v1.9.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from support.processes import DEFINITIONS
from support.stack import Stack

from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    definition_file,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml

SCHEMAS = ("ours", "original")
"""Whose definitions a cluster may have."""

_DIRECTORY = Path(__file__).resolve().parents[1] / "golden/crds"


@cache
def original_definitions() -> dict[str, JsonObject]:
    """The definitions of TrainJobs and both kinds of runtime, by kind."""
    trainjobs, runtimes = (
        json.loads((_DIRECTORY / f"{plural}.json").read_text()) for plural in ("trainjobs", "trainingruntimes")
    )
    # The two kinds of runtime have one schema.
    cluster: JsonObject = copy_tree(runtimes)
    cluster["metadata"]["name"] = "clustertrainingruntimes.trainer.kubeflow.org"
    cluster["spec"] |= {
        "scope": "Cluster",
        "names": {
            "kind": "ClusterTrainingRuntime",
            "listKind": "ClusterTrainingRuntimeList",
            "plural": "clustertrainingruntimes",
            "singular": "clustertrainingruntime",
        },
    }
    return {each["spec"]["names"]["kind"]: each for each in (trainjobs, runtimes, cluster)}


@cache
def original_job_definitions() -> dict[str, JsonObject]:
    """The definitions of the Training Operator, by kind; all have one schema of pods and one of metrics."""
    stored = json.loads((_DIRECTORY / "jobs.json").read_text())
    for definition in stored["definitions"]:
        spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        for name, field in spec.items():
            if name.endswith("ReplicaSpecs"):
                field["additionalProperties"]["properties"]["template"] = copy_tree(stored["podTemplate"])
            elif name == "elasticPolicy":
                field["properties"]["metrics"] = copy_tree(stored["metrics"])
    return {each["spec"]["names"]["kind"]: each for each in stored["definitions"]}


def original_root_of(kind: str) -> dict[str, Any]:
    """The schema of a kind."""
    [version] = (original_definitions() | original_job_definitions())[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


async def install_original_definitions(stack: Stack) -> None:
    """Put them in the place of ours."""
    await install(stack, list(original_definitions().values()))


async def install_older_definitions(stack: Stack) -> None:
    """Put definitions in the place of ours that have what version 2.1 of the original had, and 2.3 has not.

    Patches of pods were called `podTemplateOverrides`; TrainJobs had labels and annotations for what they become; and
    `numProcPerNode` was a number or a word.
    """
    words = {"x-kubernetes-int-or-string": True}
    found = []
    for kind, definition in original_definitions().items():
        spec = copy_tree(definition["spec"])
        older = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        if kind == "TrainJob":
            texts = {"type": "object", "additionalProperties": {"type": "string"}}
            overrides = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            older["trainer"]["properties"]["numProcPerNode"] = words
            older["trainer"].pop("x-kubernetes-validations", None)
            older |= {
                "labels": texts,
                "annotations": texts,
                "podTemplateOverrides": {"type": "array", "items": overrides},
            }
        else:
            older["mlPolicy"]["properties"]["torch"]["properties"] = {"numProcPerNode": words}
        found.append({**definition, "spec": spec})
    await install(stack, found)


async def definitions_of(stack: Stack) -> list[JsonObject]:
    """The definitions of TrainJobs and runtimes that a cluster has."""
    names = [definition["metadata"]["name"] for definition in original_definitions().values()]
    return [await stack.client.get(DEFINITIONS, None, name) for name in names]


async def install(stack: Stack, definitions: list[JsonObject]) -> None:
    """Install definitions over those that a cluster has."""
    for definition in definitions:
        present = await stack.client.get(DEFINITIONS, None, definition["metadata"]["name"])
        await stack.client.update(DEFINITIONS, {**present, "spec": definition["spec"]})


ROOT = Path(__file__).resolve().parents[2]
JOB_KINDS = ["JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"]
FILES = {
    "TrainJob": ROOT / "deploy/crds/trainer.kubeflow.org_trainjobs.yaml",
    "TrainingRuntime": ROOT / "deploy/crds/trainer.kubeflow.org_trainingruntimes.yaml",
    "ClusterTrainingRuntime": ROOT / "deploy/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "OptimizationJob": ROOT / "deploy/crds/trainer.kubeflow.org_optimizationjobs.yaml",
    "JobSet": ROOT / "hack/trainmaster/devcluster/crds/jobset.x-k8s.io_jobsets.yaml",
    **{kind: ROOT / f"deploy/crds/kubeflow.org_{kind.lower()}s.yaml" for kind in JOB_KINDS},
}
KINDS = sorted(FILES)
POD_PATCH = "spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[].template.spec.template.spec"


@cache
def definition(kind: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(FILES[kind].read_text(), Loader=yaml.CSafeLoader)  # a safe loader, in C
    return loaded


def root_of(kind: str) -> dict[str, Any]:
    [version] = definition(kind)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def at(kind: str, path: str) -> dict[str, Any]:
    """Return the node at a path like `spec.runtimePatches[].manager`; {} stands for the values of a map."""
    node = root_of(kind)
    for step in path.replace("[]", ".[]").replace("{}", ".{}").split("."):
        if step == "[]":
            node = node["items"]
        elif step == "{}":
            node = node["additionalProperties"]
        else:
            node = node["properties"][step]
    return node


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}" if path else name)
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


def rules_at(kind: str, path: str) -> list[tuple[str, str]]:
    node = at(kind, path) if path else root_of(kind)
    return [(rule["rule"], rule["message"]) for rule in node.get("x-kubernetes-validations", [])]


TRAINING = (*TRAINER_DEFINITIONS, *JOBSET_DEFINITIONS)
ALL = (*TRAINING, *GANG_DEFINITIONS)


def definitions(names: tuple[str, ...] = TRAINING) -> list[JsonObject]:
    """Return the definitions in the files of these names, a new copy each time."""
    return [copy_tree(_definition(name)) for name in names]


@cache
def _definition(name: str) -> JsonObject:
    definition: JsonObject = load_yaml(definition_file(name).read_bytes())
    return definition
