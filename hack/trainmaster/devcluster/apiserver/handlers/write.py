"""POST, PUT, PATCH and DELETE: objects, tokens of service accounts, and evictions, as `kubectl drain` does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.filters.audit import log_created_name
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder, without_type
from trainmaster.devcluster.apiserver.handlers.write_options import (
    invalid_options,
    noted_duplicates,
    parse_delete_options,
    read_delete_options,
    read_patch_type,
    read_strictly,
    read_write_options,
    warning,
)
from trainmaster.devcluster.apiserver.http.bodies import Duplicates, decode_json, decode_yaml, read_body, read_object
from trainmaster.devcluster.apiserver.http.query import ListOptions
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.disruption import Disruption, disrupt
from trainmaster.devcluster.apiserver.registry.generic.scale import Scaler
from trainmaster.devcluster.apiserver.resources import PODS, GroupResource
from trainmaster.runtime.jsontree import JsonObject

_EVICTED: Final = Disruption("EvictionByEvictionAPI", "Eviction API: evicting")


async def create_resource(api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo) -> web.Response:
    """Handle a POST to a collection."""
    options = read_write_options(request, "CreateOptions")
    body, options = await read_strictly(request, options)
    log_created_name(request, body)
    with warning(options):
        created = await api.create(encoder.kind.resource, body, namespace=info.namespace, options=options)
    return json_response(encoder.object(created), status=201, warnings=options.warnings)


async def create_token(tokens: ServiceAccountTokens, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle a POST to the token subresource of a service account."""
    body = await read_object(request)
    return json_response(tokens.create(info.namespace or "", info.name or "", body), status=201)


