"""Upserts into pod specifications: how plugins add environment, ports, volumes and mounts.

An upsert replaces the first matching item in place and appends what matches nothing, so that the order which users
wrote survives. It changes the tree that it gets: plugins work on trees that belong to one resolution. Items are copied
to the ground, so that what a plugin adds in two places, or takes from the TrainJob, stays apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from trainmaster.runtime.api.constants import COMPLETION_INDEX_FIELD_PATH
from trainmaster.runtime.field_errors import FieldWarning
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_READ_ON_PODS: Final = (
    "sidecar.istio.io/inject",
    "linkerd.io/inject",
    "kuma.io/sidecar-injection",
    "vault.hashicorp.com/agent-inject",
)
"""Labels and annotations by which admission plugins of a cluster know what to add to a pod."""


def warn_of_metadata(obj: JsonObject, *, instead: str) -> Iterator[FieldWarning]:
    """Warn of labels and annotations of a job that are read on pods.

    Args:
        obj: The job.
        instead: The field with the metadata of its pods.
    """
    metadata = obj.get("metadata")
    for field in ("labels", "annotations"):
        given = metadata.get(field) if isinstance(metadata, dict) else None
        for name in _READ_ON_PODS:
            if isinstance(given, dict) and name in given:
                detail = f"has no effect here: it is read on pods; write it in {instead}.{field}"
                yield FieldWarning(f"metadata.{field}[{name}]", detail)


def env_value(name: str, value: object) -> JsonObject:
    """Build a literal environment variable, an EnvVar; its value is `str(value)`, since the API takes texts alone."""
    return {"name": name, "value": str(value)}


def env_field(name: str, field_path: str) -> JsonObject:
    """Build an environment variable that holds a field of the pod, for instance `metadata.name`."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}


def env_completion_index(name: str) -> JsonObject:
    """Build an environment variable that holds the pod's index within its Indexed Job: a text from "0" on."""
    return env_field(name, COMPLETION_INDEX_FIELD_PATH)


def upsert_env(container: JsonObject, env: Iterable[JsonObject]) -> None:
    """Set environment variables, matched by name; a match is replaced completely.

    Args:
        container: The Container to change.
        env: EnvVar objects.

    Raises:
        KeyError: A variable has no name.
    """
    _upsert(container, "env", env, key="name")


def append_env(container: JsonObject, env: Iterable[JsonObject]) -> None:
    """Add environment variables behind those that there are: of two with the same name, the later one counts."""
    container["env"] = [*(container.get("env") or []), *map(copy_tree, env)]


def append_env_of_all(pod_spec: JsonObject, env: Sequence[JsonObject]) -> None:
    """Do that for all containers of a pod; those that run before them are no part of it."""
    for container in pod_spec.get("containers") or []:
        append_env(container, env)


def upsert_ports(container: JsonObject, ports: Iterable[JsonObject]) -> None:
    """Declare container ports, matched by number and protocol, or by name where both have one.

    Args:
        container: The Container to change.
        ports: ContainerPort objects.

    Raises:
        KeyError: A port has no `containerPort`.
    """
    declared: list[JsonObject] = container.get("ports") or []
    for port in ports:
        same = (place for place, existing in enumerate(declared) if _same_port(existing, port))
        place = next(same, len(declared))
        declared[place : place + 1] = [copy_tree(port)]
    if declared:
        container["ports"] = declared


def upsert_volumes(pod_spec: JsonObject, volumes: Iterable[JsonObject]) -> None:
    """Add volumes to a pod, matched by name; a match is replaced completely.

    Args:
        pod_spec: The PodSpec to change.
        volumes: Volume objects.

    Raises:
        KeyError: A volume has no name.
    """
    _upsert(pod_spec, "volumes", volumes, key="name")


def upsert_volume_mounts(container: JsonObject, mounts: Iterable[JsonObject]) -> None:
    """Mount volumes into a container, matched by mount path; a match is replaced completely.

    Args:
        container: The Container to change.
        mounts: VolumeMount objects.

    Raises:
        KeyError: A mount has no `mountPath`.
    """
    _upsert(container, "volumeMounts", mounts, key="mountPath")


def _same_port(old: JsonObject, new: JsonObject) -> bool:
    if old.get("name") and old["name"] == new.get("name"):
        return True
    same_number = old.get("containerPort") == new["containerPort"]
    return bool(same_number) and old.get("protocol", "TCP") == new.get("protocol", "TCP")


def _upsert(holder: JsonObject, field: str, items: Iterable[JsonObject], *, key: str) -> None:
    merged: list[JsonObject] = holder.get(field) or []
    # Both may be long: where no schema sets a limit, a TrainJob or a runtime has tens of thousands of variables.
    places: dict[Any, int] = {}
    for place, existing in enumerate(merged):
        value = existing.get(key)
        places.setdefault(value if type(value) is str else _scalar(value), place)
    for item in items:
        value = item[key]
        place = places.setdefault(value if type(value) is str else _scalar(value), len(merged))
        if place < len(merged):
            merged[place] = copy_tree(item)
        else:
            merged.append(copy_tree(item))
    if merged:
        holder[field] = merged


def _scalar(value: Any) -> Any:
    """Return what identifies an item; what cannot be looked up is the same as nothing else."""
    return object() if isinstance(value, (dict, list)) else value
