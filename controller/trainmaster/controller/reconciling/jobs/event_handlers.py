"""Event handlers: which jobs an event concerns (map functions), and what the caches keep of an object (transforms).

Guarantees:
- E-3, E-5: an owner is found by group and kind, whatever its version; the reconciler finds what it owns by its UID.
- An object without an owner that has the name of one of ours concerns the job whose labels it has: when it goes, that
  job can go on.
- S-16, S-17: what nobody reads is dropped before it is cached, and dropping it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from trainmaster.controller.reconciling.event_handlers import strip_to_identity
from trainmaster.controller.reconciling.managedfields import strip_managed_fields
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL, MANAGED_BY_TRAINING_OPERATOR, OPERATOR_NAME_LABEL
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jsontree import JsonObject

_POD_STATUS: Final = ("phase", "reason", "message", "conditions", "initContainerStatuses", "containerStatuses")


def job_keys(kind: JobKind) -> Callable[[JsonObject], list[str]]:
    """Return the map function from an object to the jobs of one kind that it concerns."""

    def keys(obj: JsonObject) -> list[str]:
        metadata = obj["metadata"]
        owners = [each for each in metadata.get("ownerReferences") or [] if each.get("controller")]
        if owners:
            return [
                f"{metadata['namespace']}/{each['name']}"
                for each in owners
                if each.get("kind") == kind.kind and str(each.get("apiVersion")).partition("/")[0] == kind.group
            ]
        labels = metadata.get("labels") or {}
        if labels.get(OPERATOR_NAME_LABEL) == kind.controller_name and labels.get(JOB_NAME_LABEL):
            return [f"{metadata['namespace']}/{labels[JOB_NAME_LABEL]}"]
        return []

    return keys


def trim_pod(pod: JsonObject) -> JsonObject:
    """Strip a pod of what no decision about its job rests on."""
    status = pod.get("status") or {}
    strip_to_identity(pod, metadata=("labels",))
    pod["status"] = {field: status[field] for field in _POD_STATUS if status.get(field)}
    return pod


def trim_service(service: JsonObject) -> JsonObject:
    """Strip a Service of all but its identity: it is made once, and never changed."""
    return strip_to_identity(service, metadata=("labels",))


def trim_owned(kinds: Iterable[JobKind]) -> Callable[[JsonObject], JsonObject]:
    """Return the transform of a kind that we apply: whole if a job is its controller, else its identity alone."""
    owners = {(kind.group, kind.kind) for kind in kinds}

    def trim(obj: JsonObject) -> JsonObject:
        references = obj["metadata"].get("ownerReferences") or []
        if any(
            each.get("controller") and (str(each.get("apiVersion")).partition("/")[0], each.get("kind")) in owners
            for each in references
        ):
            return strip_managed_fields(obj)
        return strip_to_identity(obj)

    return trim


def managed_by(raw: JsonObject) -> object:
    """Return who is in charge of a job, before anything else of it is read."""
    spec = raw.get("spec")
    policy = spec.get("runPolicy") if isinstance(spec, dict) else None
    manager = policy.get("managedBy") if isinstance(policy, dict) else None
    return MANAGED_BY_TRAINING_OPERATOR if manager is None else manager
