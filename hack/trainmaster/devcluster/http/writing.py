"""POST, PUT, PATCH and DELETE: options and bodies in, the written object or a Status out.

Guarantees:
- the options of a write are checked before its body is read;
- who wrote a field is known: the field manager is the one that the client names, or the program in its User-Agent.
"""

from __future__ import annotations

from typing import Any, cast, get_args

from aiohttp import web

from trainmaster.devcluster import errors
from trainmaster.devcluster.api import Api, DeleteOptions, FieldValidation, PatchType, Propagation, WriteOptions
from trainmaster.devcluster.errors import FieldError
from trainmaster.devcluster.http.answering import json_response
from trainmaster.devcluster.http.bodies import content_type_of, decode_json, decode_yaml, read_body, read_object
from trainmaster.devcluster.http.parameters import (
    ListOptions,
    read_boolean,
    read_dry_run,
    read_integer,
)
from trainmaster.devcluster.http.presenting import Presenter
from trainmaster.devcluster.http.routing import RequestTarget
from trainmaster.devcluster.kinds import Kind
from trainmaster.devcluster.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

_MAX_MANAGER = 128


class Writer:
    """Answers the requests that write."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def create(self, request: web.Request, presenter: Presenter, target: RequestTarget) -> web.Response:
        """Answer a POST."""
        options = _write_options(request, "CreateOptions")
        body = await _read_strictly(request, options)
        resource = presenter.kind.resource
        created = await self._api.create(resource, body, namespace=target.namespace, options=options)
        return json_response(presenter.one(created), status=201, warnings=options.warnings)

    async def update(self, request: web.Request, presenter: Presenter, target: RequestTarget) -> web.Response:
        """Answer a PUT."""
        options = _write_options(request, "UpdateOptions")
        body = await _read_strictly(request, options)
        updated = await self._api.update(
            presenter.kind.resource,
            body,
            namespace=target.namespace,
            name=target.name,
            subresource=target.subresource,
            options=options,
        )
        return json_response(presenter.one(updated), warnings=options.warnings)

    async def patch(
        self, request: web.Request, presenter: Presenter, target: RequestTarget, *, name: str
    ) -> web.Response:
        """Answer a PATCH of any type."""
        patch_type = _patch_type(request)
        options = _write_options(request, "PatchOptions")
        applying = patch_type is PatchType.APPLY
        if applying and not request.query.get("fieldManager"):
            raise _refused("PatchOptions", FieldError("fieldManager", "Required", "", "is required for apply patch"))
        if "force" in request.query and not applying:
            raise _refused(
                "PatchOptions", FieldError("force", "Forbidden", "", "may not be specified for non-apply patch")
            )
        content = await read_body(request)
        patched, created = await self._api.patch(
            presenter.kind.resource,
            target.namespace,
            name,
            decode_yaml(content) if applying else decode_json(content),
            patch_type=patch_type,
            subresource=target.subresource,
            options=options,
        )
        return json_response(presenter.one(patched), status=201 if created else 200, warnings=options.warnings)

    async def delete(
        self, request: web.Request, presenter: Presenter, target: RequestTarget, *, name: str
    ) -> web.Response:
        """Answer a DELETE of one object: the object while it lingers, a Status once it is gone."""
        options = await _delete_options(request)
        resource = presenter.kind.resource
        deleted, gone = await self._api.delete(resource, target.namespace, name, options=options)
        return json_response(_success(resource, deleted) if gone else presenter.one(deleted))

    async def delete_collection(
        self, request: web.Request, kind: Kind, target: RequestTarget, *, selected: ListOptions
    ) -> web.Response:
        """Answer a DELETE of the selected objects with the list of them."""
        options = await _delete_options(request)
        deleted = await self._api.delete_collection(
            kind.resource, target.namespace, labels=selected.labels, fields=selected.fields, options=options
        )
        metadata = {"resourceVersion": str(self._api.revision)}
        list_kind = kind.list_kind or f"{kind.kind}List"
        return json_response(
            {"kind": list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": deleted}
        )


async def _read_strictly(request: web.Request, options: WriteOptions) -> JsonObject:
    """Read the object of a write; repeated fields are looked for only if the client says what to do about them."""
    asked = request.query.get("fieldValidation", "Ignore") != "Ignore"
    duplicates: list[str] | None = [] if asked else None
    body = await read_object(request, duplicates=duplicates)
    texts = [f"duplicate field {errors.quote(path)}" for path in duplicates or ()]
    if texts and options.field_validation == "Strict":
        raise errors.bad_request(f"strict decoding error: {', '.join(texts)}")
    options.warnings.extend(texts)
    return body


def _write_options(request: web.Request, kind: str) -> WriteOptions:
    query = request.query
    manager = query.get("fieldManager", "")
    if len(manager) > _MAX_MANAGER or not manager.isprintable():
        detail = f"must be at most {_MAX_MANAGER} printable characters"
        raise _refused(kind, FieldError("fieldManager", "Invalid", manager, detail))
    return WriteOptions(
        field_manager=manager or _program(request),
        force=read_boolean(query, "force"),
        dry_run=read_dry_run(query.getall("dryRun", [])),
        field_validation=_field_validation(query.get("fieldValidation", ""), kind),
    )


def _field_validation(text: str, kind: str) -> FieldValidation:
    match text:
        case "" | "Warn":
            return "Warn"
        case "Strict" | "Ignore":
            return text
        case _:
            raise _refused(kind, _unsupported("fieldValidation", text, get_args(FieldValidation)))


def _program(request: web.Request) -> str:
    """Return the name of the client's program, by which the API server knows managers that do not name themselves."""
    program = request.headers.get("User-Agent", "").partition("/")[0].strip()[:_MAX_MANAGER]
    return program if program and program.isprintable() else "unknown"


