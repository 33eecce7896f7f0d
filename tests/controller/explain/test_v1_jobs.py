"""Jobs of kubeflow.org/v1: each cause that they can have is found as it is for TrainJobs, in words of their own."""

from dataclasses import replace
from typing import Any

from support.failing_pods import BACKING_OFF, container_status, pod, terminated
from support.job_views import condition, event, pending, pytorchjob, replica, running, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Finding
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject


def has_failed(message: str) -> JsonObject:
    return condition("Failed", "PyTorchJobFailed", message, since=50)


FAILED = has_failed("PyTorchJob demo is failed because 1 Worker replica(s) failed.")
OF_TRAINJOBS = frozenset(
    {Cause.RUNTIME_MISSING, Cause.JOBSET_CONTROLLER_ABSENT, Cause.NO_PROGRESS, Cause.LOG_RULE_BROKEN}
)
"""Jobs of kubeflow.org/v1 have neither runtimes nor JobSets, nor a resilience policy."""


def failing(code: int = 1, said: str = "", reason: str = "Error") -> JsonObject:
    return pod(containers=[container_status(terminated(code, message=said, reason=reason))], phase="Failed")


def held(*states: JsonObject, **fields: Any) -> JsonObject:
    """A pod whose containers wait."""
    return pod(containers=[container_status(state) for state in states], phase="Pending", **fields) | {
        "spec": {"nodeName": "one", "containers": [{"name": "node", "image": "train:1"}]}
    }


def waiting(*pods: JsonObject, job: JsonObject | None = None, **known: Any) -> JobView:
    """A job that does not start: a worker is as is told."""
    others = [replica("master"), *(replica("worker", index) for index in range(1, 3))]
    workers = [replica("worker", 0, each) for each in pods]
    return view(job or pytorchjob(condition("Created", since=1)), pods=[*others, *workers], **known)


def ended(*pods: JsonObject, told: JsonObject = FAILED, **known: Any) -> JobView:
    """A job that has failed."""
    return waiting(*pods, job=pytorchjob(told), **known)


def refused(note: str) -> JobView:
    return waiting(events=[event("FailedCreatePod", f"Error creating: {note}", kind="PyTorchJob")])


