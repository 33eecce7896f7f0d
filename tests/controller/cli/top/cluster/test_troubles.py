"""What stands in the way of a job."""

from __future__ import annotations

from typing import Any

from support.top import NOW

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.top.cluster.troubles import Trouble, trouble_of
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

CREATED = "2026-01-02T11:00:00Z"
PYTORCHJOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
FAILED = ("Failed", "FailedJobs", "jobset failed due to one or more job failures")
TOLD = "attempt 0: rank 1 (pod demo-1, container node) failed at 2026-01-02T11:30:00Z with exit code 1: out of disk"
CONTAINER = ("ContainerFailed", "Error", TOLD)


def job(*conditions: tuple[str, str, str], resource: Resource = TRAINJOBS, **spec: Any) -> Job:
    listed = [
        {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": CREATED}
        for kind, reason, message in conditions
    ]
    metadata = {"name": "demo", "namespace": "team", "uid": "1", "creationTimestamp": CREATED}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
    return Job(resource, {**obj, "status": {"conditions": listed}})


def pod(**status: Any) -> JsonObject:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": "1"}
    metadata = {"name": "demo-1", "namespace": "team", "uid": "p", "creationTimestamp": CREATED, "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [{"name": "node"}]}, "status": status}


def trouble(of: Job, *pods: JsonObject) -> Trouble | None:
    return trouble_of(of, pods=pods, jobset=None, now=NOW)


def test_a_condition_is_told_by_the_cause_that_explain_gives_it_or_as_it_is() -> None:
    for conditions, cause, text in (
        ((FAILED,), "FailedJobs", FAILED[2]),
        ((("Failed", "OddReason", "too long\na story"),), "OddReason", "too long a story"),
        ((("Suspended", "Suspended", "TrainJob is suspended"),), "Suspended", "TrainJob is suspended"),
        ((("Odd", "", ""),), "Odd", "Odd"),
        ((("Odd", "R", "\x1b[2Jclear\x07 \tthe screen"),), "R", "clear the screen"),
    ):
        assert trouble(job(*conditions)) == Trouble(cause, text)
    for known, named in (
        ((("Blocked", "RuntimeNotFound", "no runtime of this name"),), Cause.RUNTIME_MISSING),
        ((FAILED, CONTAINER), Cause.CONTAINER_FAILED),
        ((CONTAINER,), Cause.CONTAINER_FAILED),
    ):
        found = trouble(job(*known))
        assert found is not None
        assert found.cause == named
        assert found.text


def test_a_job_that_runs_or_is_complete_has_none() -> None:
    assert trouble(job(), pod(phase="Running")) is None
    assert trouble(job(("Complete", "AllJobsCompleted", "done"), CONTAINER)) is None
    running = job(("Created", "C", ""), ("Running", "R", ""), resource=PYTORCHJOBS)
    assert trouble(running) is None
    assert trouble(job(("Succeeded", "S", ""), resource=PYTORCHJOBS)) is None


def test_a_pod_that_waits_tells_it_unless_it_is_about_to_start() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    found = trouble(job(), pod(phase="Pending", conditions=[unscheduled]))
    assert found is not None
    assert "0/3 nodes" in found.text
    waiting = {"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    found = trouble(job(), pod(phase="Pending", containerStatuses=[waiting]))
    assert found is not None
    assert "no such image" in found.text
    # A pod that is about to start is no trouble.
    creating = {"name": "node", "state": {"waiting": {"reason": "ContainerCreating"}}}
    assert trouble(job(), pod(phase="Pending", containerStatuses=[creating])) is None
    assert trouble(job(), pod(phase="Pending")) is None
    # What is told of something else than the job and its pods names it.
    missing = '0/1 nodes are available: persistentvolumeclaim "imagenet" not found.'
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": missing}
    waits = pod(phase="Pending", conditions=[scheduled])
    waits["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}}]
    assert trouble(job(), waits) == Trouble("VolumePending", "PersistentVolumeClaim imagenet: it does not exist")