def _patch_type(request: web.Request) -> PatchType:
    try:
        return PatchType(content_type_of(request))
    except ValueError as error:
        raise errors.unsupported_media_type(list(PatchType)) from error


async def _delete_options(request: web.Request) -> DeleteOptions:
    """Read the options of a deletion, from the body if there is one and else from the query, as the API server does."""
    given: JsonObject = await read_object(request, duplicates=None) if request.can_read_body else {}
    query = request.query
    if not given:
        given = {
            "propagationPolicy": query.get("propagationPolicy"),
            "gracePeriodSeconds": read_integer(query, "gracePeriodSeconds"),
            "orphanDependents": read_boolean(query, "orphanDependents") if "orphanDependents" in query else None,
            "dryRun": query.getall("dryRun", []),
        }
    preconditions = _checked(given, "preconditions", dict) or {}
    return DeleteOptions(
        propagation=_propagation(given),
        grace_seconds=_grace_seconds(given),
        uid=_checked(preconditions, "uid", str),
        resource_version=_checked(preconditions, "resourceVersion", str),
        dry_run=read_dry_run(_checked(given, "dryRun", list) or []),
    )


def _propagation(given: JsonObject) -> Propagation | None:
    policy = _checked(given, "propagationPolicy", str)
    orphan = _checked(given, "orphanDependents", bool)
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        raise _refused("DeleteOptions", FieldError("propagationPolicy", "Invalid", policy, detail))
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    match policy:
        case None | "":
            return None
        case "Background" | "Foreground" | "Orphan":
            return cast("Propagation", policy)
        case _:
            raise _refused("DeleteOptions", _unsupported("propagationPolicy", policy, get_args(Propagation)))


def _grace_seconds(given: JsonObject) -> int | None:
    seconds = given.get("gracePeriodSeconds")
    if seconds is None:
        return None
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
        detail = "must be a whole number that is not negative"
        raise _refused("DeleteOptions", FieldError("gracePeriodSeconds", "Invalid", seconds, detail))
    return seconds


def _checked(given: JsonObject, field: str, expected: type[Any]) -> Any:
    value = given.get(field)
    if value is not None and not isinstance(value, expected):
        detail = f"must be of type {expected.__name__}"
        raise _refused("DeleteOptions", FieldError(field, "TypeInvalid", value, detail))
    return value


def _unsupported(field: str, value: str, supported: tuple[str, ...]) -> FieldError:
    names = ", ".join(errors.quote(name) for name in supported)
    return FieldError(field, "NotSupported", value, f"supported values: {names}")


def _refused(kind: str, problem: FieldError) -> errors.StatusError:
    return errors.invalid("meta.k8s.io", kind, "", [problem])


def _success(resource: GroupResource, deleted: JsonObject) -> JsonObject:
    metadata = deleted["metadata"]
    details = {"name": metadata["name"], "group": resource.group, "kind": resource.resource, "uid": metadata["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
