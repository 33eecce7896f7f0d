"""`pods/<name>/log`: which container is meant, and its output as a stream of text.

Unlike a real server's, the log of a deleted pod is read on by its name where the source keeps it. Two parameters are
this server's own: `uid`, of the pod that is meant, and `run`, how often its container had been restarted before.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.http.query import Query, read_boolean
from trainmaster.devcluster.apiserver.http.responsewriters import start_stream
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject

_NUMBER = re.compile(r"-?[0-9]{1,18}")


class LogSource(Protocol):
    """Reads what a container has printed; the kubelet is one."""

    def find_deleted(self, namespace: str, name: str, uid: str) -> JsonObject | None:
        """Find a deleted pod whose logs are kept: the newest one of a name, or the one with a uid."""
        ...

    async def read(
        self,
        *,
        pod: JsonObject,
        container: str,
        follow: bool,
        previous: bool,
        run: int | None,
        tail_lines: int | None,
        since_seconds: int | None,
        since_time: datetime | None,
        timestamps: bool,
        limit_bytes: int | None,
    ) -> AsyncIterator[bytes]:
        """Open the log of a container and return its content piece by piece.

        A coroutine that returns an iterator, not a generator: whatever speaks against reading the log (the container
        has not started, there is no previous one) is raised as `StatusError` here, before the client has been promised
        a stream. With `follow` the iterator ends when the container does. The reader calls `aclose` if there is one.
        """
        ...


async def serve_log(
    request: web.Request, api: Api, source: LogSource | None, *, namespace: str | None, name: str
) -> web.StreamResponse:
    """Handle a GET of the log of a container."""
    options = _options(request.query)
    if problems := list(_contradictions(options)):
        raise errors.invalid("", "PodLogOptions", name, problems)
    pod = _find_pod(api, source, namespace or "", name, uid=request.query.get("uid", ""))
    container = choose_container(pod, request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)  # nobody runs it, so there is nothing to read
    if source is None:
        raise errors.not_implemented("logs without a kubelet")
    chunks = await source.read(pod=pod, container=container, **options)
    try:
        response = await start_stream(request, content_type="text/plain")
        async for chunk in chunks:
            await response.write(chunk)
    finally:
        close: Any = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    return response


def _find_pod(api: Api, source: LogSource | None, namespace: str, name: str, *, uid: str) -> JsonObject:
    record = api.store.get(ObjectKey(PODS, namespace, name))
    if record is not None and uid in {"", record.metadata["uid"]}:
        return record.object
    deleted = source.find_deleted(namespace, name, uid) if source is not None else None
    if deleted is None:
        raise errors.not_found(PODS, name)
    return deleted


def choose_container(pod: JsonObject, wanted: str) -> str:
    """Return the container that a request means; 400 if that is none of the pod's or not clear."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    containers = [each["name"] for each in spec.get("containers") or ()]
    prepared = [each["name"] for each in spec.get("initContainers") or ()]
    if wanted:
        if wanted not in [*containers, *prepared]:
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(containers) == 1:
        return str(containers[0])
    choices = " ".join([*prepared, *containers])
    raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")


def _options(query: Query) -> dict[str, Any]:
    """Read the arguments for a log source."""
    return {
        "follow": read_boolean(query, "follow"),
        "previous": read_boolean(query, "previous"),
        "run": _number(query, "run"),
        "tail_lines": _number(query, "tailLines"),
        "since_seconds": _number(query, "sinceSeconds"),
        "since_time": _since_time(query.get("sinceTime", "")),
        "timestamps": read_boolean(query, "timestamps"),
        "limit_bytes": _number(query, "limitBytes"),
    }


def _number(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise errors.bad_request(f'query parameter {name}: "{text}" is not a whole number of at most 18 digits')
    return int(text)


def _contradictions(options: Mapping[str, Any]) -> Iterator[FieldError]:
    for field, name, least in (
        ("tailLines", "tail_lines", 0),
        ("sinceSeconds", "since_seconds", 1),
        ("limitBytes", "limit_bytes", 1),
    ):
        if options[name] is not None and options[name] < least:
            limit = "greater than 0" if least else "greater than or equal to 0"
            yield FieldError(field, "Invalid", options[name], f"must be {limit}")
    if options["since_seconds"] is not None and options["since_time"] is not None:
        yield FieldError("", "Forbidden", detail="at most one of `sinceTime` or `sinceSeconds` may be specified")


def _since_time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise errors.bad_request(f'query parameter sinceTime: "{text}" is not an RFC 3339 time') from error
    if moment.tzinfo is None:
        raise errors.bad_request(f'query parameter sinceTime: "{text}" lacks a time zone; write Z or an offset')
    return moment
