"""The scale subresource, by which one number of an object is read and written under a common name.

Guarantees:
- nothing but the number of replicas is ever changed by it;
- a Scale that names a resource version is written only over that version; one that names none is written again when
  another writer was faster.
"""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, StatusError
from trainmaster.devcluster.apiserver.jsonpatch import PatchError, json_patch, merge_patch
from trainmaster.devcluster.apiserver.registry.generic.api import Api
from trainmaster.devcluster.apiserver.registry.generic.patch import parse_patch
from trainmaster.devcluster.apiserver.registry.options import Patch, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind, ScalePaths
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.selectors import format_label_selector
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_GROUP = "autoscaling"
_SCALE = {"kind": "Scale", "apiVersion": f"{_GROUP}/v1"}
_ATTEMPTS = 5
_PATCH_TYPES = (PatchType.JSON, PatchType.MERGE)
_LARGEST = 2**31 - 1


class Scaler:
    """Reads and writes Scales."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, resource: GroupResource, namespace: str | None, name: str) -> JsonObject:
        """Return the Scale of an object."""
        kind = self._api.registry.get(resource)
        return scale_of(_paths(kind), self._api.get(resource, namespace, name))

    async def update(
        self, resource: GroupResource, namespace: str | None, name: str, scale: JsonObject, *, options: WriteOptions
    ) -> JsonObject:
        """Replace the Scale of an object."""
        kind = self._api.registry.get(resource)
        _check_identity(kind, scale, name)
        for attempt in range(1, _ATTEMPTS + 1):
            live = self._api.get(resource, namespace, name)
            version = scale["metadata"].get("resourceVersion")
            try:
                return await self._write(kind, live, scale, options)
            except StatusError as error:
                if error.reason != "Conflict" or version or attempt == _ATTEMPTS:
                    raise
        raise errors.modified(resource, name)

    async def patch(
        self,
        resource: GroupResource,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        patch_type: PatchType,
        options: WriteOptions,
    ) -> JsonObject:
        """Change the Scale of an object by a patch."""
        kind = self._api.registry.get(resource)
        if patch_type is PatchType.APPLY:
            raise errors.not_implemented(f"server-side apply to the scale subresource of {resource}")
        if patch_type not in _PATCH_TYPES:
            raise errors.unsupported_media_type(list(_PATCH_TYPES))
        parsed = parse_patch(patch, patch_type)
        for attempt in range(1, _ATTEMPTS + 1):
            live = self._api.get(resource, namespace, name)
            before = scale_of(_paths(kind), live)
            try:
                scale: Any = (json_patch if patch_type is PatchType.JSON else merge_patch)(before, parsed)
            except PatchError as error:
                raise errors.unprocessable(str(error)) from error
            _check_identity(kind, scale, name)
            own_version = scale["metadata"].get("resourceVersion") == live["metadata"]["resourceVersion"]
            try:
                return await self._write(kind, live, scale, options)
            except StatusError as error:
                if error.reason != "Conflict" or not own_version or attempt == _ATTEMPTS:
                    raise
        raise errors.modified(resource, name)

    async def _write(self, kind: Kind, live: JsonObject, scale: JsonObject, options: WriteOptions) -> JsonObject:
        paths, metadata = _paths(kind), live["metadata"]
        scaled = _with_replicas(live, paths.spec_replicas, _replicas(scale))
        for field in ("resourceVersion", "uid"):
            if given := scale["metadata"].get(field):
                scaled["metadata"][field] = given
        written = await self._api.update(
            kind.resource,
            scaled,
            namespace=metadata.get("namespace"),
            name=metadata["name"],
            subresource="scale",
            options=options,
        )
        return scale_of(paths, written)


def scale_of(paths: ScalePaths, obj: JsonObject) -> JsonObject:
    """Return the Scale that shows an object; 500 if the object says nothing about replicas."""
    replicas = _at(obj, paths.spec_replicas)
    if not isinstance(replicas, int):
        raise errors.internal(f'the spec replicas field "{paths.spec_replicas}" does not exist')
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {field: obj["metadata"][field] for field in kept if field in obj["metadata"]}
    status = {"replicas": _at(obj, paths.status_replicas) or 0}
    if paths.label_selector and (selector := _at(obj, paths.label_selector)):
        status["selector"] = format_label_selector(selector) if isinstance(selector, dict) else selector
    return {**_SCALE, "metadata": metadata, "spec": {"replicas": replicas} if replicas else {}, "status": status}


def _paths(kind: Kind) -> ScalePaths:
    if kind.scale is None:
        raise errors.route_not_found()
    return kind.scale


def _at(obj: JsonObject, path: str) -> Any:
    node: Any = obj
    for name in path.strip(".").split("."):
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node


def _with_replicas(obj: JsonObject, path: str, replicas: int) -> JsonObject:
    changed: JsonObject = copy_tree(obj)
    *parents, last = path.strip(".").split(".")
    node = changed
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = replicas
    return changed


def _check_identity(kind: Kind, scale: Any, name: str) -> None:
    if not isinstance(scale, dict) or not isinstance(scale.setdefault("metadata", {}), dict):
        raise errors.bad_request("a Scale and its metadata must be objects")
    for field, expected in _SCALE.items():
        if scale.get(field, expected) != expected:
            raise errors.bad_request(f"the {field} of a scale of {kind.resource} is {expected}, not {scale[field]}")
    if (given := scale["metadata"].get("name") or name) != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _replicas(scale: JsonObject) -> int:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or abs(replicas) > _LARGEST:
        raise errors.bad_request("spec.replicas of a Scale must be a whole number of 32 bits")
    if replicas < 0:
        detail = "must be greater than or equal to 0"
        problem = FieldError("spec.replicas", "Invalid", replicas, detail)
        raise errors.invalid(_GROUP, "Scale", scale["metadata"].get("name", ""), [problem])
    return replicas
