"""Ranks that are told different numbers of ranks, or another number than there are pods."""

from __future__ import annotations

import pytest
from support.pod_views import pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.world_size import world_size_mismatch
from trainmaster.runtime.jsontree import JsonObject


def told(rank: int, **variables: str) -> JsonObject:
    env: list[JsonObject] = [{"name": name, "value": value} for name, value in variables.items()]
    env.append({"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    return pod(rank, phase="Running", spec={"containers": [{"name": "node", "image": "i", "env": env}]})


def jobset(nodes: int) -> JsonObject:
    job = {"name": "node", "replicas": 1, "template": {"spec": {"parallelism": nodes}}}
    return {"kind": "JobSet", "metadata": {"name": "t", "namespace": "ns"}, "spec": {"replicatedJobs": [job]}}


def test_ranks_that_disagree_with_each_other_or_with_the_number_of_pods() -> None:
    # Ranks that disagree.
    pods = [told(0, WORLD_SIZE="4"), told(1, WORLD_SIZE="4"), told(2, WORLD_SIZE="2")]
    (finding,) = world_size_mismatch(view(*pods))
    assert finding.cause is Cause.WORLD_SIZE_MISMATCH
    assert finding.evidence[0].text == "WORLD_SIZE=4 in rank 0 and 1 other; WORLD_SIZE=2 in rank 2"
    assert "WORLD_SIZE" in finding.what_next[0]
    # Another number than there are pods.
    (finding,) = world_size_mismatch(view(told(0, PET_NNODES="4"), told(1, PET_NNODES="4"), jobsets=[jobset(2)]))
    assert finding.evidence[0].text == "PET_NNODES=4 in rank 0 and 1 other, while the job has 2 pods that train"


@pytest.mark.parametrize("nodes", ["2", "1:4", "$(NODES)"])
def test_what_agrees_or_is_a_range_is_as_it_should_be(nodes: str) -> None:
    pods = [told(rank, PET_NNODES=nodes, WORLD_SIZE="2") for rank in range(2)]
    assert not list(world_size_mismatch(view(*pods, jobsets=[jobset(2)])))


def test_pods_of_an_attempt_that_is_over_are_not_compared() -> None:
    old = told(0, WORLD_SIZE="2")
    old["metadata"]["deletionTimestamp"] = "2026-11-23T11:59:00Z"
    assert not list(world_size_mismatch(view(old, told(0, WORLD_SIZE="4"), told(1, WORLD_SIZE="4"))))
