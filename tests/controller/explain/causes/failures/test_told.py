"""Failures of pods that are gone, by what the manager told of them."""

from dataclasses import replace

from support.pod_views import pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.told import told_by_manager

ALL = "trainmaster logs t --all -n ns"


def test_an_init_container_is_known_by_the_jobset() -> None:
    template = {"spec": {"initContainers": [{"name": "fetch"}], "containers": [{"name": "node"}]}}
    replicated_job = {"name": "node", "template": {"spec": {"template": template}}}
    jobset = {"metadata": {"name": "t", "namespace": "ns"}, "spec": {"replicatedJobs": [replicated_job]}}
    message = "attempt 0, restart 3: node (pod p, container fetch) failed with exit code 3: 403 Forbidden"
    condition = {"type": "ContainerFailed", "status": "True", "reason": "ContainerFailed", "message": message}
    (finding,) = told_by_manager(view(conditions=[condition], jobsets=[jobset]))
    assert finding.cause is Cause.INIT_CONTAINER_FAILED
    assert finding.what_next[0] == "give fetch a token that may read what it fetches: spec.initializer, secretRef"


def test_where_the_log_is_depends_on_whether_the_pods_are_gone() -> None:
    done = "rank 0 ended first, with exit code 0"
    message = (
        f"attempt 0: older\nattempt 1: {done}; rank 1 (pod p, container node) failed with exit code 3: ValueError: no"
    )
    told = {"type": "ContainerFailed", "status": "True", "reason": "ContainerFailed", "message": message}
    gone = "its pod is gone, and its log too: run it again, and follow it"
    for known, what_next in (
        ({}, f"{gone}: trainmaster restart t -n ns"),
        ({"pods": None}, "read its log: trainmaster logs t -n ns"),
        ({"is_deleted": True}, gone),
        ({"former_pods": [pod(1)]}, f"read its log (of an earlier attempt with --attempt N): {ALL}"),
    ):
        (finding,) = told_by_manager(replace(view(conditions=[told]), **known))
        assert (finding.cause, finding.what_next) == (Cause.CONTAINER_FAILED, [what_next])
        assert finding.evidence[0].text.endswith(
            f"{done}; rank 1 (pod p, container node) failed with exit code 3: ValueError: no"
        )
