"""The scale subresource, by which one number of an object is read and written under a common name.

Guarantees:
- nothing but the number of replicas is ever changed by it;
- a Scale that names a resource version is written only over that version; one that names none is written again when
  another writer was faster.
"""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.jsonpatch import PatchError, json_patch, merge_patch
from trainmaster.devcluster.apiserver.registry.generic.api import Api
from trainmaster.devcluster.apiserver.registry.generic.patch import parse_patch
from trainmaster.devcluster.apiserver.registry.options import Patch, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.scale import SCALE, UNSET, ScalePaths
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

_ATTEMPTS = 5
_PATCH_TYPES = (PatchType.JSON, PatchType.MERGE)


class Scaler:
    """Reads and writes Scales."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, resource: GroupResource, namespace: str | None, name: str) -> JsonObject:
        """Return the Scale of an object."""
        paths = _paths(self._api.registry.get(resource))
        live = self._api.get(resource, namespace, name)
        if paths.replicas(live) is None:
            raise errors.internal(f'the spec replicas field "{paths.spec_replicas}" does not exist')
        return paths.scale_of(live)

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
            before = _paths(kind).scale_of(live, absent=UNSET)
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
        scaled = paths.scaled(live, scale)
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
        return paths.scale_of(written)


def _paths(kind: Kind) -> ScalePaths:
    if kind.scale is None:
        raise errors.route_not_found()
    return kind.scale


def _check_identity(kind: Kind, scale: Any, name: str) -> None:
    if not isinstance(scale, dict) or not isinstance(scale.setdefault("metadata", {}), dict):
        raise errors.bad_request("a Scale and its metadata must be objects")
    for field, expected in SCALE.items():
        if scale.get(field, expected) != expected:
            raise errors.bad_request(f"the {field} of a scale of {kind.resource} is {expected}, not {scale[field]}")
    if (given := scale["metadata"].get("name") or name) != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
