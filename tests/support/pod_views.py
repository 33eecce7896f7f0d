"""Views of jobs for tests of causes: pods, events, nodes and claims as scheduler, kubelet and others write them."""

from datetime import UTC, datetime
from typing import Any

from trainmaster.controller.explain.findings import Event, parse_event
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
THEN = "2026-11-23T11:50:00Z"


def view(*pods: JsonObject, **known: Any) -> JobView:
    """What is known of a TrainJob `t` with these pods."""
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t", "namespace": "ns", "uid": "job", "creationTimestamp": THEN},
        "spec": {},
        "status": {"conditions": known.pop("conditions", [])},
    }
    return JobView(known.pop("job", job), now=NOW, pods=list(pods), **known)


def pod(rank: int = 0, *, phase: str = "Pending", spec: JsonObject | None = None, **status: Any) -> JsonObject:
    """The pod of a rank."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "t",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": str(rank),
    }
    name = f"t-node-0-{rank}"
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels, "creationTimestamp": THEN}
    containers = [{"name": "node", "image": "example.com/train:1"}]
    return {
        "metadata": metadata,
        "spec": {"containers": containers, **(spec or {})},
        "status": {"phase": phase, **status},
    }


def unscheduled(message: str) -> JsonObject:
    """The conditions of a pod that no node can take, as the field `conditions`."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": THEN,
    }
    return {"conditions": [condition]}


def waiting(reason: str, message: str = "", *, container: str = "node") -> JsonObject:
    """The status of a container that waits, as the field `containerStatuses`."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return {"containerStatuses": [{"name": container, "state": state, "restartCount": 0}]}


def ended(
    exit_code: int, reason: str = "Error", message: str = "", *, at: str = THEN, container: str = "node"
) -> JsonObject:
    """The status of a container that ended, as the field `containerStatuses`."""
    terminated = {"exitCode": exit_code, "reason": reason, "message": message, "finishedAt": at}
    return {"containerStatuses": [{"name": container, "state": {"terminated": terminated}, "restartCount": 0}]}


def event(kind: str, name: str, reason: str, note: str, *, warning: bool = True) -> Event:
    """An event about an object."""
    return parse_event(
        {
            "regarding": {"kind": kind, "namespace": "ns", "name": name},
            "reason": reason,
            "note": note,
            "type": "Warning" if warning else "Normal",
            "eventTime": THEN,
        }
    )


def node(name: str = "n1", *, ready: str = "True", labels: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A node with 4 CPUs, 16 GiB and no GPU."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "conditions": [
                {
                    "type": "Ready",
                    "status": ready,
                    "reason": "KubeletReady" if ready == "True" else "NodeStatusUnknown",
                    "message": "" if ready == "True" else "Kubelet stopped posting node status.",
                    "lastTransitionTime": THEN,
                }
            ],
        },
    }


def claim(name: str, phase: str = "Pending", **spec: Any) -> JsonObject:
    """A claim for a volume."""
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": spec,
        "status": {"phase": phase},
    }
