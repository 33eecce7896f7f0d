"""The options of writes: CreateOptions, UpdateOptions, PatchOptions and DeleteOptions of a request.

Guarantees:
- every option is checked; a wrong value is a 4xx Status that names it;
- who wrote a field is known: the field manager is the one that the client names, or the program in its User-Agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast, get_args

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, StatusError
from trainmaster.devcluster.apiserver.filters.authentication import USER
from trainmaster.devcluster.apiserver.http.bodies import Duplicates, content_type_of, read_object
from trainmaster.devcluster.apiserver.http.query import read_boolean, read_dry_run, read_integer
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import (
    CUSTOM_PATCH_TYPES,
    DeleteOptions,
    FieldValidation,
    PatchType,
    Propagation,
    WriteOptions,
)
from trainmaster.runtime.jsontree import JsonObject

_MAX_MANAGER = 128


@contextmanager
def warning(options: WriteOptions) -> Iterator[None]:
    """Tell a client whose write is refused also what it would have been told of it: a misspelt field may be why."""
    try:
        yield
    except StatusError as error:
        error.warnings = tuple(options.warnings)
        raise


def read_write_options(request: web.Request, kind: str) -> WriteOptions:
    """Read the options of a creation, update or patch; `kind` is their kind, for errors."""
    query = request.query
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > _MAX_MANAGER:
        detail = f"may not be more than {_MAX_MANAGER} bytes"
        raise invalid_options(kind, FieldError("fieldManager", "TooLong", manager, detail))
    if not manager.isprintable():
        raise invalid_options(kind, FieldError("fieldManager", "Invalid", manager, "must be printable characters"))
    return WriteOptions(
        field_manager=manager or _user_agent_program(request),
        force=read_boolean(query, "force"),
        dry_run=read_dry_run(query.getall("dryRun", []), kind),
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
            raise invalid_options(kind, errors.unsupported("fieldValidation", text, get_args(FieldValidation)))


def read_patch_type(request: web.Request, kind: Kind) -> PatchType:
    """Return the type of a patch; 415 for any other content type."""
    try:
        return PatchType(content_type_of(request))
    except ValueError as error:
        if kind.custom:
            raise errors.unsupported_media_type(list(CUSTOM_PATCH_TYPES)) from error
        # Built-in kinds are routed by content type, and the router knows no better text.
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type") from error


async def read_delete_options(request: web.Request) -> DeleteOptions:
    """Read the options of a deletion, from the body if there is one and else from the query, as the API server does."""
    given: JsonObject = await read_object(request) if request.can_read_body else {}
    if (kind := given.get("kind")) not in (None, "", "DeleteOptions"):
        # Of whatever version: clients send them under that of the resource.
        version = given.get("apiVersion", "")
        raise errors.bad_request(
            f'no kind "{kind}" is registered for version "{version}": the body of a deletion must be DeleteOptions'
        )
    query = request.query
    if not given:
        given = {
            "propagationPolicy": query.get("propagationPolicy"),
            "gracePeriodSeconds": read_integer(query, "gracePeriodSeconds"),
            "orphanDependents": read_boolean(query, "orphanDependents") if "orphanDependents" in query else None,
            "dryRun": query.getall("dryRun", []),
        }
    return parse_delete_options(given, user=_user(request))


def parse_delete_options(given: JsonObject, *, user: JsonObject | None) -> DeleteOptions:
    """Read DeleteOptions, which evictions carry as well."""
    preconditions = _checked(given, "preconditions", dict) or {}
    return DeleteOptions(
        propagation=_propagation(given),
        grace_seconds=_grace_seconds(given),
        uid=_checked(preconditions, "uid", str),
        resource_version=_checked(preconditions, "resourceVersion", str),
        dry_run=read_dry_run(_checked(given, "dryRun", list) or [], "DeleteOptions"),
        user=user,
    )


async def read_strictly(request: web.Request, options: WriteOptions) -> tuple[JsonObject, WriteOptions]:
    """Read the object of a write; returns the options with what a strict decoder has to say of repeated fields."""
    duplicates = None if options.field_validation == "Ignore" else Duplicates([])
    body = await read_object(request, duplicates=duplicates)
    return body, noted_duplicates(options, duplicates)


def noted_duplicates(options: WriteOptions, duplicates: Duplicates | None) -> WriteOptions:
    """Note fields that a body repeats: as warnings, or as what strict validation will refuse the object for."""
    if not duplicates:
        return options
    if options.field_validation == "Strict":
        return replace(options, strict_error=duplicates.error)
    options.warnings.extend(duplicates.texts)
    return options


def invalid_options(kind: str, problem: FieldError) -> StatusError:
    """Return the 422 for an option of a request."""
    return errors.invalid("meta.k8s.io", kind, "", [problem])


def _user(request: web.Request) -> JsonObject | None:
    user = request.get(USER)
    return None if user is None else user.info()


def _user_agent_program(request: web.Request) -> str:
    """Return the name of the client's program, by which the API server knows managers that do not name themselves."""
    program = request.headers.get("User-Agent", "").partition("/")[0].strip()[:_MAX_MANAGER]
    return program if program and program.isprintable() else "unknown"


def _propagation(given: JsonObject) -> Propagation | None:
    policy = _checked(given, "propagationPolicy", str)
    orphan = _checked(given, "orphanDependents", bool)
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", FieldError("propagationPolicy", "Invalid", policy, detail))
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    match policy:
        case None | "":
            return None
        case "Background" | "Foreground" | "Orphan":
            return cast("Propagation", policy)
        case _:
            raise invalid_options(
                "DeleteOptions", errors.unsupported("propagationPolicy", policy, get_args(Propagation))
            )


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
