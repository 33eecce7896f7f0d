"""A moment of a cluster: jobs, nodes, managers, and what cannot be read; as JSON, and in lines and tables. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.controller.cli.follow.summary import clock
from trainmaster.controller.cli.jobs.rows import UNKNOWN, JobRow, nodes_text
from trainmaster.controller.cli.output import one_line
from trainmaster.controller.cli.printers import aligned, human_duration
from trainmaster.controller.cli.responses import fault_of
from trainmaster.controller.cli.top.attention import Attention, attention
from trainmaster.controller.cli.top.managers import Manager, Managers
from trainmaster.controller.cli.top.node_usage import CPU, MEMORY, NodeUsage, total
from trainmaster.controller.kube.clock import time_text
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

JOB_HEADER: Final = ("NAMESPACE", "KIND", "NAME", "STATE", "NODES", "PROGRESS", "LEFT", "RESTARTS", "AGE", "CAUSE")

_MANAGERS: Final = 3
_FAILING_NODES: Final = 5
_GIBI: Final = 1 << 30
_NANO: Final = 10**9


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a cluster at a moment."""

    now: datetime
    server: str
    namespace: str | None
    """Whose jobs; None: all."""

    jobs: Sequence[JobRow]
    """In no order."""

    nodes: Sequence[NodeUsage] | None
    """None if they may not be read."""

    managers: Managers | None
    """None likewise."""

    unread: Sequence[str] = ()
    """What cannot be read, why, and what to do, a line each."""

    outage: str = ""
    """Why the cluster does not answer, so that all of this may be out of date; empty if it does."""


def to_json(snapshot: Snapshot, jobs: Sequence[JobRow]) -> JsonObject:
    """Return a snapshot for programs, with its jobs in an order."""
    return {
        "time": time_text(snapshot.now),
        "server": snapshot.server,
        "namespace": snapshot.namespace,
        "jobs": [_job(job, snapshot.now) for job in jobs],
        "nodes": None if snapshot.nodes is None else [_node(node) for node in snapshot.nodes],
        "failingNodes": failing_nodes(snapshot),
        "managers": None if snapshot.managers is None else [_manager(each) for each in snapshot.managers.replicas],
        "managersNote": "" if snapshot.managers is None else snapshot.managers.note,
        "unread": list(snapshot.unread),
    }


def _job(job: JobRow, now: datetime) -> JsonObject:
    trouble, progress = job.trouble, job.progress
    return {
        "kind": job.kind,
        "namespace": job.namespace,
        "name": job.name,
        "state": job.state,
        "attention": attention(job, now).name.lower().replace("_", "-"),
        "readyNodes": job.nodes,
        "wantedNodes": job.wanted,
        "restarts": job.restarts,
        "created": job.created,
        "started": job.began,
        "ended": job.ended,
        "progressPercentage": None if progress is None else progress.percentage,
        "estimatedRemainingSeconds": None if progress is None else progress.remaining_seconds,
        "metrics": {} if progress is None else dict(progress.metrics),
        "cause": None if trouble is None else trouble.cause,
        "message": None if trouble is None else trouble.text,
    }


def _node(node: NodeUsage) -> JsonObject:
    return {
        "name": node.name,
        "status": node.status,
        "allocatable": _amounts(node.allocatable),
        "requested": _amounts(node.requested),
    }


def _amounts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def _manager(manager: Manager) -> JsonObject:
    return {
        "namespace": manager.namespace,
        "name": manager.name,
        "ready": manager.is_ready,
        "leads": manager.leads,
        "restarts": manager.restarts,
        "problem": manager.problem,
    }


def plain_lines(snapshot: Snapshot, jobs: Sequence[JobRow]) -> Iterator[str]:
    """Yield a cluster as lines."""
    yield from (line for line, _ in head_lines(snapshot))
    yield ""
    if jobs:
        first = 0 if snapshot.namespace is None else 1
        yield from aligned([row[first:] for row in (JOB_HEADER, *(job_cells(job, snapshot) for job in jobs))])
    else:
        yield no_jobs(snapshot)
    if snapshot.nodes:
        yield ""
        yield from aligned(node_rows(snapshot))


def head_lines(snapshot: Snapshot) -> Iterator[tuple[str, bool]]:
    """Say what is looked at, and how all of it is, in lines, each with whether that is well."""
    where = "all namespaces" if snapshot.namespace is None else f"namespace {snapshot.namespace}"
    yield f"{snapshot.now:%H:%M:%S} UTC   {where}   {snapshot.server}", True
    if snapshot.outage:
        yield f"this may be out of date: {one_line(fault_of(snapshot.outage))}", False
    yield f"jobs     {_job_counts(snapshot, snapshot.jobs, total=True)}", True
    for line, is_well in _manager_lines(snapshot):
        yield f"manager  {line}", is_well
    yield f"nodes    {_node_line(snapshot)}", True
    if failing := failing_nodes(snapshot):
        listed = ", ".join(f"{node} {jobs}" for node, jobs in list(failing.items())[:_FAILING_NODES])
        more = f", and {len(failing) - _FAILING_NODES} more" if len(failing) > _FAILING_NODES else ""
        yield f"failing  jobs that failed on one node in a day: {listed}{more}", False
    yield from ((f"not read: {one_line(line)}", False) for line in snapshot.unread)


