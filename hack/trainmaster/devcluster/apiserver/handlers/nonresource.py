"""The paths that are no resources: version, health, discovery, OpenAPI documents, and OpenID Connect discovery.

The last tells others how to verify tokens of service accounts.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable

import orjson
from aiohttp import web

from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ALGORITHM, ISSUER, ServiceAccountTokens
from trainmaster.devcluster.apiserver.handlers.discovery import Discovery
from trainmaster.devcluster.apiserver.handlers.openapi import OpenApi
from trainmaster.devcluster.apiserver.http.negotiation import accepts_aggregated_discovery
from trainmaster.devcluster.apiserver.http.responsewriters import json_response, page_not_found
from trainmaster.devcluster.apiserver.schema import RELEASE
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__

_CHECKS = ("ping", "store")
_JWKS_PATH = "/openid/v1/jwks"
_DISCOVERY_TYPE = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_OPENAPI_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_OPENAPI_V2_EMPTY = b"\x0a\x032.0"
"""A Document of gnostic's OpenAPIv2.proto: its field 1, `swagger`, is the text "2.0"."""


class NonResourceHandler:
    """Handles the requests about the server; `ready` says whether it takes requests, and `check_store` what keeps it
    from storing changes.
    """

    def __init__(
        self,
        discovery: Discovery,
        openapi: OpenApi,
        tokens: ServiceAccountTokens,
        *,
        ready: Callable[[], bool],
        check_store: Callable[[], OSError | None],
    ) -> None:
        self._discovery = discovery
        self._openapi = openapi
        self._tokens = tokens
        self._ready = ready
        self._check_store = check_store

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, all for GET. Generated clients end the paths of discovery with a slash."""
        return [
            web.get("/version{slash:/?}", self.version),
            *(web.get(f"/{check}", self.health) for check in ("healthz", "livez", "readyz")),
            web.get("/api{slash:/?}", self.roots),
            web.get("/apis{slash:/?}", self.roots),
            web.get("/api/{version}{slash:/?}", self.resources),
            web.get("/apis/{group}{slash:/?}", self.group),
            web.get("/apis/{group}/{version}{slash:/?}", self.resources),
            web.get("/openapi/v2", self.openapi_v2),
            web.get("/openapi/v3", self.openapi_index),
            web.get("/openapi/v3/{path:.+}", self.openapi_document),
            web.get("/.well-known/openid-configuration", self.openid_configuration),
            web.get(_JWKS_PATH, self.jwks),
        ]

    async def version(self, _request: web.Request) -> web.Response:
        """Handle /version."""
        major, minor, _ = RELEASE.removeprefix("v").split(".")
        document = {
            "major": major,
            "minor": minor,
            "gitVersion": f"{RELEASE}+trainmaster-{__version__}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
        return json_response(document)

    async def health(self, request: web.Request) -> web.Response:
        """Handle /healthz, /livez and /readyz, with `?verbose` check by check."""
        name = request.path.strip("/")
        # Starting the server again, which is what a failing livez asks for, would help neither.
        failures = self._failures() if name == "readyz" else {}
        if not failures and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [f"[+]{check} ok" for check in _CHECKS if check not in failures]
        lines += [f"[-]{check} failed: {reason}" for check, reason in failures.items()]
        lines.append(f"{name} check {'failed' if failures else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=500 if failures else 200)

    def _failures(self) -> dict[str, str]:
        failures = {}
        # Without the path: everybody may ask.
        if (problem := self._check_store()) is not None:
            failures["store"] = f"changes cannot be stored: {problem.strerror or problem}"
        if not self._ready():
            failures["shutdown"] = "the server is stopping"
        return failures

    async def roots(self, request: web.Request) -> web.Response:
        """Handle /api and /apis, in the aggregated form for clients that know it."""
        core = request.path.rstrip("/") == "/api"
        version = accepts_aggregated_discovery(request.headers.get("Accept", ""))
        if version is not None:
            document = self._discovery.aggregated(core=core, version=version)
            return _cacheable(request, document, content_type=_DISCOVERY_TYPE.format(version=version))
        return _cacheable(
            request, self._discovery.core_versions(address=request.host) if core else self._discovery.group_list()
        )

    async def group(self, request: web.Request) -> web.Response:
        """Handle /apis/<group>."""
        return _cacheable(request, self._discovery.group(request.match_info["group"]))

    async def resources(self, request: web.Request) -> web.Response:
        """Handle /api/<version> and /apis/<group>/<version>."""
        group, version = request.match_info.get("group", ""), request.match_info["version"]
        return _cacheable(request, self._discovery.resource_list(group, version))

    async def openapi_v2(self, request: web.Request) -> web.Response:
        """Handle /openapi/v2: a document without schemas, in JSON or in protobuf.

        kubectl asks for it when a manifest has a kind that no document of version 3 has, and takes it that such a kind
        needs no validation. Without any document it tells people to switch validation off.
        """
        if _OPENAPI_V2_PROTOBUF in request.headers.get("Accept", ""):
            # What clients ask for is no media type, strictly; what a real server answers with is.
            return web.Response(body=_OPENAPI_V2_EMPTY, content_type=_OPENAPI_V2_PROTOBUF.replace("@", "."))
        info = {"title": "Trainmaster embedded cluster", "version": __version__}
        return json_response({"swagger": "2.0", "info": info, "paths": {}})

    async def openapi_index(self, _request: web.Request) -> web.Response:
        """Handle /openapi/v3."""
        return json_response(self._openapi.index())

    async def openapi_document(self, request: web.Request) -> web.Response:
        """Handle /openapi/v3/<group version>."""
        path = request.match_info["path"]
        document = self._openapi.document(path)
        if document is None:
            return page_not_found()
        tag = self._openapi.hash(path)
        wanted = request.query.get("hash", "")
        if wanted not in ("", tag):  # the client knows the address of an older one
            return web.Response(status=301, headers={"Location": self._openapi.address(path)})
        response = web.Response(status=304) if _matches(request, tag) else json_response(document)
        response.headers["ETag"] = f'"{tag}"'
        if wanted:
            response.headers["Cache-Control"] = "public, immutable"
        return response

    async def openid_configuration(self, request: web.Request) -> web.Response:
        """Handle /.well-known/openid-configuration."""
        document = {
            "issuer": ISSUER,
            "jwks_uri": f"{request.scheme}://{request.host}{_JWKS_PATH}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }
        return json_response(document)

    async def jwks(self, _request: web.Request) -> web.Response:
        """Handle /openid/v1/jwks."""
        return json_response(self._tokens.jwks(), content_type="application/jwk-set+json")


def _matches(request: web.Request, tag: str) -> bool:
    """Return whether the client has the document of a tag."""
    return tag in request.headers.get("If-None-Match", "")


def _cacheable(
    request: web.Request, document: JsonObject | None, *, content_type: str = "application/json"
) -> web.Response:
    """Return a document with its ETag, or 304 if the client has that document."""
    if document is None:
        return page_not_found()
    encoded = orjson.dumps(document)
    # The forms of one document share a path, so the tag has to tell them apart.
    etag = hashlib.sha256(content_type.encode() + encoded).hexdigest().upper()
    response = (
        web.Response(status=304) if _matches(request, etag) else json_response(encoded, content_type=content_type)
    )
    response.headers["ETag"] = f'"{etag}"'
    response.headers["Vary"] = "Accept"
    return response
