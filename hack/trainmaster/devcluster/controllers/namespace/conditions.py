"""The conditions of a namespace whose content cannot go yet: what is left of it, and which finalizers hold it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject


def content_conditions(
    namespace: JsonObject, remaining: Sequence[tuple[GroupResource, JsonObject]], *, now: datetime
) -> list[JsonObject]:
    """Return the conditions; one whose status has not changed keeps the time of its last transition."""
    resources = Counter(str(resource) for resource, _ in remaining)
    finalizers = Counter(name for _, obj in remaining for name in obj["metadata"].get("finalizers") or ())
    left = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(resources.items()))
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    conditions = [
        _condition(
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            f"Some resources are remaining: {left}",
            value=True,
            now=now,
        ),
        _condition(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {held}"
            if held
            else "All content-preserving finalizers finished",
            value=bool(held),
            now=now,
        ),
    ]
    old = {condition["type"]: condition for condition in namespace.get("status", {}).get("conditions") or ()}
    for condition in conditions:
        known = old.get(condition["type"])
        if known is not None and known["status"] == condition["status"]:
            condition["lastTransitionTime"] = known["lastTransitionTime"]
    return conditions


def _condition(kind: str, reason: str, message: str, *, value: bool, now: datetime) -> JsonObject:
    return {
        "type": kind,
        "status": "True" if value else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
