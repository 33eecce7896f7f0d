"""Which claims a pod has, and who uses a claim. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.runtime.jsontree import JsonObject

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made from a template: the name of its entry in the pod."""
FINALIZER = "resource.kubernetes.io/delete-protection"


def entries_of(pod: JsonObject) -> list[JsonObject]:
    """Return the claims that a pod lists, as they are written in its spec."""
    entries: list[JsonObject] = pod["spec"].get("resourceClaims") or []
    return entries


def generated_name(pod: JsonObject, entry: str) -> str | None:
    """Return the name of the claim that was made for an entry; None while there is none."""
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    return next((each.get("resourceClaimName") for each in statuses if each["name"] == entry), None)


def claim_names(pod: JsonObject) -> Iterator[tuple[JsonObject, str | None]]:
    """Yield each entry with the name of its claim; None while the claim has to be made from a template."""
    for entry in entries_of(pod):
        yield entry, entry.get("resourceClaimName") or generated_name(pod, entry["name"])


def consumer_of(pod: JsonObject) -> JsonObject:
    """Return how a claim names the pod that uses it."""
    metadata = pod["metadata"]
    return {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}


def consumers(claim: JsonObject) -> list[JsonObject]:
    """Return who uses the claim."""
    reserved: list[JsonObject] = claim.get("status", {}).get("reservedFor") or []
    return reserved
