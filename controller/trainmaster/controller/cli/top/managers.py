"""The replicas of the manager: which are ready, and which one leads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.controller.container_failures import container_statuses
from trainmaster.controller.explain.causes.controllers import is_held
from trainmaster.runtime.jsontree import JsonObject


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
) -> Managers:
    """Put together what is known of the manager.

    `leases` is None if they may not be read; `embedded` is what an embedded cluster tells of the manager that it runs
    itself.
    """
    holders = {
        (lease["metadata"]["namespace"], str(lease["spec"]["holderIdentity"]))
        for lease in leases or ()
        if is_held(lease, now)
    }
    replicas = [_replica(pod, holders) for pod in pods if pod["metadata"].get("deletionTimestamp") is None]
    if embedded is not None:
        replicas.append(_embedded(embedded))
    replicas.sort(key=lambda each: (not each.leads, not each.is_ready, each.namespace, each.name))
    return Managers(replicas, _note(replicas, leases, holders))


def _replica(pod: JsonObject, holders: Iterable[tuple[str, str]]) -> Manager:
    metadata, status = pod["metadata"], pod.get("status") or {}
    namespace, name = metadata["namespace"], metadata["name"]
    ready: JsonObject = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    is_ready = ready.get("status") == "True"
    waiting: JsonObject = next(
        (waits for each in container_statuses(pod) if (waits := (each.get("state") or {}).get("waiting"))), {}
    )
    problem = waiting.get("reason") or ready.get("message") or ready.get("reason") or status.get("phase") or "Pending"
    return Manager(
        namespace=namespace,
        name=name,
        is_ready=is_ready,
        # The host name of a pod is its name; the rest of an identity tells processes apart.
        leads=any(where == namespace and holder.startswith(f"{name}_") for where, holder in holders),
        restarts=sum(each.get("restartCount") or 0 for each in container_statuses(pod)),
        problem="" if is_ready else str(problem),
    )


def _embedded(status: JsonObject) -> Manager:
    phase = str(status["phase"])
    return Manager(
        namespace="",
        name="embedded",
        is_ready=phase == "ready",
        leads=phase == "ready",
        restarts=int(status.get("ends") or 0),
        problem=""
        if phase == "ready"
        else ": ".join(each for each in (phase, str(status.get("message") or "")) if each),
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
