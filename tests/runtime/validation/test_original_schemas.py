"""Every rule that stands in our definitions alone holds in the webhooks too: they may run on those of the original."""

from __future__ import annotations

from typing import Any

import pytest
from support.crds import nodes, root_of
from support.objects import runtime_object, trainjob_object
from support.original_crds import original_root_of
from support.validation import validate, validate_runtime

from trainmaster.runtime.jsontree import JsonObject

RULES = (
    *("enum", "format", "maximum", "maxItems", "maxLength", "maxProperties", "minimum", "minItems", "minLength"),
    *("minProperties", "pattern", "required", "type", "x-kubernetes-validations"),
)
PROCESSES = "spec.mlPolicy.mpi.numProcPerNode"
IMPLEMENTATION = "spec.mlPolicy.mpi.mpiImplementation"
CLAIM_POLICIES = "spec.template.spec.volumeClaimPolicies[]"


def rules_of_ours(kind: str) -> dict[tuple[str, str], Any]:
    """What our definition says of a field that the original has too, and the original says otherwise or not at all."""
    original = dict(nodes(original_root_of(kind)))
    return {
        (path, rule): node[rule]
        for path, node in nodes(root_of(kind))
        for rule in RULES
        if path in original and node.get(rule) and _compared(node, rule) != _compared(original[path], rule)
    }


def _compared(node: dict[str, Any], rule: str) -> Any:
    return sorted(node.get(rule) or []) if rule == "required" else node.get(rule)


def test_these_rules_of_trainjobs_are_ours_alone() -> None:
    # A minimum of 0 is no rule of ours: it is falsy, and numNodes has at least 1 in the webhook (U4).
    assert set(rules_of_ours("TrainJob")) == {("spec.trainer.numProcPerNode", "x-kubernetes-validations")}


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_these_rules_of_runtimes_are_ours_alone(kind: str) -> None:
    ours = rules_of_ours(kind)
    # More implementations of MPI than the original has: no value that its schema lets pass is refused by ours.
    assert set(ours.pop((IMPLEMENTATION, "enum"))) >= set(_original(kind, IMPLEMENTATION)["enum"])
    # That a policy `custom` stands alone needs no webhook: with the definitions of the original there is none.
    for policy in ("spec.mlPolicy", "spec.podGroupPolicy"):
        [rule] = ours.pop((policy, "x-kubernetes-validations"))
        assert "has(self.custom)" in rule["rule"]
        assert "custom" not in _original(kind, policy)["properties"]
    assert set(ours) == {(PROCESSES, "x-kubernetes-validations"), (CLAIM_POLICIES, "required")}


def _original(kind: str, path: str) -> dict[str, Any]:
    return dict(nodes(original_root_of(kind)))[path]


def test_the_webhooks_say_of_trainjobs_what_our_schema_says() -> None:
    result = validate(trainjob_object(trainer={"numNodes": -1, "numProcPerNode": 0}), runtime_object())
    [rule] = rules_of_ours("TrainJob")[("spec.trainer.numProcPerNode", "x-kubernetes-validations")]
    assert [str(error) for error in result.errors] == [
        "spec.trainer.numNodes: Invalid value: -1: must be greater than or equal to 1",
        f"spec.trainer.numProcPerNode: Invalid value: 0: {rule['message']}",
    ]


def test_the_webhooks_say_of_runtimes_what_our_schema_says() -> None:
    obj: JsonObject = runtime_object(policy={"mpi": {"numProcPerNode": -3}}, volumeClaimPolicies=[{}])
    [rule] = rules_of_ours("TrainingRuntime")[(PROCESSES, "x-kubernetes-validations")]
    assert [str(error) for error in validate_runtime(obj, None).errors] == [
        f"{PROCESSES}: Invalid value: -3: {rule['message']}",
        "spec.template.spec.volumeClaimPolicies[0].templates: Required value",
    ]
