"""Defaults that JobSet's mutating webhook fills in, beyond those of the schema.

Defaults come before validation (a rule needs a name, and gets one here), so nothing can be taken for granted about the
shape of the object: what is not an object or a list where one belongs is left for validation to refuse.
"""

from __future__ import annotations

from typing import Any

from trainmaster.runtime.jsontree import JsonObject


def apply_defaults(jobset: JsonObject) -> None:
    """Fill in, in place, what the author of a JobSet left open."""
    spec = jobset.get("spec")
    if not isinstance(spec, dict):
        return
    _object_at(spec, "successPolicy").setdefault("operator", "All")
    _object_at(spec, "startupPolicy").setdefault("startupPolicyOrder", "AnyOrder")
    network = _object_at(spec, "network")
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated_job in _objects(spec.get("replicatedJobs")):
        if "template" in replicated_job:
            job = _object_at(_object_at(replicated_job, "template"), "spec")
            job.setdefault("completionMode", "Indexed")
            pod = _object_at(_object_at(job, "template"), "spec")
            pod["restartPolicy"] = pod.get("restartPolicy") or "OnFailure"
    if "failurePolicy" in spec:
        for number, rule in enumerate(_objects(_object_at(spec, "failurePolicy").get("rules"))):
            rule["name"] = rule.get("name") or f"failurePolicyRule{number}"


def _object_at(holder: JsonObject, field: str) -> JsonObject:
    """Return the object in a field, a new one if the field is absent; something else in its place is not touched."""
    value = holder.setdefault(field, {})
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
