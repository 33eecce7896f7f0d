"""RequestInfo: the resource that the path of a request names, and the verb of Kubernetes for its method.

Guarantees:
- it knows no registry and no state, so the whole table of paths can be tested without a server;
- every segment is decoded by itself: an encoded slash never changes the meaning of a path;
- a path outside of /api/v1 and /apis/<group>/<version> gives None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import unquote

from aiohttp import web

Verb: TypeAlias = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]

# In /namespaces/<name>/<word> these words are subresources of the namespace; every other word is a resource inside it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The resource that a path names."""

    group: str
    version: str
    resource: str
    """The plural."""

    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None


_INFO: web.RequestKey[RequestInfo | None] = web.RequestKey("request_info")


def request_info_of(request: web.Request) -> RequestInfo | None:
    """Return the resource that a request is for; None for the other paths. Its path is read once."""
    if _INFO not in request:
        request[_INFO] = parse_request_info(request.rel_url.raw_path)
    return request[_INFO]


def parse_request_info(raw_path: str) -> RequestInfo | None:
    """Read the path of a request as it came over the wire (still percent-encoded)."""
    segments = [unquote(segment) for segment in raw_path.strip("/").split("/")]
    match segments:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if not rest:
        return None
    namespace: str | None = None
    inside = len(rest) > 2 and rest[0] == "namespaces" and not (group == "" and rest[2] in _NAMESPACE_SUBRESOURCES)
    if inside:
        namespace, rest = rest[1], rest[2:]
    resource, *tail = rest
    # Whatever follows a proxy subresource is the path of the proxied request, and empty segments are its own business.
    proxied = len(tail[2:]) if tail[1:2] == ["proxy"] else 0
    if "" in segments[1 : len(segments) - proxied]:
        return None
    return RequestInfo(
        group=group,
        version=version,
        resource=resource,
        namespace=namespace,
        name=tail[0] if tail else None,
        subresource=tail[1] if len(tail) > 1 else None,
    )


def verb_of(method: str, *, named: bool, watching: bool) -> Verb | None:
    """Translate an HTTP method; None when Kubernetes knows no verb for it."""
    match method:
        case "GET":
            if watching:
                return "watch"
            return "get" if named else "list"
        case "POST" if not named:
            return "create"
        case "PUT" if named:
            return "update"
        case "PATCH" if named:
            return "patch"
        case "DELETE":
            return "delete" if named else "deletecollection"
        case _:
            return None
