"""Our kinds keep to the interface of job kinds: by the kit that others test theirs with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.golden import load_yaml, recorded_cases
from support.job_kinds import replica
from support.original_crds import definition

from trainmaster.runtime.jobs.conformance import check_job_kind
from trainmaster.runtime.jobs.constants import installed_kinds
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject

CASES = [load_yaml(text) for text in recorded_cases("v1").values()]

ALL: dict[str, JsonObject] = {
    "pytorchjob": {
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 3,
            "maxRestarts": 2,
            "rdzvBackend": "c10d",
            "rdzvPort": 29400,
            "rdzvHost": "host",
            "rdzvId": "id",
            "rdzvConf": [{"key": "k", "value": "v"}],
            "standalone": False,
            "nProcPerNode": 2,
            "metrics": [{"type": "Resource"}],
        }
    },
    "tfjob": {"successPolicy": "AllWorkers", "enableDynamicWorker": True},
    "mpijob": {"slotsPerWorker": 2, "cleanPodPolicy": "Running", "mainContainer": "mpi"},
    "paddlejob": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "maxRestarts": 1, "metrics": []}},
}
"""A job of each kind that has fields of its own, with all of them."""


def recorded(name: str) -> list[JsonObject]:
    """The jobs of a kind that the original admitted, as they were created; those that have the same in them once."""
    found: dict[str, JsonObject] = {}
    for case in CASES:
        for step in case["steps"]:
            results = case["expect"].get(step["stage"], {}).get("results") or []
            created = [action.get("create") for action in step["do"] if {"create", "patch", "delete"} & action.keys()]
            for obj, result in zip(created, results, strict=True):
                if obj and result == "ok" and obj["kind"].lower() == name:
                    found.setdefault(" ".join(fields(obj["spec"])), obj)
    return list(found.values())


def fields(node: Any) -> Iterator[str]:
    """The names of all fields; values do not matter, but for numbers of replicas."""
    for name, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield f"{name}={value}" if name == "replicas" else str(name)
        if isinstance(value, (dict, list)):
            yield from fields(value)


@pytest.mark.parametrize("name", sorted(installed_kinds()))
def test_our_kinds_conform(name: str) -> None:
    (kind,) = load_job_kinds(enabled=[name])
    replicas = {each: replica(kind, 1) for each in kind.replica_types if name != "tfjob" or each != "Master"}
    everything: JsonObject = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "everything"},
        "spec": {kind.replica_specs_field: replicas, **ALL.get(name, {})},
    }
    samples = [everything, *recorded(name)]
    check_job_kind(name, samples, definition=definition(kind.kind), cluster_domain="corp.example")


@pytest.mark.parametrize("transport", ["kubectl-exec", "ssh"])
def test_mpijobs_conform_by_each_transport(transport: str) -> None:
    check_job_kind("mpijob", recorded("mpijob"), options={"transport": transport})


def test_there_is_a_class_for_each_kind_of_the_original() -> None:
    wanted = {"pytorchjob", "tfjob", "xgboostjob", "mpijob", "paddlejob", "jaxjob"}
    assert wanted <= set(installed_kinds())
