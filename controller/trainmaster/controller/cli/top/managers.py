"""The replicas of the manager: which are ready, which one leads, and what their metrics tell.

Metrics are read through the API server's proxy to their pods, as far as that is allowed. The API server does not pass
tokens on. So a manager that asks who reads its metrics, as the manifests have it, refuses this, and that is told;
`metrics.auth.enabled: false` opens them to whoever reaches its port. Who refuses its metrics is not asked again for a
minute: that changes when somebody changes roles or a configuration.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from trainmaster.controller.cli.cluster import manager_status
from trainmaster.controller.cli.probes import read_local, read_page
from trainmaster.controller.cli.responses import error_lines
from trainmaster.controller.container_failures import container_statuses
from trainmaster.controller.explain.causes.controllers import is_held
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, KubeError
from trainmaster.runtime.jsontree import JsonObject

EMBEDDED: Final = "embedded"

_DEPTH: Final = "workqueue_depth"
_RECONCILES: Final = "controller_runtime_reconcile_total"
_ERRORS: Final = "controller_runtime_reconcile_errors_total"
_READ: Final = (_DEPTH, _RECONCILES, _ERRORS)

_PORT_NAME: Final = "metrics"
_USUAL_PORTS: Final = (("https", 8443), ("http", 8080))
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

_Key = tuple[str, str]
"""Namespace and name of a pod."""

INTERVAL: Final = 5.0
REFUSED_FOR: Final = 60.0


@dataclass(frozen=True, slots=True)
class ManagerMetrics:
    """What matters of the metrics of a replica."""

    queue_depth: int
    """Jobs, and what belongs to them, that wait for a worker."""

    reconciles: int
    """Since it started."""

    reconcile_errors: int


@dataclass(frozen=True, slots=True)
class Manager:
    """A replica."""

    namespace: str
    name: str
    """Of its pod."""

    is_ready: bool
    leads: bool
    restarts: int
    problem: str
    """Why it is not ready; empty if it is."""

    metrics: ManagerMetrics | None = None
    unreadable: str = ""
    """Why there are no metrics; empty if there are, or if nobody has tried yet."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Managers:
    """All replicas."""

    replicas: Sequence[Manager] = ()
    """Those that lead come first."""

    note: str = ""
    """What is wrong with all of them together: that there is none, or that none leads; empty if nothing is."""


def managers_of(
    pods: Iterable[JsonObject],
    leases: Sequence[JsonObject] | None,
    *,
    now: datetime,
    embedded: JsonObject | None = None,
    metrics: Mapping[tuple[str, str], ManagerMetrics | str],
) -> Managers:
    """Put together what is known of the manager.

    Args:
        pods: Those that carry the labels of a manager.
        leases: Those by which one of them leads; None if they may not be read.
        now: The time, by which leases expire.
        embedded: What an embedded cluster tells of the manager that it runs itself.
        metrics: By namespace and name of the pod, the metrics, or why they cannot be read.
    """
    holders = {
        (lease["metadata"]["namespace"], str(lease["spec"]["holderIdentity"]))
        for lease in leases or ()
        if is_held(lease, now)
    }
    replicas = [_replica(pod, holders, metrics) for pod in pods if pod["metadata"].get("deletionTimestamp") is None]
    if embedded is not None:
        replicas.append(_embedded(embedded, metrics))
    replicas.sort(key=lambda each: (not each.leads, not each.is_ready, each.key))
    return Managers(replicas, _note(replicas, leases, holders))


def _replica(
    pod: JsonObject,
    holders: Iterable[tuple[str, str]],
    metrics: Mapping[tuple[str, str], ManagerMetrics | str],
) -> Manager:
    metadata, status = pod["metadata"], pod.get("status") or {}
    key = namespace, name = metadata["namespace"], metadata["name"]
    ready: JsonObject = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    is_ready = ready.get("status") == "True"
    waiting: JsonObject = next(
        (waits for each in container_statuses(pod) if (waits := (each.get("state") or {}).get("waiting"))), {}
    )
    problem = waiting.get("reason") or ready.get("message") or ready.get("reason") or status.get("phase") or "Pending"
    told = metrics.get(key)
    return Manager(
        namespace=namespace,
        name=name,
        is_ready=is_ready,
        # The host name of a pod is its name; the rest of an identity tells processes apart.
        leads=any(where == namespace and holder.startswith(f"{name}_") for where, holder in holders),
        restarts=sum(each.get("restartCount") or 0 for each in container_statuses(pod)),
        problem="" if is_ready else str(problem),
        metrics=told if isinstance(told, ManagerMetrics) else None,
        unreadable=told if isinstance(told, str) else "",
    )


