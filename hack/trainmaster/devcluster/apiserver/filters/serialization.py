"""Serialization: the last form of a response, which is YAML or indented JSON where a client asks for it.

Guarantees:
- objects, lists, Status objects and discovery documents come as YAML for clients that prefer it, in the notation that
  any reader of YAML takes for the same JSON;
- people who look with a browser or curl, and whoever asks by `pretty`, get JSON with line breaks;
- what is sent in pieces, watches and large lists, stays as it is.
"""

from __future__ import annotations

import re

import orjson
import yaml
from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.devcluster.apiserver.http.negotiation import JSON, YAML, prefers_yaml

_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
"""The beginnings of the user agents that the API server takes for people."""


@web.middleware
async def with_serialization(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Serialize what the handler gives as JSON."""
    response = await handler(request)
    if not isinstance(response, web.Response) or response.headers.get("Content-Type") != JSON:
        return response
    if not isinstance(body := response.body, bytes) or not body:
        return response
    accept = request.headers.get("Accept", "")
    if "yaml" in accept and request.path.startswith("/api") and prefers_yaml(accept):
        response.headers["Content-Type"] = YAML
        response.body = _yaml(body)
    elif _is_pretty(request):
        response.body = orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return response


def _is_pretty(request: web.Request) -> bool:
    pretty = request.query.get("pretty") if "pretty" in request.query_string else None
    if pretty is not None:
        return pretty not in {"0", "f", "F", "FALSE", "false", "False"}
    return request.headers.get("User-Agent", "").startswith(_PEOPLE)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The safe dumper, without aliases and with quotes around whatever Kubernetes would take for another scalar."""

    def ignore_aliases(self, _data: object) -> bool:
        """Write out everything: equal parts of an object are not the same part."""
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _yaml(body: bytes) -> bytes:
    text: bytes = yaml.dump(orjson.loads(body), Dumper=_Dumper, allow_unicode=True, encoding="utf-8")
    return text
