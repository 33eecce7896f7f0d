"""The handlers of probes and lifecycle hooks: `exec`, `httpGet`, `tcpSocket` and `sleep`.

- Requests go to the pod's own address, where its names lead. A program whose port could be rewritten listens on the
  local port that stands for it; one that does not listen there is tried on the port as it is written.
- `grpc` is refused before the pod starts (`validate_probes`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.supervisor_client import ExecResult
from trainmaster.runtime.jsontree import JsonObject

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

_USER_AGENT = "kube-probe/trainmaster"


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """Whether a handler succeeded, and its output or error."""

    ok: bool
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The container that a handler is for."""

    container: JsonObject
    address: str
    ports: Mapping[int, int]
    """Local ports by container port."""

    execute: Callable[[list[str]], Awaitable[ExecResult]]


def validate_probes(container: JsonObject) -> None:
    """Refuse a container with probes that the embedded cluster cannot do."""
    for kind in PROBES:
        if (container.get(kind) or {}).get("grpc") is not None:
            raise PodRejectedError(
                "UnsupportedProbe",
                f"container {container['name']!r} has a {kind} by grpc, which the embedded cluster does not do; "
                "use exec, httpGet or tcpSocket",
            )


async def run_handler(handler: JsonObject, target: Target, *, timeout: float | None) -> HandlerResult:  # noqa: ASYNC109 - a probe's
    """Run the handler of a probe or hook, within its time if it has one."""
    try:
        async with asyncio.timeout(timeout):
            return await _run(handler, target)
    except TimeoutError:
        return HandlerResult(False, f"timed out after {timeout:g}s")


async def _run(handler: JsonObject, target: Target) -> HandlerResult:
    if (program := handler.get("exec")) is not None:
        done = await target.execute(list(program.get("command") or ()))
        return HandlerResult(done.code == 0, done.output or f"exit code {done.code}")
    if (nap := handler.get("sleep")) is not None:
        await asyncio.sleep(nap["seconds"])
        return HandlerResult(True)
    wanted: JsonObject | None = handler.get("httpGet") or handler.get("tcpSocket")
    if wanted is None:
        return HandlerResult(True)  # it has no handler
    request = _http_get if handler.get("httpGet") else _tcp_socket
    try:
        ports = _resolve_ports(wanted["port"], target)
    except LookupError as error:
        return HandlerResult(False, str(error))
    problem: OSError | None = None
    for port in ports:
        try:
            return await request(wanted, wanted.get("host") or target.address, port)
        except OSError as error:
            problem = problem or error
    return HandlerResult(False, f"dial tcp {target.address}:{ports[0]}: {(problem and problem.strerror) or problem}")


async def _tcp_socket(_wanted: JsonObject, host: str, port: int) -> HandlerResult:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return HandlerResult(True)


async def _http_get(wanted: JsonObject, host: str, port: int) -> HandlerResult:
    path = "/" + (wanted.get("path") or "").removeprefix("/")
    url = f"{(wanted.get('scheme') or 'HTTP').lower()}://{host}:{port}{path}"
    headers = {"User-Agent": _USER_AGENT, "Accept": "*/*"}
    headers |= {entry["name"]: entry.get("value", "") for entry in wanted.get("httpHeaders") or ()}
    try:
        # Certificates are not checked, as in Kubernetes: nobody issues one for a pod's address.
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False, force_close=True)) as session,
            session.get(url, headers=headers) as answer,
        ):
            ok = HTTPStatus.OK <= answer.status < HTTPStatus.BAD_REQUEST
            return HandlerResult(ok, f"HTTP probe {'succeeded' if ok else 'failed'} with statuscode: {answer.status}")
    except aiohttp.ClientConnectorError as error:
        raise error.os_error from error
    except (aiohttp.ClientError, ValueError) as error:
        return HandlerResult(False, f'Get "{url}": {error}')


def _resolve_ports(port: int | str, target: Target) -> list[int]:
    """Give the ports to try for a number or the name of a container port."""
    if isinstance(port, str) and not port.isdecimal():
        named = {entry.get("name"): entry["containerPort"] for entry in target.container.get("ports") or ()}
        if port not in named:
            raise LookupError(f"container {target.container['name']!r} has no port named {port!r}")
        port = named[port]
    number = int(port)
    return list(dict.fromkeys((target.ports.get(number, number), number)))