def init_failed() -> JobView:
    found = held({"waiting": {"reason": "PodInitializing"}})
    found["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "alpine:3"}]
    found["status"]["initContainerStatuses"] = [
        container_status(BACKING_OFF, last=terminated(1), restarts=1, name="init-pytorch")
    ]
    return waiting(found)


def gang() -> JobView:
    group = {"kind": "PodGroup", "apiVersion": "scheduling.x-k8s.io/v1alpha1", "metadata": {"name": "demo"}}
    return waiting(pod_groups=[{**group, "spec": {"minMember": 4}, "status": {"phase": "Pending"}}])


def mounted() -> JobView:
    found = pending(0, 'persistentvolumeclaim "data" not found')
    found["spec"] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    return waiting(found, claims=[])


def sizes() -> JobView:
    found = running()
    found["spec"] = {"containers": [{"name": "pytorch", "env": [{"name": "PET_NNODES", "value": "3"}]}]}
    return waiting(found, job=pytorchjob(condition("Running")))


def meshed() -> JobView:
    """Its container has ended, and a proxy that was injected before it has not."""
    states = [("mesh-proxy", {"running": {}}), ("pytorch", terminated(0))]
    found = pod(containers=[container_status(state, name=name) for name, state in states], phase="Running")
    job = pytorchjob(condition("Running"))
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {"spec": {"containers": [{"name": "pytorch"}]}}
    return waiting(found, job=job)


def taken(reason: str, **known: Any) -> JobView:
    told = condition("DisruptionTarget", reason, "taken away")
    return ended(pod(containers=[container_status(terminated(137))], phase="Failed", conditions=[told]), **known)


def gone(reason: str, note: str) -> JobView:
    return replace(view(pytorchjob(), events=[event(reason, note, kind="PyTorchJob")]), is_deleted=True)


VIEWS: dict[Cause, JobView] = {
    Cause.REFUSED: refused('admission webhook "deny.acme.io" denied the request: no'),
    Cause.PLUGIN_FAILED: waiting(job=pytorchjob(condition("Blocked", "PluginFailed", "kind acme failed"))),
    Cause.SUSPENDED: waiting(job=pytorchjob(condition("Suspended"), suspend=True)),
    Cause.QUOTA_EXCEEDED: refused("pods is forbidden: exceeded quota: few, requested: pods=1"),
    Cause.GANG_INCOMPLETE: gang(),
    Cause.UNSCHEDULABLE: waiting(pending(0, "0/1 nodes are available: 1 Insufficient cpu.")),
    Cause.VOLUME_PENDING: mounted(),
    Cause.IMAGE_PULL_FAILED: waiting(held({"waiting": {"reason": "ErrImagePull", "message": "not found"}})),
    Cause.CONTAINER_CONFIG_ERROR: waiting(
        held({"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "a" not found'}})
    ),
    Cause.CONTAINER_FAILED: ended(failing(3)),
    Cause.OUT_OF_MEMORY: ended(failing(137, reason="OOMKilled")),
    Cause.EVICTED: taken("EvictionByEvictionAPI"),
    Cause.PREEMPTED: taken("PreemptionByScheduler"),
    Cause.NODE_LOST: taken("DeletionByTaintManager"),
    Cause.DEADLINE_EXCEEDED: ended(
        told=has_failed("Job demo has failed because it was active longer than specified deadline")
    ),
    Cause.INIT_CONTAINER_FAILED: init_failed(),
    Cause.NAME_RESOLUTION_FAILED: ended(failing(1, "socket.gaierror: [Errno -2] Name or service not known")),
    Cause.RENDEZVOUS_TIMEOUT: ended(failing(1, "torch.distributed.DistStoreError: timed out, 1/4 clients joined.")),
    Cause.COLLECTIVE_TIMEOUT: ended(
        failing(1, "DistBackendError: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)")
    ),
    Cause.SIDECAR_RUNNING: meshed(),
    Cause.WORLD_SIZE_MISMATCH: sizes(),
    Cause.MANAGER_ABSENT: view(pytorchjob(), pods=[], leases=[], managers=[]),
    Cause.ANOTHER_MANAGER_LEADS: view(pytorchjob(managedBy="kueue.x-k8s.io/multikueue"), pods=[]),
    Cause.BACKOFF_LIMIT_EXCEEDED: ended(
        told=has_failed("Job demo has failed because it has reached the specified backoff limit")
    ),
    Cause.TIME_TO_LIVE_EXPIRED: gone("SuccessfulDeleteJob", "Deleted job: demo"),
    Cause.UNKNOWN: waiting(held({"waiting": {"reason": "ContainerCreating"}})),
}


def first(of: JobView) -> Finding:
    return explain(of).findings[0]


def test_every_cause_that_such_a_job_can_have_is_found_first_in_words_of_its_own() -> None:
    """Nothing is said of what only TrainJobs have, and names are written out."""
    assert set(VIEWS) == set(Cause) - OF_TRAINJOBS
    words = ("jobset", "JobSet", "spec.trainer", "spec.initializer", "runtimePatches", "JOB")
    for cause, known in VIEWS.items():
        found = first(known)
        assert found.cause is cause, [(each.cause, each.evidence) for each in explain(known).findings]
        said = "\n".join([*found.what_next, *(each.text for each in found.evidence)])
        assert not [word for word in words if word in said], cause


def test_of_pods_that_are_gone_the_exit_code_is_told_of_who_failed_by_itself() -> None:
    # Of pods that are gone the exit code is told of who failed by itself. Its controller deletes what runs when a job
    # has failed, and what it replaces.
    notes = ("worker-1 exited with code 3", "worker-0 exited with code 143", "master-0 exited with code 0")
    events = [event("ExitedWithCode", f"Pod: team.demo-{each}", kind="PyTorchJob") for each in notes]
    found = first(view(pytorchjob(FAILED), pods=[], events=events))
    assert (found.cause, str(found.evidence[0].object)) == (Cause.CONTAINER_FAILED, "Pod demo-worker-1")
    assert found.evidence[0].text == "exited with code 3, and is gone"
    assert "runPolicy.cleanPodPolicy: None" in found.what_next[1]
    # Where nobody tells a code the words of the status have to do.
    found = first(view(pytorchjob(FAILED), pods=[], events=[]))
    assert (found.cause, found.evidence[0].text) == (Cause.CONTAINER_FAILED, FAILED["message"])


def test_that_a_manager_is_absent_does_not_follow_from_pods_that_may_not_be_seen() -> None:
    assert all(each.cause is not Cause.MANAGER_ABSENT for each in explain(view(pytorchjob(), leases=[])).findings)
