"""Pods that no node can take, with what is in the way, and pods that the cluster took away, with who did it."""

from typing import Any

import pytest
from support.pod_views import THEN, ended, event, node, pod, unscheduled, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.disruptions import disruptions
from trainmaster.controller.explain.causes.pods.scheduling import unschedulable
from trainmaster.controller.explain.findings import Certainty, Finding
from trainmaster.controller.job_fields import MADE_BY_RUN
from trainmaster.runtime.jsontree import JsonObject

TAIL = " preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def asking(name: str, amount: str) -> JsonObject:
    return {"containers": [{"name": "node", "image": "i", "resources": {"requests": {name: amount}}}]}


def found(spec: JsonObject, message: str, *nodes: JsonObject, pods: int = 1) -> Finding:
    waiting = [pod(rank, spec=spec, **unscheduled(message)) for rank in range(pods)]
    (finding,) = unschedulable(view(*waiting, nodes=list(nodes)))
    assert (finding.cause, finding.certainty) == (Cause.UNSCHEDULABLE, Certainty.CERTAIN)
    assert finding.since is not None
    return finding


def test_how_much_is_missing_on_the_largest_node() -> None:
    message = "0/2 nodes are available: 2 Insufficient cpu." + TAIL
    finding = found(asking("cpu", "6"), message, node("small"), node("n2"), pods=4)
    assert [each.text for each in finding.evidence] == [
        f"rank 0 and 3 others: {message}",
        "it is the largest node and has 4 of cpu: 2 too little for a pod",
    ]
    assert finding.what_next == [
        "ask for at most 2 of cpu for each of its 4 pods (spec.trainer.resourcesPerNode), or add larger nodes"
    ]
    # A resource that others use.
    finding = found(asking("memory", "12Gi"), "0/1 nodes are available: 1 Insufficient memory.", node())
    assert (
        finding.evidence[1].text
        == "it asks for 12Gi of memory; the largest node has 16Gi, of which other pods use too much"
    )
    # A job that is wider than the cluster waits for nobody.
    message = "0/1 nodes are available: 1 Insufficient cpu."
    finding = found(asking("cpu", "3"), message, node(), pods=3)
    assert finding.evidence[1].text == (
        "its 3 pods ask for 3 of cpu each; all nodes together have 4, room for 1 of them"
    )
    assert finding.what_next == [
        (
            "take at most 1 node for the job (spec.trainer.numNodes), ask for at most 1333m of cpu for each of its 3 "
            "pods (spec.trainer.resourcesPerNode), or add nodes to the cluster"
        )
    ]
    # Of a job that `run` made, nobody has written the fields.
    made = {**view().object, "metadata": {**view().metadata, "labels": MADE_BY_RUN}}
    waiting = [pod(rank, spec=asking("cpu", "3"), **unscheduled(message)) for rank in range(3)]
    (finding,) = unschedulable(view(*waiting, nodes=[node()], job=made))
    assert "for the job (--nodes of trainmaster run), ask for" in finding.what_next[0]
    assert "of its 3 pods (--cpus of trainmaster run), or" in finding.what_next[0]
    # What is left on one node is of no use to a pod that would take a part of it from another one.
    finding = found(asking("cpu", "3"), message, node(), node("n2"), pods=3)
    assert "ask for at most 2 of cpu for each of its 3 pods" in finding.what_next[0]
    finding = found(asking("memory", "9Gi"), "0/1 nodes are available: 1 Insufficient memory.", node(), pods=2)
    assert "ask for at most 8Gi of memory for each of its 2 pods" in finding.what_next[0]
    # The label that no node has.
    message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    finding = found({"containers": [], "nodeSelector": {"gpu": "a100"}}, message, node(labels={"gpu": "t4"}))
    assert finding.evidence[1].text == "it selects nodes by gpu=a100; nodes have gpu=t4"
    assert "kubectl label node n1 gpu=a100" in finding.what_next[0]
    # Several obstacles are all told.
    message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    finding = found(asking("cpu", "9"), message, node(), node("n2", unschedulable=True))
    assert len(finding.what_next) == 2
    assert "let it take pods again: kubectl uncordon n2" in finding.what_next


