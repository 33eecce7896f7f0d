"""What is known of a cluster as a whole, in lines without colours: for the live view and for plain output; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from trainmaster.controller.cli.terminal_text import one_line
from trainmaster.controller.cli.top.cluster.attention import Attention, attention
from trainmaster.controller.cli.top.cluster.managers import Manager
from trainmaster.controller.cli.top.cluster.node_usage import CPU, MEMORY, NodeUsage, total
from trainmaster.controller.cli.top.cluster.snapshot import Snapshot
from trainmaster.runtime.quantity import Quantity

_MANAGERS: Final = 3
_GIBI: Final = 1 << 30
_NANO: Final = 10**9


def title(snapshot: Snapshot) -> str:
    """Say what is looked at, and when."""
    where = "all namespaces" if snapshot.namespace is None else f"namespace {snapshot.namespace}"
    return f"{snapshot.now:%H:%M:%S} UTC   {where}   {snapshot.server}"


def outage_line(snapshot: Snapshot) -> str:
    """Say that the cluster is away; empty if it is not."""
    if not snapshot.outage:
        return ""
    return f"the cluster does not answer: this may be out of date: {one_line(snapshot.outage)}"


def unread_lines(snapshot: Snapshot) -> list[str]:
    """Say what cannot be read, a line each."""
    return [f"not read: {one_line(line)}" for line in snapshot.unread]


def job_counts(snapshot: Snapshot) -> str:
    """Say how many jobs need how much attention."""
    counts = Counter(attention(job, snapshot.now) for job in snapshot.jobs)
    listed = ", ".join(f"{counts[each]:,} {each.word}" for each in Attention if counts[each])
    return f"{len(snapshot.jobs):,}" + (f": {listed}" if listed else "")


def manager_lines(snapshot: Snapshot) -> Iterator[tuple[str, bool]]:
    """Say how the replicas of the manager fare, a line each, with whether that is well."""
    managers = snapshot.managers
    if managers is None:
        yield "not known", False
        return
    if managers.note:
        yield one_line(managers.note), False
    for each in managers.replicas[:_MANAGERS]:
        yield _manager(each), each.is_ready
    if rest := managers.replicas[_MANAGERS:]:
        yield f"and {len(rest)} more, {sum(each.is_ready for each in rest)} of them ready", True


def node_line(snapshot: Snapshot) -> str:
    """Say what the nodes that take pods have together, and how much of it is asked for."""
    if snapshot.nodes is None:
        return "not known"
    everything = total(snapshot.nodes)
    amounts = {each: percents(everything, each) for each in (CPU, MEMORY, *everything.accelerators)}
    parts = [f"{resource} {amount}" for resource, amount in amounts.items() if amount]
    return "   ".join([f"{everything.status} ready", *parts])


def percents(node: NodeUsage, resource: str) -> str:
    """Write how much of a resource is asked for, of how much: `12/64 19%`; empty if there is none."""
    has = node.allocatable.get(resource)
    if not has:
        return ""
    asked = node.requested.get(resource, Quantity.parse(0))
    return f"{_written(asked, resource)}/{_written(has, resource)} {node.share(resource) * 100:.0f}%"


def _manager(manager: Manager) -> str:
    name = f"{manager.namespace}/{manager.name}" if manager.namespace else manager.name
    parts = [name, "ready" if manager.is_ready else f"not ready: {one_line(manager.problem)}"]
    if manager.leads:
        parts.append("leads")
    if manager.restarts:
        parts.append(f"{manager.restarts} restart{'s' if manager.restarts > 1 else ''}")
    metrics = manager.metrics
    if metrics is not None:
        parts.append(f"queue {metrics.queue_depth:,}")
        parts.append(f"{metrics.reconcile_errors:,} of {metrics.reconciles:,} reconciles failed")
    elif manager.unreadable:
        parts.append(f"metrics not readable: {one_line(manager.unreadable)}")
    return "   ".join(parts)


def _written(amount: Quantity, resource: str) -> str:
    """Write an amount in a few characters: memory in GiB, others with at most one decimal."""
    number = amount.nano / _NANO
    if resource == MEMORY:
        return f"{number / _GIBI:.4g}Gi"
    return f"{number:.1f}".removesuffix(".0")
