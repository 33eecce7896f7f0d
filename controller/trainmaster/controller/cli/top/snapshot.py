"""A moment of a cluster, as it is shown: jobs, nodes, managers, and what cannot be read; and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.controller.cli.top.attention import TopJob, attention
from trainmaster.controller.cli.top.managers import Manager, Managers
from trainmaster.controller.cli.top.node_usage import NodeUsage
from trainmaster.controller.kube.clock import time_text
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a cluster at a moment."""

    now: datetime
    server: str
    namespace: str | None
    """Whose jobs; None: all."""

    jobs: Sequence[TopJob]
    """In no order."""

    nodes: Sequence[NodeUsage] | None
    """None if they may not be read, or were not yet."""

    managers: Managers | None
    """None likewise."""

    unread: Sequence[str] = ()
    """What cannot be read, why, and what to do, a line each."""

    outage: str = ""
    """Why the cluster does not answer, so that all of this may be out of date; empty if it does."""

    is_complete: bool = True
    """Whether everything was read that can be."""


def to_json(snapshot: Snapshot, jobs: Sequence[TopJob]) -> JsonObject:
    """Return a snapshot for programs, with its jobs in an order."""
    return {
        "time": time_text(snapshot.now),
        "server": snapshot.server,
        "namespace": snapshot.namespace,
        "jobs": [_job(job, snapshot.now) for job in jobs],
        "nodes": None if snapshot.nodes is None else [_node(node) for node in snapshot.nodes],
        "managers": None if snapshot.managers is None else [_manager(each) for each in snapshot.managers.replicas],
        "managersNote": "" if snapshot.managers is None else snapshot.managers.note,
        "unread": list(snapshot.unread),
    }


def _job(job: TopJob, now: datetime) -> JsonObject:
    row, trouble, progress = job.row, job.trouble, job.row.progress
    return {
        "kind": row.kind,
        "namespace": row.namespace,
        "name": row.name,
        "state": row.state,
        "attention": attention(job, now).name.lower().replace("_", "-"),
        "readyNodes": row.nodes,
        "wantedNodes": row.wanted,
        "restarts": row.restarts,
        "created": row.created,
        "started": row.started,
        "ended": row.ended,
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
    metrics = manager.metrics
    return {
        "namespace": manager.namespace,
        "name": manager.name,
        "ready": manager.is_ready,
        "leads": manager.leads,
        "restarts": manager.restarts,
        "problem": manager.problem,
        "queueDepth": None if metrics is None else metrics.queue_depth,
        "reconciles": None if metrics is None else metrics.reconciles,
        "reconcileErrors": None if metrics is None else metrics.reconcile_errors,
        "metricsUnreadable": manager.unreadable,
    }
