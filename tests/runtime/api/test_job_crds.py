"""The definitions of the Training Operator's six kinds: what the original has, in a size that every client applies."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.crds import JOB_KINDS, at, definition, nodes, root_of
from support.original_crds import original_job_definitions, original_root_of

REPLICA_SPECS = {
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}
ANNOTATIONS = 256 * 1024
"""What the annotations of an object may hold in all, one of which is the object itself when kubectl applies it."""

OURS = {
    "status.replicaStatuses{}.restarts",
    "status.replicaStatuses{}.restartedPodUIDs",
    "status.replicaStatuses{}.restartedPodUIDs[]",
}
NEWER_POD_FIELDS = re.compile(
    r"\.(bindMountOptions(\[\])?|defaultUser|evictionResponders(\[\](\.\w+)?)?|mode|protocol|user)$"
)
"""What pods of newer versions of Kubernetes have."""

INLINED = re.compile(
    r"\.(envFrom\[\]\.(configMap|secret)Ref|volumes\[\](\.projected\.sources\[\])?\.(configMap|secret))$"
)
"""Places where the original's generator takes over that a reference to an object is written as a whole, though more
stands beside the name; pods have it otherwise."""

_BELOW = {"additionalProperties", "description", "items", "properties"}


def said(node: dict[str, Any]) -> dict[str, Any]:
    """What a schema says of a value itself."""
    kept = {keyword: value for keyword, value in node.items() if keyword not in _BELOW}
    return kept | ({"required": sorted(kept["required"])} if "required" in kept else {})


@pytest.mark.nightly
@pytest.mark.parametrize("kind", JOB_KINDS)
def test_it_is_the_original_but_for_its_schema(kind: str) -> None:
    ours, original = definition(kind), original_job_definitions()[kind]
    assert ours["metadata"] == original["metadata"]
    [version], [original_version] = ours["spec"]["versions"], original["spec"]["versions"]
    assert ours["spec"] | {"versions": []} == original["spec"] | {"versions": []}
    assert version | {"schema": {}} == original_version | {"schema": {}}


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_every_field_of_the_original_is_there_with_its_type_and_its_rules(kind: str) -> None:
    ours, original = dict(nodes(root_of(kind))), dict(nodes(original_root_of(kind)))
    assert not original.keys() - ours.keys()
    different = {path for path, node in original.items() if said(node) != said(ours[path])}
    for path in different:
        assert said(original[path]) == {**said(ours[path]), "x-kubernetes-map-type": "atomic"}, path
    assert {path for path in different if not INLINED.search(path)} == set()


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_these_fields_are_new(kind: str) -> None:
    pods = f"spec.{REPLICA_SPECS[kind]}{{}}.template.spec."
    new = dict(nodes(root_of(kind))).keys() - dict(nodes(original_root_of(kind))).keys()
    assert new >= OURS
    assert {path for path in new - OURS if not (path.startswith(pods) and NEWER_POD_FIELDS.search(path))} == set()


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_nothing_is_refused_that_the_original_stores(kind: str) -> None:
    """What is wrong beyond the types is for webhooks to say, which name the field in the original's words."""
    limits = ("enum", "maximum", "maxItems", "maxLength", "minimum", "minItems", "minLength", "minProperties")
    found = {(path, limit) for path, node in nodes(root_of(kind)) for limit in limits if limit in node}
    assert found == set()
    defaults = {path: node["default"] for path, node in nodes(root_of(kind)) if "default" in node}
    assert {path: value for path, value in defaults.items() if ".template." not in path} == {
        "spec.runPolicy.suspend": False
    }


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_a_client_side_apply_can_keep_it_in_an_annotation(kind: str) -> None:
    """kubectl writes the whole object into one of its annotations; the original's own definitions do not fit."""
    assert len(json.dumps(definition(kind), separators=(",", ":"))) < ANNOTATIONS / 3


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_every_field_but_those_of_pods_is_explained(kind: str) -> None:
    """`kubectl explain pod` explains those; the texts would treble the size."""
    elsewhere = (
        f"spec.{REPLICA_SPECS[kind]}{{}}.template.",
        "spec.elasticPolicy.metrics[]",
        "status.replicaStatuses{}.l",
    )
    unexplained = [
        path
        for path, node in nodes(root_of(kind))
        if "description" not in node
        and not path.startswith(elsewhere)
        and path != "metadata"
        and path[-2:] not in "[]{}"
    ]
    assert unexplained == []
    template = at(kind, f"spec.{REPLICA_SPECS[kind]}{{}}.template")
    assert [path for path, node in nodes(template) if "description" in node] == [""]
