"""Requests of a client about one object, streams, and how connections break."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import web
from support.series import value_of

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS

OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}


async def reset(request: web.Request) -> web.StreamResponse:
    """Break the connection in place of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


WRITES: dict[str, Callable[[KubeClient], Awaitable[object]]] = {
    "POST": lambda client: client.create(CONFIGMAPS, OBJECT),
    "PUT": lambda client: client.update(CONFIGMAPS, OBJECT),
    "PATCH": lambda client: client.patch(CONFIGMAPS, "ns", "a", {"data": {}}),
    "an apply that may create": lambda client: client.apply(CONFIGMAPS, OBJECT, field_manager="trainer"),
    "DELETE": lambda client: client.delete(CONFIGMAPS, "ns", "a"),
}


def open_connections(pool: str) -> float | None:
    """Return how many connections of a pool are open."""
    return value_of("trainmaster_client_connections", {"pool": pool})


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, unless it is closed already."""
    # Python 3.11 fails on one that is closed, if its close had to wait for unsent bytes; no attribute tells that.
    with contextlib.suppress(AttributeError):
        writer.transport.abort()