async def bind_pod(api: Api, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle a POST to the binding subresource of a pod: give it the node that the body names."""
    body, options = await read_strictly(request, read_write_options(request, "CreateOptions"))
    target, metadata, name = body.get("target"), body.get("metadata") or {}, info.name or ""
    if body.get("kind", "Binding") != "Binding" or not isinstance(metadata, dict):
        raise errors.bad_request(f"a Binding gives a pod its node, not a {body.get('kind')}: send one")
    if metadata.get("name") not in (None, "", name):
        raise errors.bad_request("name in URL does not match name in Binding object")
    target = target if isinstance(target, dict) else {}
    problems = []
    if (kind := target.get("kind") or "Node") != "Node":
        problems.append(FieldError("target.kind", "NotSupported", kind, 'supported values: "Node", "<empty>"'))
    if not target.get("name"):
        problems.append(FieldError("target.name", "Required"))
    if problems:
        # The real server gives this error no reason, and so no better code.
        texts = [str(problem) for problem in problems]
        raise errors.StatusError(500, "", texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    bound = {"spec": {"nodeName": str(target["name"])}}
    await api.patch(
        PODS, info.namespace, name, bound, patch_type=PatchType.MERGE, subresource="binding", options=options
    )
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return json_response(status, status=201, warnings=options.warnings)


async def update_resource(
    api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a PUT."""
    options = read_write_options(request, "UpdateOptions")
    body, options = await read_strictly(request, options)
    with warning(options):
        written, created = await api.put(
            encoder.kind.resource,
            body,
            namespace=info.namespace,
            name=name,
            subresource=info.subresource,
            options=options,
        )
    return json_response(encoder.object(written), status=201 if created else 200, warnings=options.warnings)


async def patch_resource(
    api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a PATCH of any type."""
    patch_type = read_patch_type(request, encoder.kind)
    options = read_write_options(request, "PatchOptions")
    applying = patch_type is PatchType.APPLY
    if applying and not request.query.get("fieldManager"):
        raise invalid_options("PatchOptions", FieldError("fieldManager", "Required", "", "is required for apply patch"))
    if "force" in request.query and not applying:
        raise invalid_options(
            "PatchOptions", FieldError("force", "Forbidden", "", "may not be specified for non-apply patch")
        )
    patch, options = _read_patch(await read_body(request), patch_type, options)
    with warning(options):
        patched, created = await api.patch(
            encoder.kind.resource,
            info.namespace,
            name,
            patch,
            patch_type=patch_type,
            subresource=info.subresource,
            options=options,
        )
    return json_response(encoder.object(patched), status=201 if created else 200, warnings=options.warnings)


def _read_patch(content: bytes, patch_type: PatchType, options: WriteOptions) -> tuple[Any, WriteOptions]:
    """Decode a patch; returns the options with what a strict decoder has to say of it."""
    duplicates = None if options.field_validation == "Ignore" else Duplicates([])
    if patch_type is not PatchType.APPLY:
        patch = decode_json(content, duplicates=duplicates)
        if duplicates is not None and patch_type is PatchType.JSON:
            duplicates.texts = [f"json patch {text}" for text in [*duplicates.texts, *_unknown_members(patch)]]
        return patch, noted_duplicates(options, duplicates)
    configuration = decode_yaml(content, duplicates=duplicates)
    if duplicates and options.field_validation == "Strict":
        raise errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {duplicates.error}")
    return configuration, noted_duplicates(options, duplicates)


def _unknown_members(operations: Any) -> Iterator[str]:
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        for member in operation if isinstance(operation, dict) else ():
            if member not in {"op", "path", "from", "value"}:
                yield f'unknown field "[{index}].{member}"'


async def serve_scale(
    scaler: Scaler, request: web.Request, kind: Kind, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a GET, PUT or PATCH of the scale subresource."""
    resource, namespace = kind.resource, info.namespace
    if request.method == "GET":
        return json_response(scaler.get(resource, namespace, name))
    if request.method == "PUT":
        options = read_write_options(request, "UpdateOptions")
        body = await read_object(request)
        scale = await scaler.update(resource, namespace, name, body, options=options)
    else:
        patch_type = read_patch_type(request, kind)
        options = read_write_options(request, "PatchOptions")
        patch = decode_json(await read_body(request))
        scale = await scaler.patch(resource, namespace, name, patch, patch_type=patch_type, options=options)
    return json_response(scale, warnings=options.warnings)


async def delete_resource(
    api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a DELETE of one object: the object while it lingers, for most kinds a Status once it is gone."""
    options = await read_delete_options(request)
    kind = encoder.kind
    deleted, gone = await api.delete(kind.resource, info.namespace, name, options=options)
    shows_object = not gone or kind.strategy.return_deleted_object
    body = encoder.object(deleted) if shows_object else _success_status(kind.resource, deleted)
    return json_response(body, warnings=[*options.warnings, *_deletion_warnings(kind, options)])


async def delete_collection(
    api: Api, request: web.Request, kind: Kind, info: RequestInfo, *, selected: ListOptions
) -> web.Response:
    """Handle a DELETE of the selected objects with the list of them."""
    options = await read_delete_options(request)
    deleted = await api.delete_collection(
        kind.resource, info.namespace, labels=selected.labels, fields=selected.fields, options=options
    )
    metadata = {"resourceVersion": str(api.revision)}
    list_kind = kind.list_kind or f"{kind.kind}List"
    items = deleted if kind.custom else [without_type(each) for each in deleted]
    return json_response(
        {"kind": list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items},
        warnings=[*options.warnings, *_deletion_warnings(kind, options)],
    )


def _deletion_warnings(kind: Kind, options: DeleteOptions) -> list[str]:
    if not kind.strategy.orphans_by_default or options.propagation is not None:
        return []
    warning = (
        f"child pods are preserved by default when {kind.plural} are deleted; set propagationPolicy=Background to "
        "remove them or set propagationPolicy=Orphan to suppress this warning"
    )
    return [warning]


def _success_status(resource: GroupResource, deleted: JsonObject) -> JsonObject:
    metadata = deleted["metadata"]
    details = {"name": metadata["name"], "group": resource.group, "kind": resource.resource, "uid": metadata["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


async def evict_pod(api: Api, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle the request: the pod says why it goes, and is deleted."""
    body, options = await read_strictly(request, read_write_options(request, "CreateOptions"))
    metadata, name, namespace = body.get("metadata") or {}, info.name or "", info.namespace or ""
    if body.get("kind", "Eviction") != "Eviction" or not isinstance(metadata, dict):
        raise errors.bad_request(f"a pod is evicted by an Eviction, not by a {body.get('kind')}: send one")
    if metadata.get("name") not in (None, "", name):
        raise errors.bad_request("name in URL does not match name in Eviction object")
    given = body.get("deleteOptions") or {}
    if not isinstance(given, dict):
        raise errors.bad_request("deleteOptions must be an object")
    delete = parse_delete_options(given, user=options.user)
    options = replace(options, dry_run=options.dry_run or delete.dry_run)
    pod = api.get(PODS, namespace, name)
    if delete.uid not in (None, pod["metadata"]["uid"]):
        raise errors.conflict(PODS, name, f"the UID in the precondition ({delete.uid}) does not match that of the pod")
    await disrupt(api, pod, _EVICTED, write=options, delete=replace(delete, dry_run=options.dry_run))
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return json_response(status, status=201, warnings=options.warnings)
