"""Pods that the cluster took away: by whom, and from which node."""

from __future__ import annotations

from typing import Any

import pytest
from support.pod_views import THEN, ended, event, node, pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.disruptions import disruptions
from trainmaster.controller.explain.findings import Certainty, Finding
from trainmaster.runtime.jsontree import JsonObject

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
DRAINED = {"key": "maintenance", "effect": "NoExecute"}


def target(reason: str, message: str) -> JsonObject:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"conditions": [{**condition, "lastTransitionTime": THEN}]}


def found(*pods: JsonObject, **known: Any) -> Finding:
    (finding,) = disruptions(view(*pods, **known))
    assert finding.certainty is Certainty.CERTAIN
    return finding


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PreemptionByScheduler", Cause.PREEMPTED),
        ("EvictionByEvictionAPI", Cause.EVICTED),
        ("DeletionByPodGC", Cause.NODE_LOST),
        ("TerminationByKubelet", Cause.EVICTED),
    ],
)
def test_the_condition_tells_by_whom(reason: str, cause: Cause) -> None:
    leaving = pod(1, phase="Running", spec={"containers": [], "nodeName": "n1"}, **target(reason, "so it is"))
    finding = found(leaving, nodes=[node()])
    assert (finding.cause, finding.evidence[0].text) == (cause, f"rank 1: {reason}: so it is")
    assert finding.since is not None


def test_a_taint_tells_whether_the_node_is_lost() -> None:
    spec = {"containers": [], "nodeName": "n1"}
    told = target("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
    leaving = pod(phase="Failed", spec=spec, **told)
    assert found(leaving, nodes=[node(ready="Unknown", taints=[UNREACHABLE])]).cause is Cause.NODE_LOST
    assert found(leaving, nodes=[node(taints=[DRAINED])]).cause is Cause.EVICTED


def test_pressure_on_a_node_and_a_node_that_does_not_answer_are_named() -> None:
    # Pressure on a node names the resource.
    message = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 512Mi."
    evicted = pod(phase="Failed", reason="Evicted", message=message, **target("TerminationByKubelet", message))
    finding = found(evicted)
    assert finding.cause is Cause.EVICTED
    assert message in finding.evidence[0].text
    assert "ephemeral-storage" in finding.what_next[0]
    # A node that does not answer.
    running = pod(2, phase="Running", spec={"containers": [], "nodeName": "n2"})
    finding = found(running, nodes=[node(), node("n2", ready="Unknown"), node("n3", ready="Unknown")])
    assert finding.cause is Cause.NODE_LOST
    (evidence,) = finding.evidence
    assert (evidence.object.name, evidence.text) == (
        "n2",
        "it is not ready: NodeStatusUnknown: Kubelet stopped posting node status.",
    )
    # What ended by itself was not taken away.
    assert not list(disruptions(view(pod(phase="Failed", **ended(1)), pod(1, phase="Running"), nodes=[node()])))


def test_events_tell_of_pods_that_are_gone() -> None:
    for reason, note, cause in (
        ("Preempted", "Preempted by pod 0c1d-22 on node n1", Cause.PREEMPTED),
        ("Evicted", "The node was low on resource: memory.", Cause.EVICTED),
        ("TaintManagerEviction", "Marking for deletion Pod ns/t-node-0-9", Cause.NODE_LOST),
    ):
        finding = found(pod(0), events=[event("Pod", "t-node-0-9", reason, note, warning=False)])
        assert (finding.cause, finding.evidence[0].text) == (cause, f"{reason}: {note}")
