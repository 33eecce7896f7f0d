"""Amounts of resources that limits and quotas compare."""

from __future__ import annotations

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resources import Resources, pod_requests


def pod_limits(spec: JsonObject) -> Resources:
    """Add up the limits of a pod, by the rules by which its requests are added up."""
    lists = {field: [_raised(each) for each in spec.get(field) or ()] for field in ("containers", "initContainers")}
    return pod_requests({**_raised(spec), **lists, "overhead": {}})


def _raised(holder: JsonObject) -> JsonObject:
    """Return a pod spec or container that requests its limits."""
    return {**holder, "resources": {"requests": (holder.get("resources") or {}).get("limits") or {}}}
