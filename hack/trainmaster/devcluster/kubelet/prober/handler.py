"""What probes and hooks do: run a program in the container, ask it by HTTP, connect to it, or sleep.

- Requests go to the pod's own address, where its names lead. A program whose port could be rewritten listens on the
  local port that stands for it; one that does not listen there is tried on the port as it is written.
- `grpc` is refused before the pod starts (`check_actions`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

from trainmaster.devcluster.kubelet.problems import ImpossibleError
from trainmaster.devcluster.kubelet.supervisor_client import Executed
from trainmaster.runtime.jsontree import JsonObject

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

_USER_AGENT = "kube-probe/trainmaster"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an action succeeded, and what there is to say about it."""

    ok: bool
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The container that actions are about."""

    container: JsonObject
    address: str
    ports: Mapping[int, int]
    """Local ports by container port."""

    execute: Callable[[list[str]], Awaitable[Executed]]


def check_actions(container: JsonObject) -> None:
    """Refuse a container with probes that the embedded cluster cannot do."""
    for kind in PROBES:
        if (container.get(kind) or {}).get("grpc") is not None:
            raise ImpossibleError(
                "UnsupportedProbe",
                f"container {container['name']!r} has a {kind} by grpc, which the embedded cluster does not do; "
                "use exec, httpGet or tcpSocket",
            )


async def act(action: JsonObject, target: Target, *, timeout: float | None) -> Outcome:  # noqa: ASYNC109 - a probe's
    """Perform the action of a probe or hook, within its time if it has one."""
    try:
        async with asyncio.timeout(timeout):
            return await _act(action, target)
    except TimeoutError:
        return Outcome(False, f"timed out after {timeout:g}s")


async def _act(action: JsonObject, target: Target) -> Outcome:
    if (program := action.get("exec")) is not None:
        done = await target.execute(list(program.get("command") or ()))
        return Outcome(done.code == 0, done.output or f"exit code {done.code}")
    if (nap := action.get("sleep")) is not None:
        await asyncio.sleep(nap["seconds"])
        return Outcome(True)
    wanted: JsonObject | None = action.get("httpGet") or action.get("tcpSocket")
    if wanted is None:
        return Outcome(True)  # nothing is asked for
    attempt = _ask if action.get("httpGet") else _connect
    try:
        ports = _candidates(wanted["port"], target)
    except LookupError as error:
        return Outcome(False, str(error))
    problem: OSError | None = None
    for port in ports:
        try:
            return await attempt(wanted, wanted.get("host") or target.address, port)
        except OSError as error:
            problem = problem or error
    return Outcome(False, f"dial tcp {target.address}:{ports[0]}: {(problem and problem.strerror) or problem}")


async def _connect(_wanted: JsonObject, host: str, port: int) -> Outcome:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Outcome(True)


async def _ask(wanted: JsonObject, host: str, port: int) -> Outcome:
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
            return Outcome(ok, f"HTTP probe {'succeeded' if ok else 'failed'} with statuscode: {answer.status}")
    except aiohttp.ClientConnectorError as error:
        raise error.os_error from error
    except (aiohttp.ClientError, ValueError) as error:
        return Outcome(False, f'Get "{url}": {error}')


def _candidates(port: int | str, target: Target) -> list[int]:
    """Give the ports to try for a number or the name of a container port."""
    if isinstance(port, str) and not port.isdecimal():
        named = {entry.get("name"): entry["containerPort"] for entry in target.container.get("ports") or ()}
        if port not in named:
            raise LookupError(f"container {target.container['name']!r} has no port named {port!r}")
        port = named[port]
    number = int(port)
    return list(dict.fromkeys((target.ports.get(number, number), number)))
