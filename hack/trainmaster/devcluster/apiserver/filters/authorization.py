"""The authorization filter: whether the user of a request may do what it asks for.

Guarantees:
- the user of a request is authorized before anything but the filters looks at it;
- an apply that would create its object needs the right to create, besides the right to patch.

Recording: which requests there were, for whoever wants to know which rights a client needs.

Guarantees:
- each request is one line in a file of the process, whether it was allowed or not, with the right that it demands in
  the words of rules, and the program that sent it; one that demands several rights has a line for each;
- what was written once is not written again; without the variable nothing is recorded.

`TRAINMASTER_RECORD_REQUESTS` names a directory. The test suite compares what is in it with the roles of the manager.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authorizer import MASTERS, Attributes, Authorizer, require
from trainmaster.devcluster.apiserver.filters.authentication import ALWAYS_ALLOW_PATHS, USER
from trainmaster.devcluster.apiserver.http.query import read_boolean
from trainmaster.devcluster.apiserver.http.request_info import request_info_of
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.storage import ObjectKey

_VERBS = {"HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BY_NAME = "metadata.name="

VARIABLE: Final = "TRAINMASTER_RECORD_REQUESTS"

_TEST: Final = "PYTEST_CURRENT_TEST"
"""Where pytest says which test runs, in this process or in the one that started it."""

_written: set[tuple[str, ...]] = set()


def with_authorization(authorizer: Authorizer, api: Api) -> Middleware:
    """Return the filter that refuses with 403 what the user may not do."""

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        user = request.get(USER)
        if user is not None and request.path not in ALWAYS_ALLOW_PATHS:
            program = request.headers.get("User-Agent", "")
            for demanded in _demanded(api, request):
                record(program, demanded)
                require(authorizer, user, demanded)
        return await handler(request)

    return authorize


def _demanded(api: Api, request: web.Request) -> Iterator[Attributes]:
    """Everything that one needs a right to, to make a request."""
    attributes = authorizer_attributes(request)
    yield attributes
    if _creates_by_applying(api, request, attributes):
        yield replace(attributes, verb="create")


def require_administrator(request: web.Request, what: str) -> None:
    """Refuse a request of anybody else; `what` completes "only administrators may"."""
    user = request.get(USER)
    if user is None or MASTERS not in user.groups:
        raise errors.forbidden(f"only administrators may {what}")


def authorizer_attributes(request: web.Request) -> Attributes:
    """Return what a request wants to do, in the words of rules."""
    info = request_info_of(request)
    if info is None:
        return Attributes(verb=_VERBS.get(request.method, request.method.lower()), path=request.path)
    namespace, name = info.namespace or "", info.name or ""
    if (info.group, info.resource) == ("", "namespaces"):
        namespace = name  # what concerns a namespace itself may be allowed by its own roles
    verb = _VERBS.get(request.method, "")  # OPTIONS of a resource has none, so that only rules for all verbs allow it
    if request.method in {"GET", "HEAD"}:
        watching = request.method == "GET" and not name and read_boolean(request.query, "watch")
        verb = "watch" if watching else ("get" if name else "list")
        selected = request.query.get("fieldSelector", "")
        if not name and selected.startswith(_BY_NAME) and "," not in selected:
            name = selected.removeprefix(_BY_NAME)
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Attributes(
        verb=verb,
        group=info.group,
        version=info.version,
        resource=info.resource,
        subresource=info.subresource or "",
        namespace=namespace,
        name=name,
    )


def _creates_by_applying(api: Api, request: web.Request, attributes: Attributes) -> bool:
    if attributes.verb != "patch" or attributes.subresource or request.content_type != PatchType.APPLY:
        return False
    kind = api.registry.find(attributes.group, attributes.version, attributes.resource)
    if kind is None:
        return False
    namespace = attributes.namespace if kind.namespaced else ""
    return api.store.get(ObjectKey(kind.stored_as, namespace, attributes.name)) is None


def record(user_agent: str, demanded: Attributes) -> None:
    """Write down which right a request of a program demands."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    line = {
        "program": user_agent.partition(" ")[0],
        "verb": demanded.verb,
        "group": demanded.group,
        "resource": demanded.path or demanded.full_resource,
        "scope": "namespace" if demanded.namespace else "cluster",
        "name": demanded.name,
    }
    key = (directory, *line.values())
    if key in _written:
        return
    _written.add(key)
    with (Path(directory) / f"{os.getpid()}.requests").open("ab") as file:
        file.write(orjson.dumps({**line, "test": os.environ.get(_TEST, "")}, option=orjson.OPT_APPEND_NEWLINE))