def no_jobs(snapshot: Snapshot) -> str:
    """Say why no jobs are shown."""
    if snapshot.jobs:
        return "no job matches --filter"
    where = "" if snapshot.namespace is None else f" in namespace {snapshot.namespace}; -A shows all namespaces"
    return f"no jobs{where}"


def failing_nodes(snapshot: Snapshot) -> dict[str, int]:
    """Count the jobs that have failed on each node in the last day, if these are several; the worst node first."""
    since = time_text(snapshot.now - timedelta(days=1))
    counts = Counter(
        node for job in snapshot.jobs for node in dict.fromkeys(node for node, at in job.failures if at > since)
    )
    return {node: jobs for node, jobs in counts.most_common() if jobs > 1}


def job_cells(job: JobRow, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the row of a job, below `JOB_HEADER`."""
    trouble, progress = job.trouble, job.progress
    percentage = None if progress is None else progress.percentage
    remaining = None if progress is None or job.has_ended else progress.remaining_seconds
    return (
        job.namespace,
        job.kind,
        job.name,
        job.state,
        nodes_text(job),
        UNKNOWN if percentage is None else f"{percentage}%",
        UNKNOWN if remaining is None else clock(remaining),
        str(job.restarts),
        human_duration(job.age(snapshot.now)),
        "" if trouble is None else str(trouble),
    )


def more_jobs(snapshot: Snapshot, jobs: Sequence[JobRow], at_most: int) -> Iterator[str]:
    """Count the jobs for which there is no row, if there are any."""
    if rest := jobs[at_most:]:
        yield f"and {len(rest):,} more: {_job_counts(snapshot, rest)}"


def node_rows(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return the rows of the nodes below their header: those that need attention first, then the fullest."""
    nodes = sorted(snapshot.nodes or (), key=lambda node: (node.is_ready, -node.fullness, node.name))
    resources = (CPU, MEMORY, *total(nodes).accelerators)
    header = ("NODE", "STATUS", *(each.upper() for each in resources))
    return [
        header,
        *((node.name, node.status, *(_percents(node, each) or UNKNOWN for each in resources)) for node in nodes),
    ]


def more_nodes(snapshot: Snapshot, at_most: int) -> Iterator[str]:
    """Count the nodes for which there is no row, if there are any."""
    if (more := len(snapshot.nodes or ()) - at_most) > 0:
        yield f"and {more} more nodes"


def _job_counts(snapshot: Snapshot, jobs: Sequence[JobRow], *, total: bool = False) -> str:
    """Say how many jobs need how much attention."""
    counts = Counter(attention(job, snapshot.now) for job in jobs)
    listed = ", ".join(f"{counts[each]:,} {each.word}" for each in Attention if counts[each])
    return ": ".join(each for each in (f"{len(jobs):,}" if total else "", listed) if each)


def _manager_lines(snapshot: Snapshot) -> Iterator[tuple[str, bool]]:
    """Say how the replicas of the manager fare, a line each, with whether that is well."""
    managers = snapshot.managers
    if managers is None:
        yield "not known", False
        return
    if managers.note:
        yield one_line(managers.note), False
    for each in managers.replicas[:_MANAGERS]:
        yield _manager_line(each), each.is_ready
    if rest := managers.replicas[_MANAGERS:]:
        yield f"and {len(rest)} more, {sum(each.is_ready for each in rest)} of them ready", True


def _node_line(snapshot: Snapshot) -> str:
    """Say what the nodes that take pods have together, and how much of it is asked for."""
    if snapshot.nodes is None:
        return "not known"
    everything = total(snapshot.nodes)
    amounts = {each: _percents(everything, each) for each in (CPU, MEMORY, *everything.accelerators)}
    parts = [f"{resource} {amount}" for resource, amount in amounts.items() if amount]
    return "   ".join([f"{everything.status} ready", *parts])


def _percents(node: NodeUsage, resource: str) -> str:
    """Write how much of a resource is asked for, of how much: `12/64 19%`; empty if there is none."""
    has = node.allocatable.get(resource)
    if not has:
        return ""
    asked = node.requested.get(resource, Quantity.parse(0))
    return f"{_written(asked, resource)}/{_written(has, resource)} {node.share(resource) * 100:.0f}%"


def _manager_line(manager: Manager) -> str:
    name = f"{manager.namespace}/{manager.name}" if manager.namespace else manager.name
    parts = [name, "ready" if manager.is_ready else f"not ready: {one_line(manager.problem)}"]
    if manager.leads:
        parts.append("leads")
    if manager.restarts:
        parts.append(f"{manager.restarts} restart{'s' if manager.restarts > 1 else ''}")
    return "   ".join(parts)


def _written(amount: Quantity, resource: str) -> str:
    """Write an amount in a few characters: memory in GiB, others with at most one decimal."""
    number = amount.nano / _NANO
    if resource == MEMORY:
        return f"{number / _GIBI:.4g}Gi"
    return f"{number:.1f}".removesuffix(".0")
