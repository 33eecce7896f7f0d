"""Response writers: objects, Status objects and streams as responses, and the negotiation of their form.

Guarantees:
- every refusal is a Status object with the code, reason and details that clients match on;
- warnings travel in `Warning` headers, in the form that kubectl prints;
- the first media type of `Accept` that the server can produce wins; like the API server it ignores weights;
- protobuf is passed over in favour of the JSON that clients list behind it;
- an `Accept` that admits nothing of ours is 406, never a response in a format that the client does not accept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import orjson
from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.runtime.jsontree import JsonObject

ConvertTo: TypeAlias = Literal["Object", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]

JSON = "application/json"
_ANY = frozenset({JSON, "application/*", "*/*"})


@dataclass(frozen=True, slots=True)
class MediaTypeOptions:
    """How an object or a list is sent: as it is, as a table, or only its metadata."""

    convert: ConvertTo = "Object"
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion of a converted response."""
        return f"meta.k8s.io/{self.version}"

    @property
    def is_table(self) -> bool:
        """Whether the response is a Table."""
        return self.convert == "Table"

    @property
    def is_metadata(self) -> bool:
        """Whether the response holds nothing but metadata."""
        return self.convert.startswith("PartialObjectMetadata")


OBJECT = MediaTypeOptions()


def negotiate_media_type(accept: str) -> MediaTypeOptions:
    """Choose the form of a response that holds objects."""
    for media_type, parameters in _media_types(accept):
        if media_type not in _ANY:
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return OBJECT
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in {"v1", "v1beta1"}:
            continue
        if wanted in {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}:
            return MediaTypeOptions(wanted, parameters["v"])  # type: ignore[arg-type]  # checked by the line above
    raise errors.not_acceptable(f"only the following media types are accepted: {JSON}")


def accepts_aggregated_discovery(accept: str) -> str | None:
    """Return the version of the aggregated discovery that the client prefers over the legacy documents."""
    for media_type, parameters in _media_types(accept):
        if media_type not in _ANY:
            continue
        if "as" not in parameters:
            return None
        if parameters.get("g") == "apidiscovery.k8s.io" and parameters["as"] == "APIGroupDiscoveryList":
            version = parameters.get("v")
            if version in {"v2", "v2beta1"}:
                return version
    return None


def _media_types(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    for clause in (accept or "*/*").split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        pairs = (part.partition("=") for part in rest)
        yield media_type.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs}


# Marks a request whose response is on its way, so that no second one is sent after it.
_STARTED = web.RequestKey("stream_started", bool)


def json_response(
    body: bytes | JsonObject, *, status: int = 200, warnings: Iterable[str] = (), content_type: str = "application/json"
) -> web.Response:
    """Build a response; a body in bytes is JSON already."""
    encoded = body if isinstance(body, bytes) else orjson.dumps(body)
    response = web.Response(body=encoded, status=status)
    # Set as a header: aiohttp's own argument would add a charset and refuse the parameters of discovery.
    response.headers["Content-Type"] = content_type
    for warning in dict.fromkeys(warnings):
        response.headers.add("Warning", f"299 - {_quoted(warning)}")
    return response


def status_response(error: StatusError) -> web.Response:
    """Build the response that tells a client why it was refused."""
    response = json_response(error.status(), status=error.code, warnings=error.warnings)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="trainmaster"'
    return response


def page_not_found() -> web.Response:
    """Build the response to a path that the server knows nothing about, in the plain text of a real API server."""
    return web.Response(status=404, text="404 page not found\n")


async def start_stream(request: web.Request, *, content_type: str) -> web.StreamResponse:
    """Send the headers of a response that arrives in pieces; errors from here on can only cut it off."""
    response = web.StreamResponse()
    response.headers["Content-Type"] = content_type
    response.headers["Cache-Control"] = "no-cache, private"
    request[_STARTED] = True
    await response.prepare(request)
    return response


def response_started(request: web.Request) -> bool:
    """Whether the headers of a response in pieces have left."""
    return _STARTED in request


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(character if character.isprintable() else " " for character in escaped) + '"'
