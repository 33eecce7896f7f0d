"""Pods of a higher priority take the place of others; and of these no more than they need."""

from __future__ import annotations

from typing import Any

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import add_node

from trainmaster.devcluster.apiserver.admission.plugins import priority
from trainmaster.devcluster.apiserver.resources import EVENTS, PODS, PRIORITY_CLASSES
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    for name in ("n1", "n2"):
        await add_node(cluster, name, {"cpu": "4", "pods": "10"})
    for name, value, policy in (("low", 1, None), ("high", 100, None), ("polite", 100, "Never")):
        body = {"metadata": {"name": name}, "value": value, **({"preemptionPolicy": policy} if policy else {})}
        await cluster.api.create(PRIORITY_CLASSES, body)
    cluster.api.add_admission(PODS, priority.pod_admission(cluster.api))
    cluster.start(Scheduler(cluster.api))
    return cluster


async def create(cluster: Stepper, name: str, cpu: str, of_class: str = "low", **spec: Any) -> JsonObject:
    container = {"name": "main", "image": "img", "resources": {"requests": {"cpu": cpu}}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], "priorityClassName": of_class, **spec}}
    created = await cluster.api.create(PODS, body, namespace="default")
    await cluster.settle()
    return created


def deleted(cluster: Stepper) -> list[str]:
    return sorted(p["metadata"]["name"] for p in cluster.objects(PODS) if "deletionTimestamp" in p["metadata"])


async def test_as_few_as_possible_make_room_and_the_one_that_waits_follows_them(cluster: Stepper) -> None:
    for name, cpu in (("a", "3"), ("b", "4"), ("c", "1")):
        await create(cluster, name, cpu)
    urgent = await create(cluster, "urgent", "3", "high")
    assert deleted(cluster) == ["a"]
    victim = cluster.api.get(PODS, "default", "a")
    condition = next(each for each in victim["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
    assert condition["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    told = next(each for each in cluster.objects(EVENTS) if each["reason"] == "Preempted")
    assert told["message"] == f"Preempted by pod {urgent['metadata']['uid']} on node n1"
    waiting = cluster.api.get(PODS, "default", "urgent")
    assert (waiting["status"]["nominatedNodeName"], waiting["spec"].get("nodeName")) == ("n1", None)
    await cluster.settle()
    assert deleted(cluster) == ["a"], "nobody else goes while the first is on the way out"
    await cluster.end_pod(victim)
    assert cluster.api.get(PODS, "default", "urgent")["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("cpu", "of_class", "spec"),
    [("4", "polite", {}), ("5", "high", {}), ("4", "low", {}), ("4", "high", {"nodeSelector": {"disk": "ssd"}})],
    ids=["it may not preempt", "it fits nowhere", "it is no more important", "it selects another node"],
)
async def test_nobody_goes_where_that_does_not_help(
    cluster: Stepper, cpu: str, of_class: str, spec: dict[str, Any]
) -> None:
    await create(cluster, "a", "4")
    await create(cluster, "b", "4")
    await create(cluster, "waits", cpu, of_class, **spec)
    assert deleted(cluster) == []
    assert "nominatedNodeName" not in cluster.api.get(PODS, "default", "waits")["status"]
