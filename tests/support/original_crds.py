"""The definitions that Kubeflow Trainer v2.3.0 installs, on which Trainmaster runs while it is being swapped in."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from support.stack import Stack

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject, copy_tree

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


def original_root_of(kind: str) -> dict[str, Any]:
    """The schema of a kind."""
    [version] = original_definitions()[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


async def install_original_definitions(stack: Stack) -> None:
    """Put them in the place of ours."""
    for definition in original_definitions().values():
        name = definition["metadata"]["name"]
        present = await stack.client.get(_DEFINITIONS, None, name)
        await stack.client.update(_DEFINITIONS, {**present, "spec": definition["spec"]})
