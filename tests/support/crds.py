"""The custom resource definitions that are generated, and the nodes of their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    definition_file,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml

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
