"""From a method, a path and a query to what the request asks for.

Guarantees:
- pure: no registry and no state, so the whole table of paths can be tested without a server;
- every segment is decoded by itself: an encoded slash never changes the meaning of a path;
- a path outside of /api/v1 and /apis/<group>/<version> gives None and is not ours to answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import unquote

Verb: TypeAlias = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]

# In /namespaces/<name>/<word> these words are subresources of the namespace; every other word is a resource inside it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The resource that a path names."""

    group: str
    version: str
    plural: str
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None


def parse_target(raw_path: str) -> RequestTarget | None:
    """Read the target of an API path as it came over the wire (still percent-encoded)."""
    segments = [unquote(segment) for segment in raw_path.strip("/").split("/")]
    match segments:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if not rest or "" in segments[1:]:
        return None
    namespace: str | None = None
    inside = len(rest) > 2 and rest[0] == "namespaces" and not (group == "" and rest[2] in _NAMESPACE_SUBRESOURCES)
    if inside:
        namespace, rest = rest[1], rest[2:]
    plural, *tail = rest
    return RequestTarget(
        group=group,
        version=version,
        plural=plural,
        namespace=namespace,
        name=tail[0] if tail else None,
        # Whatever follows a proxy subresource is the path of the proxied request.
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
