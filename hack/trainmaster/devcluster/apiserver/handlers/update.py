"""PUT and PATCH, of objects and of their scale subresource.

Guarantees:
- the options of a write are checked before its body is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.handlers.write_options import (
    invalid_options,
    noted_duplicates,
    read_patch_type,
    read_strictly,
    read_write_options,
    warning,
)
from trainmaster.devcluster.apiserver.http.bodies import Duplicates, decode_json, decode_yaml, read_body, read_object
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.scale import Scaler


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
