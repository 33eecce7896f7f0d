"""Recognising that an object is already as it should be."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trainmaster.controller.reconciling.trainjobs.drift import needs_apply, owned_fields_of
from trainmaster.runtime.jsontree import JsonObject

DESIRED: JsonObject = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "demo", "labels": {"l": "1"}},
    "spec": {
        "suspend": False,
        "replicatedJobs": [{"name": "node", "ports": [{"containerPort": 1}], "args": ["a", "b"]}],
    },
}
OWNED: JsonObject = {
    "f:metadata": {"f:labels": {"f:l": {}}},
    "f:spec": {
        "f:suspend": {},
        "f:replicatedJobs": {
            'k:{"name":"node"}': {
                ".": {},
                "f:name": {},
                "f:args": {},
                "f:ports": {'k:{"containerPort":1,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
            }
        },
    },
}


def observed(**changes: Any) -> JsonObject:
    """As the server gives it: with defaults, and a field of somebody else."""
    obj = copy.deepcopy(DESIRED)
    obj["metadata"] |= {"uid": "u", "resourceVersion": "9", "annotations": {"theirs": "1"}}
    obj["spec"]["replicatedJobs"][0] |= {"replicas": 1, "groupName": "default"}
    obj["spec"]["replicatedJobs"][0]["ports"][0]["protocol"] = "TCP"
    obj["spec"]["replicatedJobs"].insert(0, {"name": "injected-by-somebody"})
    obj["spec"] |= changes
    return obj


def test_c12_a7_defaults_and_fields_of_others_are_no_reason_to_write() -> None:
    assert not needs_apply(DESIRED, observed(), owned_fields=OWNED)


@pytest.mark.parametrize("changes", [{"suspend": True}, {"replicatedJobs": []}])
def test_c12_a_changed_field_is(changes: JsonObject) -> None:
    assert needs_apply(DESIRED, observed(**changes), owned_fields=OWNED)


def test_a6_a_plain_list_is_compared_in_order() -> None:
    swapped = observed()
    swapped["spec"]["replicatedJobs"][1]["args"] = ["b", "a"]
    assert needs_apply(DESIRED, swapped, owned_fields=OWNED)


@pytest.mark.parametrize(
    "more",
    [
        {"f:spec": {"f:ttlSecondsAfterFinished": {}}},
        {"f:metadata": {"f:annotations": {"f:ours": {}}}},
        {"f:spec": {"f:replicatedJobs": {'k:{"name":"gone"}': {".": {}, "f:name": {}}}}},
    ],
)
def test_a2_a_field_that_we_own_and_no_longer_want_is(more: JsonObject) -> None:
    """An apply would remove it (A-2), and nothing in the desired object says so."""
    assert needs_apply(DESIRED, observed(), owned_fields=more)


def test_without_knowledge_of_ownership_contents_decide() -> None:
    assert not needs_apply(DESIRED, observed(), owned_fields=None)


def test_a5_owned_fields_are_those_of_our_applies() -> None:
    fields: list[JsonObject] = [
        {"manager": "trainer", "operation": "Update", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "fieldsV1": {"f:right": {}}},
    ]
    assert owned_fields_of({"metadata": {"managedFields": fields}}, "trainer") == {"f:right": {}}
    assert owned_fields_of({"metadata": {}}, "trainer") is None
