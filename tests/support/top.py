"""Jobs, nodes and moments of a cluster, as `trainmaster top` shows them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from trainmaster.controller.cli.jobs.rows import JobRow, Trouble
from trainmaster.controller.cli.top.managers import Manager, Managers
from trainmaster.controller.cli.top.node_usage import NodeUsage
from trainmaster.controller.cli.top.snapshot import Snapshot
from trainmaster.controller.job_fields import Progress
from trainmaster.controller.kube.clock import time_text
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    """A time before `NOW`."""
    return time_text(NOW - timedelta(seconds=seconds))


def top_job(
    name: str,
    state: str = "Running",
    *,
    kind: str = "TrainJob",
    namespace: str = "team",
    age: float = 60,
    ended: float | None = None,
    restarts: int = 0,
    percentage: int | None = None,
    remaining: int | None = None,
    trouble: str = "",
    failures: Sequence[tuple[str, float]] = (),
) -> JobRow:
    """A job; `age`, `ended` and those of failures are in seconds before `NOW`, `trouble` is a cause."""
    has_ended = state in {"Complete", "Succeeded", "Failed"}
    return JobRow(
        kind=kind,
        namespace=namespace,
        name=name,
        state=state,
        cause="",
        has_ended=has_ended,
        nodes=0 if has_ended else 2,
        wanted=2,
        restarts=restarts,
        created=ago(age),
        began=ago(age),
        ended=None if ended is None else ago(ended),
        progress=None if percentage is None and remaining is None else Progress(percentage, remaining, {"loss": "0.5"}),
        trouble=Trouble(trouble, f"because of {trouble}") if trouble else None,
        failures=[(node, ago(seconds)) for node, seconds in failures],
    )


def node(
    name: str, *, status: str = "Ready", has: Mapping[str, str] | None = None, asked: Mapping[str, str] | None = None
) -> NodeUsage:
    """A node with 8 CPUs and 32 GiB, if nothing else is said."""
    amounts = {"cpu": "8", "memory": "32Gi"} if has is None else has
    return NodeUsage(name, status, _quantities(amounts), _quantities(asked or {}))


def _quantities(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


def replica(name: str = "manager-1", **fields: Any) -> Manager:
    """A replica of the manager that is ready, and leads."""
    known = {"is_ready": True, "leads": True, "restarts": 0, "problem": ""}
    return Manager(namespace="kubeflow-system", name=name, **{**known, **fields})


def snapshot(
    *jobs: JobRow,
    nodes: Sequence[NodeUsage] | None = (),
    managers: Managers | None = None,
    namespace: str | None = "team",
    **fields: Any,
) -> Snapshot:
    """A moment of a cluster."""
    return Snapshot(
        now=NOW,
        server="https://cluster",
        namespace=namespace,
        jobs=jobs,
        nodes=nodes,
        managers=managers or Managers([replica()]),
        **fields,
    )


def node_object(name: str, *, ready: str = "True", unschedulable: bool = False, **amounts: str) -> JsonObject:
    """A node as an API server has it; amounts by resource, `_` for what a keyword cannot have."""
    allocatable = {key.replace("__", "/").replace("_", "."): amount for key, amount in amounts.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"unschedulable": True} if unschedulable else {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }


def pod_on(node_name: str, uid: str, **requests: str) -> JsonObject:
    """A pod that is bound to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": uid, "namespace": "team", "uid": uid},
        "spec": {"nodeName": node_name, "containers": [{"name": "node", "resources": {"requests": requests}}]},
    }
