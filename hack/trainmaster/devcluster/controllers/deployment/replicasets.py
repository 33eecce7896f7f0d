"""The ReplicaSets of a Deployment: which one has its template, their names, revisions and annotations. Pure.

`kubectl rollout` reads the revisions from the annotations, so their names are part of the interface.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from trainmaster.devcluster.controllers.objects import new_controller_ref
from trainmaster.runtime.jsontree import JsonObject, copy_tree

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"

_OWN = frozenset(
    {
        *(REVISION, REVISION_HISTORY),
        *("kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to"),
    }
)
"""Annotations that a ReplicaSet does not inherit."""

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of which no words can be made, as Kubernetes has them in generated names."""

_HASH_LENGTH = 10


def template_hash(deployment: JsonObject) -> str:
    """Return a short name for the template of a Deployment; a collision with another one changes it."""
    collisions = (deployment.get("status") or {}).get("collisionCount", 0)
    text = json.dumps([deployment["spec"]["template"], collisions], sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_HASH_LENGTH])


def has_template_of(replicaset: JsonObject, deployment: JsonObject) -> bool:
    """Tell whether a ReplicaSet makes the pods that the Deployment wants; the label with the hash does not count."""
    return _without_hash(replicaset["spec"]["template"]) == _without_hash(deployment["spec"]["template"])


def _without_hash(template: JsonObject) -> JsonObject:
    metadata = {field: value for field, value in (template.get("metadata") or {}).items() if value}
    labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != HASH_LABEL}
    metadata.pop("creationTimestamp", None)
    return {**template, "metadata": metadata | {"labels": labels}}


def by_age(replicasets: Sequence[JsonObject]) -> list[JsonObject]:
    """Return ReplicaSets from the oldest to the youngest."""
    return sorted(replicasets, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))


def find_new(deployment: JsonObject, replicasets: Sequence[JsonObject]) -> JsonObject | None:
    """Return the ReplicaSet with the template of the Deployment; of several the oldest."""
    return next((each for each in by_age(replicasets) if has_template_of(each, deployment)), None)


def revision_of(obj: JsonObject) -> int:
    """Return the revision of a ReplicaSet, 0 if it has none that makes sense."""
    text = annotations_of(obj).get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def annotations_of(obj: JsonObject) -> JsonObject:
    """Return the annotations of an object."""
    return obj["metadata"].get("annotations") or {}


def new_replicaset(deployment: JsonObject, *, replicas: int, revision: int) -> JsonObject:
    """Return the ReplicaSet for the present template of a Deployment."""
    metadata, spec, short = deployment["metadata"], deployment["spec"], template_hash(deployment)
    template = copy_tree(spec["template"])
    template.setdefault("metadata", {}).setdefault("labels", {})[HASH_LABEL] = short
    selector = copy_tree(spec["selector"])
    selector.setdefault("matchLabels", {})[HASH_LABEL] = short
    made: JsonObject = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{short}",
            "namespace": metadata["namespace"],
            "labels": dict(template["metadata"]["labels"]),
            "annotations": inherited(deployment) | {REVISION: str(revision)},
            "ownerReferences": [new_controller_ref(deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }
    if spec.get("minReadySeconds"):
        made["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    return made


def inherited(deployment: JsonObject) -> JsonObject:
    """Return the annotations that ReplicaSets have from their Deployment."""
    return {key: value for key, value in annotations_of(deployment).items() if key not in _OWN}


def with_revision(replicaset: JsonObject, deployment: JsonObject, *, revision: int) -> JsonObject:
    """Return the present ReplicaSet with the newest revision and what it inherits; the same one if nothing differs."""
    annotations = dict(annotations_of(replicaset)) | inherited(deployment)
    before = revision_of(replicaset)
    if before < revision:
        annotations[REVISION] = str(revision)
        if before:
            annotations[REVISION_HISTORY] = ",".join(filter(None, (annotations.get(REVISION_HISTORY, ""), str(before))))
    seconds = deployment["spec"].get("minReadySeconds", 0)
    spec = {field: value for field, value in replicaset["spec"].items() if field != "minReadySeconds"}
    if seconds:
        spec["minReadySeconds"] = seconds
    return {**replicaset, "metadata": {**replicaset["metadata"], "annotations": annotations}, "spec": spec}


def size_of(replicaset: JsonObject) -> int:
    """Return how many pods a ReplicaSet shall have."""
    size: int = replicaset["spec"]["replicas"]
    return size


def total_size(replicasets: Sequence[JsonObject]) -> int:
    """Return how many pods ReplicaSets shall have together."""
    return sum(size_of(each) for each in replicasets)


def count(replicasets: Sequence[JsonObject], field: str) -> int:
    """Return the sum of a number in the status of ReplicaSets."""
    return sum((each.get("status") or {}).get(field, 0) for each in replicasets)
