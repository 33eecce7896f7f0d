"""The definitions of the Training Operator's six kinds refuse nothing, and have a size that every client applies."""

from __future__ import annotations

import json

import pytest
from support.original_crds import JOB_KINDS, at, definition, nodes, root_of

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
