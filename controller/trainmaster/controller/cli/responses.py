"""Requests with objects of files: the resources that a cluster serves for their kinds, and what a server answers, for
the authors of the objects: errors and warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import orjson

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    NOT_KUBERNETES,
    ApiError,
    MalformedResponse,
    NotFound,
    describe_body,
    from_response,
    shorten,
)
from trainmaster.controller.kube.rest.request import NO_PARAMS
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

if TYPE_CHECKING:
    from trainmaster.controller.cli.files.manifests import Manifest

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"

FIELD_MANAGER: Final = "trainmaster-cli"
"""Who writes, as far as it is somebody who types commands."""

_REQUEST: Final = re.compile(r"^[A-Z]+ \S+: ")


class Rejected(Exception):
    """What the files ask for cannot be had; one line for each reason."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__("\n".join(lines))


async def send(
    client: KubeClient,
    method: str,
    path: str,
    *,
    params: Mapping[str, str] = NO_PARAMS,
    body: JsonObject | None = None,
    content_type: str = JSON,
) -> tuple[JsonObject, Mapping[str, str]]:
    """Send one request without retries and return the object that answers it, and the headers of the answer.

    Raises:
        ApiError: The server refuses.
        MalformedResponse: The answer is no object of Kubernetes.
        TransportError: There was no answer.
    """
    status, headers, answer = await client.raw(
        method, path, params=params, body=None if body is None else orjson.dumps(body), content_type=content_type
    )
    config = client.config
    request = f"{method} {config.server}{path}"
    if status >= 300:
        raise from_response(status, headers, answer, request=request, source=config.source)
    try:
        obj = load_json(answer)
    except JsonError:
        obj = None
    if not isinstance(obj, dict) or "kind" not in obj:
        raise MalformedResponse(f"{request}: {describe_body(answer)}; {NOT_KUBERNETES}")
    return obj, headers


async def write(
    client: KubeClient,
    resource: Resource,
    obj: JsonObject,
    *,
    manager: str = FIELD_MANAGER,
    creates: bool = False,
    dry_run: bool = False,
) -> tuple[JsonObject, Mapping[str, str]]:
    """Apply an object, or create it if it is to be new, or has no name; returns what `send` does.

    Fields that the schema does not know are errors.
    """
    metadata = obj["metadata"]
    name = None if creates else metadata.get("name")
    params = {"fieldManager": manager, "fieldValidation": "Strict"}
    params |= ({"force": "true"} if name else {}) | ({"dryRun": "All"} if dry_run else {})
    return await send(
        client,
        "PATCH" if name else "POST",
        resource.path(metadata.get("namespace") if resource.namespaced else None, name),
        params=params,
        body=obj,
        content_type=APPLY if name else JSON,
    )


def error_lines(error: ApiError) -> list[str]:
    """Return the errors of the server, one for each field if it names fields."""
    # The cause without a field is the server's remark that it stopped here; it asks for nothing.
    causes = [cause for cause in error.causes if cause.get("message") and cause.get("field") != "<nil>"]
    if causes:
        return [
            f"{field}: {cause['message']}" if (field := cause.get("field")) else cause["message"] for cause in causes
        ]
    _, strict, fields = error.message.partition("strict decoding error: ")
    if strict:
        return fields.split(", ")
    # Without a reason it is no Status, but of something in between: the request says which server was meant.
    return [error.message if error.message and error.reason else str(error)]


def fault_of(text: str) -> str:
    """Return what is wrong, without the request before and the advice behind, of the text of an error."""
    return _REQUEST.sub("", text).partition(";")[0]


def unknown_kind(manifest: Manifest) -> str:
    """Say that the cluster does not know what an object is."""
    return (
        f"{manifest.place}: the cluster serves no kind {manifest.kind} in {manifest.api_version}; "
        "correct the manifest, or install the definition of that kind"
    )


def warnings_in(headers: Mapping[str, str]) -> list[str]:
    """Read the texts out of headers like `Warning: 299 - "text"`."""
    return [
        value.partition('"')[2].rpartition('"')[0] or value
        for name, value in headers.items()
        if name.lower() == "warning"
    ]


class RestMapper:
    """What a cluster serves, read once for each API version."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._versions: dict[str, list[JsonObject] | None] = {}

    async def resource(self, api_version: str, kind: str, *, fresh: bool = False) -> Resource | None:
        """Look up how the cluster serves a kind; `fresh` looks again for what was not there before."""
        if api_version not in self._versions or (fresh and self._versions[api_version] is None):
            self._versions[api_version] = await self._discover(api_version)
        group, _, number = api_version.rpartition("/")
        for entry in self._versions[api_version] or ():
            if entry["kind"] == kind and "/" not in entry["name"]:
                return Resource(group, number, kind, entry["name"], entry["namespaced"])
        return None

    async def _discover(self, api_version: str) -> list[JsonObject] | None:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            found, _ = await send(self._client, "GET", path)
        except NotFound:
            return None
        if found["kind"] != "APIResourceList":
            told = f"the answer is of kind {shorten(str(found['kind']), limit=100)}, not an APIResourceList"
            raise MalformedResponse(f"GET {self._client.config.server}{path}: {told}; {NOT_KUBERNETES}")
        resources: list[JsonObject] = found["resources"]
        return resources
