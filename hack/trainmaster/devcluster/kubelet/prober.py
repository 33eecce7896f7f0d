"""Probes and lifecycle hooks of containers: their handlers, when a result counts, and what follows from it.

The handlers of probes and lifecycle hooks: `exec`, `httpGet`, `tcpSocket` and `sleep`.

- Requests go to the pod's own address, where its names lead. A program whose port could be rewritten listens on the
  local port that stands for it; one that does not listen there is tried on the port as it is written.
- `grpc` is refused before the pod starts (`validate_probes`).

The probes of one running container: how often they run, and when their results count.

- Until the startup probe has succeeded, the others do not run.
- A result changes something when it came as often in a row as the threshold says. A startup or liveness probe that
  fails for that long ends the container and does not run again; a readiness probe makes it unready, and ready again.
- Every single failure is reported, for the Event that users look for.

The probe manager of a pod: its containers' lifecycle hooks when they start and stop, their probes while they run.

- A container counts as running when its postStart hook has succeeded; if that fails, the container is stopped.
- SIGTERM is sent when the preStop hook is done. The grace period includes the hook: its end is the end of both.
- A container that is being stopped is not probed any more: its results from then on are about its end.
- Nothing of this outlives the container attempt that it is about.

Results go to the pod's lifecycle, which decides what follows from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Literal, TypeAlias

import aiohttp

from trainmaster.devcluster.events import EventBroadcaster
from trainmaster.devcluster.kubelet.container import PodRejectedError, container_field_path
from trainmaster.devcluster.kubelet.container_config import ContainerConfig
from trainmaster.devcluster.kubelet.execution import ContainerExecution, execute
from trainmaster.devcluster.kubelet.pod_lifecycle import PodLifecycle
from trainmaster.devcluster.kubelet.supervisor_client import ExecResult, SupervisorClient
from trainmaster.runtime.jsontree import JsonObject

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

_USER_AGENT = "kube-probe/trainmaster"

ProbeType: TypeAlias = Literal["startup", "readiness", "liveness"]

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A result of a probe that its container has to know. `counts` is false for a failure below the threshold."""

    type: ProbeType
    result: HandlerResult
    counts: bool


class Threshold:
    """Turns single results into decisions."""

    def __init__(self, probe: JsonObject) -> None:
        self._needed = {True: probe.get("successThreshold") or 1, False: probe.get("failureThreshold") or 3}
        self._last: bool | None = None
        self._count = 0

    def observe(self, ok: bool) -> bool:
        """Take note of a result; say whether it has now come often enough to count."""
        self._count = self._count + 1 if ok is self._last else 1
        self._last = ok
        return bool(self._count >= self._needed[ok])


