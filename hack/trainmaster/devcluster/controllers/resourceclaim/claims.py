"""The resource claims of pods: which a pod has, who uses one, how one is built from a template. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.controllers.objects import new_controller_ref
from trainmaster.runtime.jsontree import JsonObject, copy_tree

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made from a template: the name of its entry in the pod."""
FINALIZER = "resource.kubernetes.io/delete-protection"


def pod_claims(pod: JsonObject) -> list[JsonObject]:
    """Return the claims that a pod lists, as they are written in its spec."""
    entries: list[JsonObject] = pod["spec"].get("resourceClaims") or []
    return entries


def generated_claim_name(pod: JsonObject, entry: str) -> str | None:
    """Return the name of the claim that was made for an entry; None while there is none."""
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    return next((each.get("resourceClaimName") for each in statuses if each["name"] == entry), None)


def claim_names(pod: JsonObject) -> Iterator[tuple[JsonObject, str | None]]:
    """Yield each entry with the name of its claim; None while the claim has to be made from a template."""
    for entry in pod_claims(pod):
        yield entry, entry.get("resourceClaimName") or generated_claim_name(pod, entry["name"])


def consumer_reference(pod: JsonObject) -> JsonObject:
    """Return how a claim names the pod that uses it."""
    metadata = pod["metadata"]
    return {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}


def reserved_for(claim: JsonObject) -> list[JsonObject]:
    """Return who uses the claim."""
    reserved: list[JsonObject] = claim.get("status", {}).get("reservedFor") or []
    return reserved


def build_claim(pod: JsonObject, entry: str, template: JsonObject) -> JsonObject:
    """Build the claim for an entry of a pod from its template."""
    given = template["spec"].get("metadata") or {}
    metadata: JsonObject = {
        "generateName": f"{pod['metadata']['name']}-{entry}-",
        "annotations": {**(given.get("annotations") or {}), POD_CLAIM_NAME: entry},
        "ownerReferences": [new_controller_ref(pod)],
    }
    if given.get("labels"):
        metadata["labels"] = dict(given["labels"])
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": copy_tree(template["spec"]["spec"]),
    }
