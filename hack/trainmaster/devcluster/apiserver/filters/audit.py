"""The audit filter: one line of JSON in the audit log for every request, as kube-apiserver writes them.

Guarantees:
- a line is an `Event` of audit.k8s.io/v1 at level Metadata and stage ResponseComplete: who did what, and with
  which response, with neither bodies nor tokens;
- the line is in the file before the client has the end of the response, so whoever got a response finds its line;
- a request that got no response (its client went away, or a fault reset the connection) has a line, too, without
  `responseStatus`;
- without a log a request costs nothing; a log that can no longer be written is reported once and disturbs no request.

The response to a watch ends with the watch, so its line comes late.
"""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.filters.authentication import IMPERSONATOR, USER
from trainmaster.devcluster.apiserver.filters.authorization import authorizer_attributes
from trainmaster.devcluster.apiserver.http.request_info import request_info_of
from trainmaster.devcluster.apiserver.http.responsewriters import response_started
from trainmaster.runtime.jsontree import JsonObject

_log = structlog.get_logger(__name__)

_NAME = web.RequestKey("created_name", str)


class AuditLog:
    """Appends to one file; `close` it after the server has stopped.

    Raises:
        OSError: The file cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # One write of an unbuffered file is one system call and one whole line, also for readers that follow the file.
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._broken = False
        self._cut = False
        """Whether the file ends in the middle of a line."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @web.middleware
    async def with_audit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request and write its line."""
        received = datetime.now(UTC)
        code: int | None = None
        try:
            response = await handler(request)
            code = response.status
            return response
        finally:
            if code is None and response_started(request):
                code = 200  # the client closed a stream; its headers had left long before
            self._write(self._event(request, received, code))

    def _event(self, request: web.Request, received: datetime, code: int | None) -> JsonObject:
        event: JsonObject = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": str(uuid.uuid4()),
            "stage": "ResponseComplete",
            "requestURI": request.rel_url.raw_path_qs,
            "verb": _verb(request),
            **_users(request),
            "sourceIPs": [request.remote] if request.remote else [],
            "userAgent": request.headers.get("User-Agent", ""),
        }
        if reference := _reference(request):
            event["objectRef"] = reference
        if code is not None:
            event["responseStatus"] = {"metadata": {}, "code": code}
        event["requestReceivedTimestamp"] = _timestamp(received)
        event["stageTimestamp"] = _timestamp(datetime.now(UTC))
        return event

    def _write(self, event: JsonObject) -> None:
        try:
            line = orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
            if self._cut:
                line = b"\n" + line
            while line:
                written = os.write(self._descriptor, line)
                self._cut = line[written - 1 : written] != b"\n"
                line = line[written:]
            self._broken = False
        except OSError as error:
            if not self._broken:
                _log.error("the audit log has gaps: it cannot be written", path=str(self._path), error=str(error))
            self._broken = True


def log_created_name(request: web.Request, body: JsonObject) -> None:
    """Remember which name the object of a creation has: its path does not tell."""
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and isinstance(name := metadata.get("name"), str):
        request[_NAME] = name


def _verb(request: web.Request) -> str:
    try:
        return authorizer_attributes(request).verb
    except StatusError:
        return "list"  # with something for `watch` that is no boolean, which is why the request was refused


def _users(request: web.Request) -> dict[str, Any]:
    """Return who made a request and, if that is somebody else, in whose name."""
    user = request.get(USER)
    if user is None:
        return {"user": {}}
    real = request.get(IMPERSONATOR)
    if real is None:
        return {"user": user.info()}
    return {"user": real.info(), "impersonatedUser": user.info()}


def _reference(request: web.Request) -> JsonObject | None:
    info = request_info_of(request)
    if info is None:
        return None
    reference = {
        "resource": info.resource,
        "namespace": info.namespace,
        "name": info.name or request.get(_NAME),
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }
    return {key: value for key, value in reference.items() if value}


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