async def run_probes(
    container: JsonObject,
    *,
    run: Callable[[JsonObject], Awaitable[HandlerResult]],
    report: Callable[[ProbeResult], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run the probes of a container that has just started, until cancelled or none is left to run."""

    async def probe_until(probe_type: ProbeType, *, until: tuple[bool, ...]) -> bool:
        """Probe until one of certain results counts, and give that one."""
        probe = container.get(f"{probe_type}Probe")
        if probe is None:
            return True
        threshold = Threshold(probe)
        await sleep(probe.get("initialDelaySeconds") or 0)
        while True:
            result = await run(probe)
            counts = threshold.observe(result.ok)
            if counts or not result.ok:
                report(ProbeResult(probe_type, result, counts))
            if counts and result.ok in until:
                return result.ok
            await sleep(probe.get("periodSeconds") or 10)

    # A failure that counts ends the container: a further probe would only see its end.
    if not await probe_until("startup", until=(True, False)):
        return
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(probe_until("readiness", until=()))
        tasks.create_task(probe_until("liveness", until=(False,)))


@dataclass(frozen=True, slots=True)
class _Attempt:
    config: ContainerConfig
    pid: int
    at: datetime


class ProbeManager:
    """Runs the hooks and probes of one pod, as tasks of the group that its worker gives it."""

    def __init__(
        self,
        pod: JsonObject,
        lifecycle: PodLifecycle,
        *,
        supervisor: SupervisorClient,
        events: EventBroadcaster,
        address: str,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
    ) -> None:
        self._pod = pod
        self._lifecycle = lifecycle
        self._supervisor = supervisor
        self._events = events
        self._address = address
        self._clock = clock
        self._wake = wake
        self._group: asyncio.TaskGroup | None = None
        self._fresh: list[str] = []
        self._stopping: set[str] = set()
        self._attempts: dict[str, _Attempt] = {}
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}
        spec = pod["spec"]
        self._containers: dict[str, JsonObject] = {
            entry["name"]: entry for entry in (*(spec.get("initContainers") or ()), *spec["containers"])
        }

    def start(self, group: asyncio.TaskGroup) -> None:
        """Get to work, with tasks in this group."""
        self._group = group

    def stop(self) -> None:
        """End all tasks."""
        for name in list(self._tasks):
            self._cancel(name)

    # Processes that start and end

    def started(self, name: str, config: ContainerConfig, *, pid: int, at: datetime) -> None:
        """The process runs. Its hook and probes are begun by `sync`."""
        container = self._containers[name]
        self._events.normal(self._pod, "Started", f"Started container {name}", field_path=self._field_path(name))
        self._attempts[name] = _Attempt(config, pid, at)
        if _hook(container, "postStart") is None:
            self._mark_running(name)
        if _hook(container, "postStart") is not None or any(container.get(kind) for kind in PROBES):
            self._fresh.append(name)

    def exited(self, name: str) -> None:
        """The process is gone, and with it its hooks and probes."""
        self._attempts.pop(name, None)
        self._stopping.discard(name)
        if name in self._fresh:
            self._fresh.remove(name)
        self._cancel(name)

    # Work

    def sync(self) -> None:
        """Begin the hooks and probes of containers that have just started."""
        fresh, self._fresh = self._fresh, []
        for name in fresh:
            self._begin(name, self._run_post_start_and_probes(name))

    def terminate(self, name: str, identity: str) -> None:
        """Terminate a container, after its preStop hook if it has one and got as far as running."""
        message = self._lifecycle.containers[name].stop_message or f"Stopping container {name}"
        self._events.normal(self._pod, "Killing", message, field_path=self._field_path(name))
        self._stopping.add(name)
        hook, attempt = _hook(self._containers[name], "preStop"), self._attempts.get(name)
        if hook is not None or self._lifecycle.containers[name].state == "running":
            self._cancel(name)  # the probes; a postStart hook is done, or gives way to the preStop hook
        if hook is None or attempt is None:
            self._supervisor.terminate(identity)
            return
        self._begin(name, self._run_pre_stop(name, hook, identity))

    async def _run_post_start_and_probes(self, name: str) -> None:
        container = self._containers[name]
        hook = _hook(container, "postStart")
        if hook is not None:
            result = await run_handler(hook, self._target(name), timeout=None)
            if not result.ok:
                message = f"PostStartHook failed: {result.output}"
                self._events.warning(self._pod, "FailedPostStartHook", message, field_path=self._field_path(name))
                self._lifecycle.stop_container(name, "FailedPostStartHook", now=self._clock())
                self._wake()
                return
            self._mark_running(name)
            self._wake()
        if name in self._stopping:
            return
        await run_probes(
            container,
            run=lambda probe: run_handler(probe, self._target(name), timeout=probe.get("timeoutSeconds") or 1),
            report=lambda result: self._on_probe_result(name, result),
        )

    async def _run_pre_stop(self, name: str, hook: JsonObject, identity: str) -> None:
        result = await run_handler(hook, self._target(name), timeout=None)
        if not result.ok:
            message = f"PreStopHook failed: {result.output}"
            self._events.warning(self._pod, "FailedPreStopHook", message, field_path=self._field_path(name))
        self._supervisor.terminate(identity)

    def _mark_running(self, name: str) -> None:
        container = self._containers[name]
        self._lifecycle.running(
            name,
            at=self._attempts[name].at,
            started=container.get("startupProbe") is None,
            ready=container.get("readinessProbe") is None,
        )

    def _on_probe_result(self, name: str, probed: ProbeResult) -> None:
        result, probe_type = probed.result, probed.type
        if not result.ok:
            message = f"{probe_type.capitalize()} probe failed: {result.output.rstrip()}"
            self._events.warning(self._pod, "Unhealthy", message, field_path=self._field_path(name))
        if not probed.counts:
            return
        if probe_type == "readiness":
            changed = self._lifecycle.probed(name, ready=result.ok)
        elif probe_type == "startup" and result.ok:
            changed = self._lifecycle.probed(name, started=True)
        elif not result.ok:
            probe = self._containers[name][f"{probe_type}Probe"]
            changed = self._lifecycle.stop_container(
                name,
                f"Container {name} failed {probe_type} probe, will be restarted",
                grace=probe.get("terminationGracePeriodSeconds"),
                now=self._clock(),
            )
        else:
            changed = False
        if changed:
            self._wake()

    def execute(
        self, name: str, argv: list[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[ContainerExecution]:
        """Run a program in a container while the block runs; raises `LookupError` if the container does not run."""
        attempt = self._attempts[name]
        argv = attempt.config.rewriter.words(argv)
        return execute(self._supervisor, attempt.config, argv, pid=attempt.pid, stdin=stdin, tty=tty)

    def _target(self, name: str) -> Target:
        attempt = self._attempts[name]
        rewriter = attempt.config.rewriter

        async def execute(argv: list[str]) -> ExecResult:
            return await self._supervisor.execute(attempt.config, rewriter.words(argv), pid=attempt.pid)

        ports: Mapping[int, int] = rewriter.ports
        return Target(container=self._containers[name], address=self._address, ports=ports, execute=execute)

    def _field_path(self, name: str) -> str:
        return container_field_path(self._pod, name)

    def _begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        if self._group is None:
            raise RuntimeError("the probe manager was not started")
        task = self._group.create_task(_logged(name, work), name=f"prober-{name}")
        self._tasks.setdefault(name, set()).add(task)
        task.add_done_callback(self._tasks[name].discard)

    def _cancel(self, name: str) -> None:
        for task in self._tasks.pop(name, ()):
            task.cancel()


async def _logged(name: str, work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except Exception:  # a mistake in this code must not end the pod
        _log.exception("hooks and probes of container %s failed", name)


def _hook(container: JsonObject, kind: str) -> JsonObject | None:
    hook: JsonObject | None = (container.get("lifecycle") or {}).get(kind)
    return hook
