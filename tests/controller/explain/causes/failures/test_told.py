"""Failures of pods that are gone, by what the manager told of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.pod_views import node, pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.told import told_by_manager


@pytest.mark.parametrize(
    ("reason", "line", "cause"),
    [
        (
            "OOMKilled",
            "rank 1 (pod p, container node) failed at T with exit code 137 (OOMKilled: x)",
            Cause.OUT_OF_MEMORY,
        ),
        (
            "Error",
            "rank 1 (pod p, container node) failed at T with exit code 1: gaierror: Name or service not known",
            Cause.NAME_RESOLUTION_FAILED,
        ),
        (
            "Error",
            "dataset-initializer (pod p, container dataset-initializer) failed with exit code 1: x",
            Cause.INIT_CONTAINER_FAILED,
        ),
        ("Error", "rank 1 (pod p, container node) failed with exit code 3: ValueError: no", Cause.CONTAINER_FAILED),
    ],
)
def test_of_pods_that_are_gone_the_condition_tells(reason: str, line: str, cause: Cause) -> None:
    message = f"attempt 0: older\nattempt 1: {line}"
    condition = {"type": "ContainerFailed", "status": "True", "reason": reason, "message": message}
    (finding,) = told_by_manager(view(pod(0), conditions=[condition], nodes=[node()]))
    assert finding.cause is cause
    assert finding.evidence[0].text.endswith(line.removeprefix("rank 1 "))


def test_an_init_container_is_known_by_the_jobset() -> None:
    template = {"spec": {"initContainers": [{"name": "fetch"}], "containers": [{"name": "node"}]}}
    replicated_job = {"name": "node", "template": {"spec": {"template": template}}}
    jobset = {"metadata": {"name": "t", "namespace": "ns"}, "spec": {"replicatedJobs": [replicated_job]}}
    message = "attempt 0, restart 3: node (pod p, container fetch) failed with exit code 3: 403 Forbidden"
    condition = {"type": "ContainerFailed", "status": "True", "reason": "ContainerFailed", "message": message}
    (finding,) = told_by_manager(view(conditions=[condition], jobsets=[jobset]))
    assert finding.cause is Cause.INIT_CONTAINER_FAILED
    assert finding.what_next[0] == "give fetch a token that may read what it fetches: spec.initializer, secretRef"


def test_a_log_that_is_gone_with_its_pod_is_not_to_be_read() -> None:
    message = "attempt 0: rank 1 (pod p, container node) failed with exit code 3: ValueError: no"
    condition = {"type": "ContainerFailed", "status": "True", "reason": "ContainerFailed", "message": message}
    (finding,) = told_by_manager(view(conditions=[condition]))
    assert finding.what_next == [
        "its pod is gone, and its log too: run it again, and follow it: trainmaster restart t -n ns"
    ]


def test_where_the_log_is_depends_on_whether_the_pods_are_gone() -> None:
    message = "attempt 0: rank 1 (pod p, container node) failed with exit code 3: ValueError: no"
    told = {"type": "ContainerFailed", "status": "True", "reason": "ContainerFailed", "message": message}
    (finding,) = told_by_manager(replace(view(conditions=[told]), pods=None))
    assert finding.what_next == ["read its log: trainmaster logs t -n ns"]
    (finding,) = told_by_manager(replace(view(conditions=[told]), is_deleted=True))
    assert finding.what_next == ["its pod is gone, and its log too: run it again, and follow it"]
