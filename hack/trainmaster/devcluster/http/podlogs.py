"""`pods/<name>/log`: which container is meant, and its output as a stream of text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from aiohttp import web

from trainmaster.devcluster import errors
from trainmaster.devcluster.api import Api
from trainmaster.devcluster.api.logs import LogSource
from trainmaster.devcluster.http.answering import start_stream
from trainmaster.devcluster.http.parameters import read_boolean, read_integer
from trainmaster.devcluster.resources import PODS
from trainmaster.runtime.jsontree import JsonObject


async def serve_log(
    request: web.Request, api: Api, source: LogSource | None, *, namespace: str | None, name: str
) -> web.StreamResponse:
    """Answer a request for the log of a container."""
    if source is None:
        raise errors.not_implemented("logs without a kubelet")
    pod = api.get(PODS, namespace, name)
    query = request.query
    chunks = await source.read(
        namespace=pod["metadata"]["namespace"],
        pod=pod,
        container=choose_container(pod, query.get("container", "")),
        follow=read_boolean(query, "follow"),
        previous=read_boolean(query, "previous"),
        tail_lines=read_integer(query, "tailLines"),
        since_seconds=read_integer(query, "sinceSeconds"),
        since_time=_since_time(query.get("sinceTime", "")),
        timestamps=read_boolean(query, "timestamps"),
        limit_bytes=read_integer(query, "limitBytes"),
    )
    try:
        response = await start_stream(request, content_type="text/plain")
        async for chunk in chunks:
            await response.write(chunk)
    finally:
        close: Any = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    return response


def choose_container(pod: JsonObject, asked: str) -> str:
    """Return the container that a request means; 400 if that is none of the pod's or not clear."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    containers = [each["name"] for each in spec.get("containers") or ()]
    prepared = [each["name"] for each in spec.get("initContainers") or ()]
    if asked:
        if asked not in [*containers, *prepared]:
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(containers) == 1 and not prepared:
        return str(containers[0])
    choices = f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
    if prepared:
        choices += f" or one of the init containers: [{' '.join(prepared)}]"
    raise errors.bad_request(choices)


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
