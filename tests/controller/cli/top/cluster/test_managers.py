"""The replicas of the manager, from their pods and their lease."""

from __future__ import annotations

from typing import Any

from support.top import NOW, ago

from trainmaster.controller.cli.top.cluster.managers import ManagerMetrics, managers_of
from trainmaster.runtime.jsontree import JsonObject

METRICS = ManagerMetrics(queue_depth=3, reconciles=100, reconcile_errors=2)


def pod(name: str, *, ready: bool = True, **status: Any) -> JsonObject:
    condition = {"type": "Ready", "status": "True" if ready else "False", "message": "containers with unready status"}
    return {
        "metadata": {"name": name, "namespace": "kubeflow-system"},
        "status": {"phase": "Running", "conditions": [condition], **status},
    }


def lease(holder: str, *, renewed: float = 2, namespace: str = "kubeflow-system") -> JsonObject:
    spec = {"holderIdentity": holder, "renewTime": ago(renewed), "leaseDurationSeconds": 15}
    return {"metadata": {"name": "trainer.kubeflow.org", "namespace": namespace}, "spec": spec}


def test_the_pod_that_holds_the_lease_leads_and_comes_first_and_an_embedded_one_has_no_pod() -> None:
    found = managers_of(
        [pod("manager-a"), pod("manager-b")],
        [lease("manager-b_0b5f")],
        now=NOW,
        metrics={("kubeflow-system", "manager-b"): METRICS, ("kubeflow-system", "manager-a"): "no permission"},
    )
    assert [(each.name, each.leads, each.is_ready) for each in found.replicas] == [
        ("manager-b", True, True),
        ("manager-a", False, True),
    ]
    assert (found.replicas[0].metrics, found.replicas[0].unreadable) == (METRICS, "")
    assert (found.replicas[1].metrics, found.replicas[1].unreadable) == (None, "no permission")
    assert found.note == ""
    # The manager of an embedded cluster is one without a pod.
    ready = {"phase": "ready", "message": "", "ends": 0}
    (replica,) = managers_of([], [], now=NOW, embedded=ready, metrics={("", "embedded"): METRICS}).replicas
    assert (replica.name, replica.is_ready, replica.leads, replica.metrics) == ("embedded", True, True, METRICS)
    crashing = {"phase": "crashing", "message": "no such file", "ends": 3}
    (replica,) = managers_of([], [], now=NOW, embedded=crashing, metrics={}).replicas
    assert (replica.is_ready, replica.problem, replica.restarts) == (False, "crashing: no such file", 3)


def test_who_leads_is_told_by_the_lease() -> None:
    # A name that begins as that of another pod is not it.
    found = managers_of([pod("manager"), pod("manager-2")], [lease("manager-2_0b5f")], now=NOW, metrics={})
    assert [each.name for each in found.replicas if each.leads] == ["manager-2"]
    # A lease that nobody renews is nobodys.
    found = managers_of([pod("manager-a")], [lease("manager-a_0b5f", renewed=60)], now=NOW, metrics={})
    assert not found.replicas[0].leads
    assert found.note.startswith("none leads")
    # Who may not read leases does not say that none leads.
    assert managers_of([pod("manager-a")], None, now=NOW, metrics={}).note == ""
    # A manager that is no pod here is told of.
    elsewhere = managers_of([], [lease("laptop_1", namespace="kubeflow")], now=NOW, metrics={})
    assert elsewhere.note == "no pod of a manager is known; laptop_1 in kubeflow leads"
    both = managers_of([pod("manager-a")], [lease("laptop_1")], now=NOW, metrics={})
    assert both.note == "laptop_1 in kubeflow-system leads"
    assert managers_of([], [], now=NOW, metrics={}).note.startswith("none is installed")


def test_why_a_replica_is_not_ready() -> None:
    container = {"name": "manager", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    crashing = pod("a", ready=False, containerStatuses=[container])
    found = managers_of([crashing, pod("b", ready=False)], [], now=NOW, metrics={})
    assert [(each.problem, each.restarts) for each in found.replicas] == [
        ("CrashLoopBackOff", 7),
        ("containers with unready status", 0),
    ]
    # A pod that ends is no replica any more.
    ending = pod("a")
    ending["metadata"]["deletionTimestamp"] = ago(1)
    assert managers_of([ending], [], now=NOW, metrics={}).replicas == []