@pytest.mark.parametrize(
    "words", ["node(s) had untolerated taint {dedicated: ml}", "node(s) had untolerated taint(s)"], ids=["1.33", "1.34"]
)
def test_taints_are_named_also_where_the_scheduler_does_not(words: str) -> None:
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    tolerated = {"key": "spot", "effect": "NoSchedule"}
    spec = {"containers": [], "tolerations": [{"key": "spot", "operator": "Exists"}]}
    finding = found(spec, f"0/1 nodes are available: 1 {words}.", node(taints=[taint, tolerated]))
    assert finding.evidence[1].text == "it has the taint dedicated=ml:NoSchedule, which the pods do not tolerate"
    assert finding.what_next == [
        "tolerate dedicated=ml:NoSchedule in the pods, or remove it: kubectl taint nodes n1 dedicated=ml:NoSchedule-"
    ]


def test_the_words_of_the_scheduler_stay_without_nodes_and_where_only_an_event_has_them() -> None:
    message = "0/3 nodes are available: 3 Insufficient cpu."
    (finding,) = unschedulable(view(pod(spec=asking("cpu", "9"), **unscheduled(message))))
    assert [each.text for each in finding.evidence] == [f"rank 0: {message}"]
    assert finding.what_next
    # The event tells where the condition does not.
    told = event("Pod", "t-node-0-0", "FailedScheduling", "0/1 nodes are available: 1 Too many pods.")
    (finding,) = unschedulable(view(pod(), events=[told], nodes=[node()]))
    assert "Too many pods" in finding.evidence[0].text


def test_what_is_another_cause_or_none() -> None:
    others: list[tuple[dict[str, Any], JsonObject]] = [
        (unscheduled('0/1 nodes are available: persistentvolumeclaim "data" not found.'), {}),
        (unscheduled("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."), {}),
        (unscheduled("3/0 tasks in gang unschedulable: pod group is not ready, 3 minAvailable"), {}),
        (unscheduled("0/1 nodes are available: cannot find enough sibling pods, current pods number: 1."), {}),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}, {}),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, {}),
        ({}, {"nodeName": "n1"}),
        ({}, {}),
    ]
    for status, spec in others:
        assert not list(unschedulable(view(pod(spec=spec, **status), nodes=[node()])))


def test_a_pod_that_is_deleted_or_runs_is_not_waited_for() -> None:
    leaving = pod(**unscheduled("0/1 nodes are available: 1 Too many pods."))
    leaving["metadata"]["deletionTimestamp"] = "2026-11-23T11:59:00Z"
    running = pod(1, phase="Running", **unscheduled("0/1 nodes are available: 1 Too many pods."))
    assert not list(unschedulable(view(leaving, running, nodes=[node()])))


def test_a_pod_that_would_fit_alone_waits_for_its_gang() -> None:
    group = {"kind": "PodGroup", "metadata": {"name": "t", "namespace": "ns"}}
    for amount, message, is_found in (
        ("3", "0/1 nodes are available: 1 Insufficient cpu.", False),
        ("9", "0/1 nodes are available: 1 Insufficient cpu.", True),
        ("3", "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.", True),
        ("3", "0/1 nodes are available: resource in cluster is overused.", False),
    ):
        waits = pod(spec=asking("cpu", amount), **unscheduled(message))
        assert bool(list(unschedulable(view(waits, nodes=[node()], pod_groups=[group])))) is is_found
        assert list(unschedulable(view(waits, nodes=[node()], pod_groups=[])))


