"""The Kubernetes client: verbs on resources, JSON in, JSON out, every failure a `KubeError`.

Guarantees:
- A-1: apply sends the full intent with a field manager; A-9: as bytes of our own, without a model in between.
- C-10: a delete can be bound to a UID and a resource version.
- T-8: a watch can begin with the present state, which spares the server the memory of a list.
- S-18: `metadata_only` asks for `PartialObjectMetadata`, and takes full objects from a server that cannot.
- P-1, P-2, P-9: nothing is decoded twice, and nothing into models.
- Repeatable are reads, applies and deletes by UID; nothing else is sent again after its answer was lost (T-3, R-33:
  `RetryPolicy`).

How a request is sent is the matter of `RestClient`, which it extends; over what, that of `Transport`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypedDict, Unpack

import orjson

from trainmaster.controller.kube.rest.request import JSON, NO_PARAMS, Request, RestClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.rest.watch import WatchStream
from trainmaster.runtime.jsontree import JsonObject

ABSENT: Final = "1"
"""The resource version of an object that must not exist: an apply compares it with that of an object that it finds, and
is refused with a Conflict if they differ; where it finds none, it creates (`Store.Update` of kube-apiserver). No object
ever has this one, because the revisions of etcd begin with 1 for an empty store.
"""

_APPLY: Final = "application/apply-patch+yaml"
_MERGE_PATCH: Final = "application/merge-patch+json"
_METADATA: Final = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_METADATA_LIST: Final = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


class ListOptions(TypedDict, total=False):
    """Which part of a collection is read, and how much of each object."""

    label_selector: str | None
    field_selector: str | None
    limit: int | None
    continue_token: str | None
    resource_version: str | None
    metadata_only: bool


_LIST_PARAMS: Final[Mapping[str, str]] = {
    "label_selector": "labelSelector",
    "field_selector": "fieldSelector",
    "limit": "limit",
    "continue_token": "continue",
    "resource_version": "resourceVersion",
}


class KubeClient(RestClient):
    """A client of one cluster."""

    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, metadata_only: bool = False
    ) -> JsonObject:
        """Read one object."""
        accept = _METADATA if metadata_only else JSON
        return await self._object(Request("GET", resource.path(namespace, name), accept=accept, repeatable=True))

    async def list(
        self, resource: Resource, namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> JsonObject:
        """Read a collection, or one page of it; the answer is the list object with `items` and `metadata`."""
        answer = await self.list_bytes(resource, namespace, **options)
        return self._decode(Request("GET", resource.path(namespace)), answer)

    async def list_bytes(
        self, resource: Resource, namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> bytes:
        """Read as `list` does, but leave the answer undecoded, for whoever decodes a large one in steps (P-24)."""
        accept = _METADATA_LIST if options.pop("metadata_only", False) else JSON
        params = {_LIST_PARAMS[name]: str(value) for name, value in options.items() if value is not None}
        return await self._body(Request("GET", resource.path(namespace), params, accept=accept, repeatable=True))

    async def create(
        self,
        resource: Resource,
        obj: JsonObject,
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
    ) -> JsonObject:
        """Create an object; `namespace` is needed only where its metadata does not name one."""
        namespace = namespace or obj.get("metadata", {}).get("namespace")
        if resource.namespaced and not namespace:
            raise ValueError(f"creating one of {resource.name} needs a namespace")
        params = _params(fieldManager=field_manager)
        return await self._object(Request("POST", resource.path(namespace), params, orjson.dumps(obj)))

    async def update(self, resource: Resource, obj: JsonObject, *, subresource: str | None = None) -> JsonObject:
        """Replace an object; its resource version guards against overwriting a newer one."""
        return await self._object(Request("PUT", _path_of(resource, obj, subresource), body=orjson.dumps(obj)))

    async def apply(
        self,
        resource: Resource,
        obj: JsonObject,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> JsonObject:
        """Apply an object on the server: the full set of fields that `field_manager` wants to own.

        One that names the UID of what it changes is sent again if its answer is lost. One that may create is not: what
        it made may have been deleted meanwhile, with the owner that it was made for. With the resource version `ABSENT`
        in its metadata it only creates; otherwise none belongs there.
        """
        params = _params(fieldManager=field_manager, force="true" if force else None)
        path, body = _path_of(resource, obj, subresource), orjson.dumps(obj)
        return await self._object(Request("PATCH", path, params, body, _APPLY, repeatable="uid" in obj["metadata"]))

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        content_type: str = _MERGE_PATCH,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> JsonObject:
        """Patch an object."""
        path, params = resource.path(namespace, name, subresource), _params(fieldManager=field_manager)
        return await self._object(Request("PATCH", path, params, orjson.dumps(patch), content_type))

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, patch: Any, *, field_manager: str
    ) -> tuple[JsonObject, str]:
        """Patch the status of an object by a JSON merge patch; returns the status and the resource version after it."""
        decoded = await self.patch(resource, namespace, name, patch, subresource="status", field_manager=field_manager)
        return decoded.get("status") or {}, (decoded.get("metadata") or {}).get("resourceVersion") or ""

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        foreground: bool = False,
        grace_seconds: int | None = None,
    ) -> JsonObject:
        """Delete an object, if it is still the one of that UID and resource version; returns it or a `Status`.

        In the foreground it stays until all that it owns is gone. A pod has its own grace period unless one is given.
        """
        preconditions = _params(uid=uid, resourceVersion=resource_version)
        policy = "Foreground" if foreground else "Background"
        body: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        if preconditions:
            body["preconditions"] = preconditions
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        path = resource.path(namespace, name)
        return await self._object(Request("DELETE", path, body=orjson.dumps(body), repeatable=uid is not None))

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float,
        send_initial_events: bool = False,
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchStream]:
        """Open a watch; with `send_initial_events` it starts with the present state (R-2)."""
        params = _params(
            watch="true",
            resourceVersion=resource_version or None,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=int(timeout_seconds),
            allowWatchBookmarks="true",
            sendInitialEvents="true" if send_initial_events else None,
            resourceVersionMatch="NotOlderThan" if send_initial_events else None,
        )
        accept = _METADATA if metadata_only else JSON
        async with self.stream(resource.path(namespace), params, accept=accept) as chunks:
            yield WatchStream(chunks, clock=self._clock, inactivity_limit=self._inactivity_limit)

    def stream(
        self, path: str, params: Mapping[str, str] = NO_PARAMS, *, accept: str = "*/*"
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream of bytes, for instance the log of a pod; only its opening has a timeout."""
        return self._stream(Request("GET", path, params, accept=accept))

    async def raw(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] = NO_PARAMS,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request as it is and return the answer as it is, refusals included; no retries."""
        return await self._answer(Request(method, path, params, body, content_type, accept, headers))


def _path_of(resource: Resource, obj: JsonObject, subresource: str | None) -> str:
    metadata = obj.get("metadata", {})
    name = metadata.get("name")
    if not name:
        raise ValueError(f"writing one of {resource.name} needs metadata.name")
    return resource.path(metadata.get("namespace"), name, subresource)


def _params(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
