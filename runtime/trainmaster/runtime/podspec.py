"""Upserts into pod specifications: how plugins add environment, ports, volumes and mounts.

An upsert replaces the first matching item in place and appends what matches nothing, so that the order which users
wrote survives. It changes the tree that it gets: plugins work on trees that belong to one resolution. Items are copied
to the ground, so that what a plugin adds in two places, or takes from the TrainJob, stays apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trainmaster.runtime.api.constants import COMPLETION_INDEX_FIELD_PATH
from trainmaster.runtime.jsontree import JsonObject, copy_tree


def env_value(name: str, value: object) -> JsonObject:
    """Build a literal environment variable."""
    return {"name": name, "value": str(value)}


def env_field(name: str, field_path: str) -> JsonObject:
    """Build an environment variable that holds a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}


def env_completion_index(name: str) -> JsonObject:
    """Build an environment variable that holds the pod's index within its Indexed Job."""
    return env_field(name, COMPLETION_INDEX_FIELD_PATH)


def upsert_env(container: JsonObject, env: Iterable[JsonObject]) -> None:
    """Set environment variables, matched by name; a match is replaced completely."""
    _upsert(container, "env", env, lambda old, new: bool(old.get("name") == new["name"]))


def upsert_ports(container: JsonObject, ports: Iterable[JsonObject]) -> None:
    """Declare container ports, matched by number and protocol, or by name where both have one."""
    _upsert(container, "ports", ports, _same_port)


def upsert_volumes(pod_spec: JsonObject, volumes: Iterable[JsonObject]) -> None:
    """Add volumes to a pod, matched by name."""
    _upsert(pod_spec, "volumes", volumes, lambda old, new: bool(old.get("name") == new["name"]))


def upsert_volume_mounts(container: JsonObject, mounts: Iterable[JsonObject]) -> None:
    """Mount volumes into a container, matched by mount path."""
    _upsert(container, "volumeMounts", mounts, lambda old, new: bool(old.get("mountPath") == new["mountPath"]))


def _same_port(old: JsonObject, new: JsonObject) -> bool:
    if old.get("name") and old["name"] == new.get("name"):
        return True
    same_number = old.get("containerPort") == new["containerPort"]
    return bool(same_number) and old.get("protocol", "TCP") == new.get("protocol", "TCP")


def _upsert(holder: JsonObject, field: str, items: Iterable[JsonObject], same: Callable[[Any, Any], bool]) -> None:
    merged: list[JsonObject] = holder.get(field) or []
    for item in items:
        for position, existing in enumerate(merged):
            if same(existing, item):
                merged[position] = copy_tree(item)
                break
        else:
            merged.append(copy_tree(item))
    if merged:
        holder[field] = merged
