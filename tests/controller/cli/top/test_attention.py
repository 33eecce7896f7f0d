"""Jobs as rows: their order, and what stands in their way."""

from __future__ import annotations

from typing import Any

from support.top import NOW, top_job

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.rows import Trouble, has_words, trouble_of
from trainmaster.controller.cli.top.attention import Attention, Order, attention, ordered
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

JOBS = (
    top_job("done", "Complete", age=9000, ended=10),
    top_job("succeeded", "Succeeded", kind="PyTorchJob", age=9000, ended=20),
    top_job("old-failure", "Failed", age=9000, ended=7200, trouble="OutOfMemory"),
    top_job("new-failure", "Failed", age=9000, ended=100, trouble="OutOfMemory"),
    top_job("newer-failure", "Failed", age=9000, ended=50),
    top_job("runs", age=50, percentage=40),
    top_job("runs-longer", age=500, restarts=2, percentage=90),
    top_job("waits", "Waiting", age=30),
    top_job("waits-longer", "Created", kind="TFJob", age=300),
    top_job("held", "Suspended", trouble="Suspended"),
    top_job("stuck", "Waiting", trouble="Unschedulable", age=100),
    top_job("limps", restarts=1, trouble="ContainerFailed", age=200),
)


def names(order: Order) -> list[str]:
    return [job.name for job in ordered(JOBS, order, NOW)]


def test_what_is_stuck_or_has_just_failed_comes_first_and_what_is_over_last() -> None:
    assert names(Order.ATTENTION) == [
        "limps", "stuck", "newer-failure", "new-failure", "waits-longer", "waits", "runs-longer", "runs", "held",
        "old-failure", "done", "succeeded",
    ]  # fmt: skip
    # A failure is news for an hour.
    assert attention(top_job("a", "Failed", ended=3599), NOW) == Attention.FAILED_LATELY
    assert attention(top_job("a", "Failed", ended=3601), NOW) == Attention.FAILED
    assert attention(top_job("a", "Failed"), NOW) == Attention.FAILED  # nobody knows when


def test_other_orders() -> None:
    assert names(Order.NAME)[:3] == ["done", "held", "limps"]
    assert names(Order.AGE)[0] == "waits"
    assert names(Order.RESTARTS)[:3] == ["runs-longer", "limps", "stuck"]
    assert names(Order.PROGRESS)[:3] == ["runs-longer", "runs", "limps"]


def test_a_filter_looks_at_all_that_is_shown() -> None:
    found = {"": len(JOBS), "failure": 3, "FAILURE outofmemory": 2, "tfjob": 1, "team/runs": 2, "waiting": 2, "none": 0}
    assert {text: sum(has_words(job, text) for job in JOBS) for text in found} == found


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
    return Job({**obj, "status": {"conditions": listed}}, resource)


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
        ((("PluginSkipped", "", ""),), "PluginSkipped", "PluginSkipped"),
        ((("PluginSkipped", "R", "\x1b[2Jclear\x07 \tthe screen"),), "R", "clear the screen"),
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