def test_of_a_gang_whose_group_or_nodes_nobody_read_a_lack_of_room_is_not_known() -> None:
    waits = pod(spec=asking("cpu", "9"), **unscheduled("0/1 nodes are available: 1 Insufficient cpu."))
    group = {"kind": "PodGroup", "metadata": {"name": "t", "namespace": "ns"}}
    assert not list(unschedulable(view(waits, pod_groups=[group])))
    assert list(unschedulable(view(waits)))
    waits["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "t"}
    assert not list(unschedulable(view(waits)))
    assert not list(unschedulable(view(waits, nodes=[node()])))


def test_what_no_node_has_is_told_also_while_the_scheduler_speaks_of_a_volume_only() -> None:
    message = '0/1 nodes are available: persistentvolumeclaim "imagenet" not found.'
    waits = pod(spec=asking("nvidia.com/gpu", "9"), **unscheduled(message))
    (finding,) = unschedulable(view(waits, nodes=[node()]))
    assert (finding.cause, finding.certainty) == (Cause.UNSCHEDULABLE, Certainty.LIKELY)
    assert [each.text for each in finding.evidence] == ["it asks for 9 of nvidia.com/gpu, which no node has"]
    assert not list(unschedulable(view(pod(spec=asking("cpu", "4"), **unscheduled(message)), nodes=[node()])))


UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
DRAINED = {"key": "maintenance", "effect": "NoExecute"}


def target(reason: str, message: str) -> JsonObject:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"conditions": [{**condition, "lastTransitionTime": THEN}]}


def taken_away(*pods: JsonObject, **known: Any) -> Finding:
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
    finding = taken_away(leaving, nodes=[node()])
    assert (finding.cause, finding.evidence[0].text) == (cause, f"node 1: {reason}: so it is")
    assert finding.since is not None


def test_a_taint_tells_whether_the_node_is_lost() -> None:
    spec = {"containers": [], "nodeName": "n1"}
    told = target("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
    leaving = pod(phase="Failed", spec=spec, **told)
    assert taken_away(leaving, nodes=[node(ready="Unknown", taints=[UNREACHABLE])]).cause is Cause.NODE_LOST
    assert taken_away(leaving, nodes=[node(taints=[DRAINED])]).cause is Cause.EVICTED


def test_pressure_on_a_node_and_a_node_that_does_not_answer_are_named() -> None:
    # Pressure on a node names the resource.
    message = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 512Mi."
    evicted = pod(phase="Failed", reason="Evicted", message=message, **target("TerminationByKubelet", message))
    finding = taken_away(evicted)
    assert finding.cause is Cause.EVICTED
    assert message in finding.evidence[0].text
    assert "ephemeral-storage" in finding.what_next[0]
    # A node that does not answer.
    running = pod(2, phase="Running", spec={"containers": [], "nodeName": "n2"})
    finding = taken_away(running, nodes=[node(), node("n2", ready="Unknown"), node("n3", ready="Unknown")])
    assert finding.cause is Cause.NODE_LOST
    (evidence,) = finding.evidence
    assert (evidence.object.name, evidence.text) == (
        "n2",
        "it is not ready: NodeStatusUnknown: Kubelet stopped posting node status.",
    )
    # An embedded cluster tells of pods that are gone.
    gone = pod(phase="Running", **target("EvictionByEvictionAPI", "Eviction API: evicting"))
    assert taken_away(former_pods=[gone]).cause is Cause.EVICTED
    # What ended by itself was not taken away.
    assert not list(disruptions(view(pod(phase="Failed", **ended(1)), pod(1, phase="Running"), nodes=[node()])))


def test_events_tell_of_pods_that_are_gone() -> None:
    for reason, note, cause in (
        ("Preempted", "Preempted by pod 0c1d-22 on node n1", Cause.PREEMPTED),
        ("Evicted", "The node was low on resource: memory.", Cause.EVICTED),
        ("TaintManagerEviction", "Marking for deletion Pod ns/t-node-0-9", Cause.NODE_LOST),
    ):
        finding = taken_away(pod(0), events=[event("Pod", "t-node-0-9", reason, note, warning=False)])
        assert (finding.cause, finding.evidence[0].text) == (cause, f"{reason}: {note}")