def _embedded(status: JsonObject, metrics: Mapping[tuple[str, str], ManagerMetrics | str]) -> Manager:
    phase, told = str(status["phase"]), metrics.get(("", EMBEDDED))
    return Manager(
        namespace="",
        name=EMBEDDED,
        is_ready=phase == "ready",
        leads=phase == "ready",
        restarts=int(status.get("ends") or 0),
        problem=""
        if phase == "ready"
        else ": ".join(each for each in (phase, str(status.get("message") or "")) if each),
        metrics=told if isinstance(told, ManagerMetrics) else None,
        unreadable=told if isinstance(told, str) else "",
    )


def _note(replicas: Sequence[Manager], leases: Sequence[JsonObject] | None, holders: Iterable[tuple[str, str]]) -> str:
    if any(each.leads for each in replicas):
        return ""
    held = ", ".join(sorted(f"{holder} in {namespace}" for namespace, holder in holders))
    if held:
        return f"{held} leads" if replicas else f"no pod of a manager is known; {held} leads"
    if not replicas:
        return "none is installed; nothing becomes of TrainJobs: trainmaster doctor"
    return "" if leases is None else "none leads; nothing becomes of TrainJobs until one does"


async def read_pod(client: KubeClient, pod: JsonObject) -> ManagerMetrics | str:
    """Return the metrics of a manager in a pod, or why they cannot be read."""
    refusal = ""
    for scheme, port in _ports(pod):
        try:
            return parse(await read_page(client, pod, "metrics", scheme=scheme, port=port))
        except ApiError as error:
            refusal = _refusal(error, pod["metadata"])
            if error.status in {401, 403}:
                break
        except KubeError as error:
            refusal = refusal or str(error)
    return refusal or "its pod has no port for metrics"


async def read_url(url: str) -> ManagerMetrics | str:
    """Return the metrics at a URL on this machine, or why they cannot be read."""
    if urlsplit(url).hostname not in _LOOPBACK:
        return "they are on another machine"
    try:
        return parse(await read_local(url))
    except OSError as error:
        return str(error)


def parse(text: str) -> ManagerMetrics | str:
    """Read the text of the metrics; an error if it is none."""
    lines = [line for line in text.splitlines() if line.startswith(_READ)]
    if not lines:
        return "it has no metrics of a controller"
    try:
        samples = list(_samples(lines))
    except ValueError as error:
        return f"its metrics cannot be read: {error}"
    return ManagerMetrics(
        queue_depth=_sum(samples, _DEPTH),
        reconciles=_sum(samples, _RECONCILES),
        reconcile_errors=_sum(samples, _ERRORS),
    )


def _samples(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            yield sample.name, sample.value


def _sum(samples: Iterable[tuple[str, float]], name: str) -> int:
    return int(sum(value for each, value in samples if each == name))


def _ports(pod: JsonObject) -> Sequence[tuple[str, int]]:
    """Return by which schemes and at which ports the metrics may be, the likeliest first."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    named = [
        port["containerPort"]
        for container in containers
        for port in container.get("ports") or ()
        if port.get("name") == _PORT_NAME
    ]
    if named:
        return [(scheme, named[0]) for scheme in ("https", "http")]
    return _USUAL_PORTS


def _refusal(error: ApiError, metadata: JsonObject) -> str:
    if error.reason == "Forbidden":
        return f"no permission; grant the verb get on pods/proxy in namespace {metadata['namespace']}"
    if error.status in {401, 403}:
        return "the manager asks who reads them (metrics.auth), and the API server's proxy does not tell it"
    return error_lines(error)[0]


class ManagerReader:
    """What managers tell of themselves.

    Args:
        client: Of the cluster.
        monotonic: Seconds of any clock.
    """

    def __init__(self, client: KubeClient, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._may_be_embedded = True
        self._refused_at: dict[_Key, float] = {}
        self.metrics: Mapping[_Key, ManagerMetrics | str] = {}
        """By pod, the metrics, or why they cannot be read."""

        self.embedded: JsonObject | None = None
        """What an embedded cluster tells of the manager that it runs itself; None of other clusters."""

    async def read(self, pods: Iterable[JsonObject]) -> None:
        """Ask the managers in some pods, and the cluster."""
        if self._may_be_embedded:
            try:
                self.embedded = await manager_status(self._client)
                self._may_be_embedded = self.embedded is not None
            except KubeError:
                pass  # informers tell of that
        running = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
            for pod in pods
            if (pod.get("status") or {}).get("phase") == "Running"
        }
        found = await asyncio.gather(*(self._read(key, pod) for key, pod in running.items()))
        self._refused_at = {key: at for key, at in self._refused_at.items() if key in running}
        metrics = dict(zip(running, found, strict=True))
        if self.embedded is not None and (url := self.embedded.get("metrics")):
            metrics["", EMBEDDED] = await read_url(url)
        self.metrics = metrics

    async def _read(self, key: _Key, pod: JsonObject) -> ManagerMetrics | str:
        now, before = self._monotonic(), self.metrics.get(key)
        if isinstance(before, str) and now - self._refused_at.get(key, now) < REFUSED_FOR:
            return before
        found = await read_pod(self._client, pod)
        if isinstance(found, str):
            self._refused_at[key] = now
        return found
