"""POST, PUT, PATCH and DELETE: options and bodies in, the written object or a Status out.

Guarantees:
- the options of a write are checked before its body is read;
- who wrote a field is known: the field manager is the one that the client names, or the program in its User-Agent.
"""

from __future__ import annotations

from typing import Any, cast, get_args

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authenticator import USER
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.handlers.presentation import Presenter, without_type
from trainmaster.devcluster.apiserver.http.audit import note_name
from trainmaster.devcluster.apiserver.http.bodies import (
    content_type_of,
    decode_json,
    decode_yaml,
    read_body,
    read_object,
)
from trainmaster.devcluster.apiserver.http.query import ListOptions, read_boolean, read_dry_run, read_integer
from trainmaster.devcluster.apiserver.http.request_info import RequestTarget
from trainmaster.devcluster.apiserver.http.responses import json_response
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import (
    Api,
    DeleteOptions,
    FieldValidation,
    PatchType,
    Propagation,
    WriteOptions,
)
from trainmaster.devcluster.apiserver.registry.generic.scale import Scaler
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

_MAX_MANAGER = 128


class Writer:
    """Answers the requests that write."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._scaler = Scaler(api)

    async def create(self, request: web.Request, presenter: Presenter, target: RequestTarget) -> web.Response:
        """Answer a POST."""
        options = _write_options(request, "CreateOptions")
        body = await _read_strictly(request, options)
        note_name(request, body)
        resource = presenter.kind.resource
        created = await self._api.create(resource, body, namespace=target.namespace, options=options)
        return json_response(presenter.one(created), status=201, warnings=options.warnings)

    async def update(
        self, request: web.Request, presenter: Presenter, target: RequestTarget, *, name: str
    ) -> web.Response:
        """Answer a PUT."""
        options = _write_options(request, "UpdateOptions")
        body = await _read_strictly(request, options)
        written, created = await self._api.put(
            presenter.kind.resource,
            body,
            namespace=target.namespace,
            name=name,
            subresource=target.subresource,
            options=options,
        )
        return json_response(presenter.one(written), status=201 if created else 200, warnings=options.warnings)

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

    async def scale(self, request: web.Request, kind: Kind, target: RequestTarget, *, name: str) -> web.Response:
        """Answer a GET, PUT or PATCH of the scale subresource."""
        resource, namespace = kind.resource, target.namespace
        if request.method == "GET":
            return json_response(self._scaler.get(resource, namespace, name))
        if request.method == "PUT":
            options = _write_options(request, "UpdateOptions")
            body = await read_object(request, duplicates=None)
            scale = await self._scaler.update(resource, namespace, name, body, options=options)
        else:
            patch_type = _patch_type(request)
            options = _write_options(request, "PatchOptions")
            patch = decode_json(await read_body(request))
            scale = await self._scaler.patch(resource, namespace, name, patch, patch_type=patch_type, options=options)
        return json_response(scale, warnings=options.warnings)

    async def delete(
        self, request: web.Request, presenter: Presenter, target: RequestTarget, *, name: str
    ) -> web.Response:
        """Answer a DELETE of one object: the object while it lingers, for most kinds a Status once it is gone."""
        options = await _delete_options(request)
        kind = presenter.kind
        deleted, gone = await self._api.delete(kind.resource, target.namespace, name, options=options)
        shows_object = not gone or kind.strategy.return_deleted_object
        body = presenter.one(deleted) if shows_object else _success(kind.resource, deleted)
        return json_response(body, warnings=[*options.warnings, *_deletion_warnings(kind, options)])

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
        items = deleted if kind.custom else [without_type(each) for each in deleted]
        return json_response(
            {"kind": list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items},
            warnings=[*options.warnings, *_deletion_warnings(kind, options)],
        )


async def _read_strictly(request: web.Request, options: WriteOptions) -> JsonObject:
    """Read the object of a write and look for repeated fields."""
    duplicates: list[str] | None = None if options.field_validation == "Ignore" else []
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
        user=_user(request),
    )


def _field_validation(text: str, kind: str) -> FieldValidation:
    match text:
        case "" | "Warn":
            return "Warn"
        case "Strict" | "Ignore":
            return text
        case _:
            raise _refused(kind, _unsupported("fieldValidation", text, get_args(FieldValidation)))


def _user(request: web.Request) -> JsonObject | None:
    user = request.get(USER)
    return None if user is None else user.info()


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
        user=_user(request),
    )


def _deletion_warnings(kind: Kind, options: DeleteOptions) -> list[str]:
    if not kind.strategy.orphans_by_default or options.propagation is not None:
        return []
    warning = (
        f"child pods are preserved by default when {kind.plural} are deleted; set propagationPolicy=Background to "
        "remove them or set propagationPolicy=Orphan to suppress this warning"
    )
    return [warning]


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
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise errors.bad_request("DeleteOptions: gracePeriodSeconds must be a whole number")
    return seconds if seconds >= 0 else 1  # a negative period is the shortest one


def _checked(given: JsonObject, field: str, expected: type[Any]) -> Any:
    value = given.get(field)
    if value is not None and not isinstance(value, expected):
        raise errors.bad_request(f"DeleteOptions: {field} must be of type {expected.__name__}")
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
