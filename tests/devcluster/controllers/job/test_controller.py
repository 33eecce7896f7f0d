"""The Job controller against the API, with hand-set pod statuses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import JOBS, PODS
from trainmaster.devcluster.controllers.control_loop import NO_BACKOFF, ExponentialBackoff
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.devcluster.controllers.job.children import (
    TRACKING_FINALIZER,
    format_indexes,
    parse_indexes,
    parse_ranges,
)
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.runtime.jsontree import JsonObject

INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
def cluster(cluster: Stepper) -> Stepper:
    cluster.start(JobController(cluster.api, pod_backoff=NO_BACKOFF))
    return cluster


def manifest(*, name: str = "train", restart: str = "Never", **spec: Any) -> JsonObject:
    pod = {"restartPolicy": restart, "containers": [{"name": "main", "image": "img", "command": ["true"]}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completionMode": "Indexed", "completions": 1, "template": {"spec": pod}, **spec},
    }


async def create(cluster: Stepper, **spec: Any) -> None:
    await cluster.api.create(JOBS, manifest(**spec), namespace="default")
    await cluster.settle()


async def change(cluster: Stepper, **spec: Any) -> None:
    job = get(cluster)
    await cluster.api.update(JOBS, {**job, "spec": {**job["spec"], **spec}})
    await cluster.settle()


def get(cluster: Stepper) -> JsonObject:
    return cluster.api.get(JOBS, "default", "train")


def status(cluster: Stepper) -> JsonObject:
    found: JsonObject = get(cluster).get("status", {})
    return found


def conditions(cluster: Stepper) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each["reason"]) for each in status(cluster).get("conditions", [])]


def active(cluster: Stepper) -> list[JsonObject]:
    return [
        pod
        for pod in cluster.objects(PODS)
        if pod["status"]["phase"] not in {"Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]
    ]


async def test_an_indexed_pod_is_complete_enough_for_a_kubelet(cluster: Stepper) -> None:
    await create(cluster, completions=2, parallelism=2)
    pod = cluster.objects(PODS)[1]
    job = get(cluster)
    assert pod["metadata"]["name"].startswith("train-1-")
    assert pod["metadata"]["labels"][INDEX] == pod["metadata"]["annotations"][INDEX] == "1"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == job["metadata"]["uid"]
    assert pod["metadata"]["labels"]["job-name"] == "train"
    assert pod["metadata"]["finalizers"] == [TRACKING_FINALIZER]
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert pod["spec"]["hostname"] == "train-1"
    env = pod["spec"]["containers"][0]["env"]
    assert env[0]["name"] == "JOB_COMPLETION_INDEX"
    assert env[0]["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{INDEX}']"
    assert status(cluster)["active"] == 2
    assert status(cluster)["startTime"] == "2026-01-01T00:00:00Z"
    assert "SuccessfulCreate" in cluster.reasons("train")


async def test_success_is_announced_then_final_and_every_pod_released(cluster: Stepper) -> None:
    await create(cluster, completions=3, parallelism=2)
    await cluster.set_pods("Running")
    assert status(cluster)["ready"] == 2
    await cluster.set_pods("Succeeded")
    assert [pod["spec"]["hostname"] for pod in active(cluster)] == ["train-2"]
    assert status(cluster)["completedIndexes"] == "0,1"
    assert conditions(cluster) == []
    await cluster.set_pods("Succeeded")
    assert conditions(cluster) == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    assert status(cluster)["completedIndexes"] == "0-2"
    assert status(cluster)["succeeded"] == 3
    assert "active" not in status(cluster)
    assert "completionTime" in status(cluster)
    assert not [pod for pod in cluster.objects(PODS) if pod["metadata"].get("finalizers")]
    assert "Completed" in cluster.reasons("train")


async def test_a_failed_pod_is_replaced_until_the_backoff_limit(cluster: Stepper) -> None:
    await create(cluster, backoffLimit=1)
    await cluster.set_pods("Failed")
    assert len(active(cluster)) == 1
    assert status(cluster)["failed"] == 1
    await cluster.set_pods("Failed")
    assert conditions(cluster) == [
        ("FailureTarget", "True", "BackoffLimitExceeded"),
        ("Failed", "True", "BackoffLimitExceeded"),
    ]
    assert status(cluster)["conditions"][1]["message"] == "Job has reached the specified backoff limit"
    assert status(cluster)["failed"] == 2
    assert not status(cluster).get("uncountedTerminatedPods")
    assert not [pod for pod in cluster.objects(PODS) if pod["metadata"].get("finalizers")]
    assert "BackoffLimitExceeded" in cluster.reasons("train")


async def test_in_place_restarts_count_towards_the_limit(cluster: Stepper) -> None:
    """With OnFailure, JobSet's default, no pod ever fails by itself."""
    await create(cluster, backoffLimit=2, restart="OnFailure")
    pod = active(cluster)[0]
    await cluster.set_pod(pod, "Running", restarts=1)
    assert conditions(cluster) == []
    await cluster.set_pod(pod, "Running", restarts=2)
    assert conditions(cluster)[-1] == ("Failed", "True", "BackoffLimitExceeded")


async def test_a_pod_that_restarts_in_place_is_active_and_not_ready_meanwhile(cluster: Stepper) -> None:
    """It counts neither as failed nor as another pod."""
    await create(cluster, backoffLimit=5, restart="OnFailure")
    pod = active(cluster)[0]
    shown = []
    for phase, restarts, ready in (("Running", 0, True), ("Running", 0, False), ("Running", 1, True)):
        await cluster.set_pod(pod, phase, restarts=restarts, ready=ready)
        status = get(cluster)["status"]
        shown.append((status.get("active"), status["ready"], status.get("failed")))
    assert shown == [(1, 1, None), (1, 0, None), (1, 1, None)]
    await cluster.set_pod(pod, "Succeeded", restarts=1)
    assert conditions(cluster)[-1][:2] == ("Complete", "True")
    assert "failed" not in get(cluster)["status"]


async def test_replacement_waits_and_the_pause_doubles() -> None:
    cluster, backoff = Stepper(), ExponentialBackoff(base=10, cap=15)
    await cluster.namespace("default")
    cluster.start(JobController(cluster.api, pod_backoff=backoff))
    await create(cluster)
    await cluster.set_pods("Failed")
    await cluster.advance(9)
    assert not active(cluster)
    await cluster.advance(1)
    assert len(active(cluster)) == 1
    await cluster.set_pods("Failed")
    await cluster.advance(14)
    assert not active(cluster), "20 s, capped at 15"
    cluster.stop()
    cluster.start(JobController(cluster.api, pod_backoff=backoff))
    await cluster.settle()
    assert not active(cluster), "a restart does not forget the pause"
    await cluster.advance(1)
    assert len(active(cluster)) == 1


async def bind(cluster: Stepper, pod: JsonObject) -> None:
    await cluster.api.update(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node"}}, subresource="binding")


async def test_the_deadline_ends_the_job_when_its_last_pod_has_ended(cluster: Stepper) -> None:
    """Who sees Failed may start the job anew at once: nothing of the old one may still run."""
    await create(cluster, completions=2, parallelism=2, activeDeadlineSeconds=60)
    pod = active(cluster)[0]
    await bind(cluster, pod)
    await cluster.set_pods("Running")
    await cluster.advance(59)
    assert conditions(cluster) == []
    await cluster.advance(1)
    assert conditions(cluster) == [("FailureTarget", "True", "DeadlineExceeded")]
    assert [each["metadata"]["name"] for each in cluster.objects(PODS)] == [pod["metadata"]["name"]]
    assert status(cluster)["terminating"] == 1
    await cluster.set_pod(pod, "Failed", exit_code=143)
    assert conditions(cluster)[-1] == ("Failed", "True", "DeadlineExceeded")
    assert status(cluster)["failed"] == 2


async def test_suspension_removes_pods_without_counting_them_and_resets_the_clock(cluster: Stepper) -> None:
    await create(cluster, completions=2, parallelism=2, backoffLimit=0, activeDeadlineSeconds=100)
    await cluster.set_pods("Running")
    await change(cluster, suspend=True)
    assert cluster.objects(PODS) == []
    assert conditions(cluster) == [("Suspended", "True", "JobSuspended")]
    assert not status(cluster).keys() & {"active", "failed"}
    assert "startTime" not in status(cluster)
    await cluster.advance(500)
    await change(cluster, suspend=False)
    assert conditions(cluster) == [("Suspended", "False", "JobResumed")]
    assert len(active(cluster)) == 2
    assert status(cluster)["startTime"] == "2026-01-01T00:08:20Z"
    assert {"Suspended", "Resumed"} <= set(cluster.reasons("train"))


async def test_a_deleted_pod_is_a_failure_and_is_replaced(cluster: Stepper) -> None:
    await create(cluster)
    await cluster.delete(PODS, active(cluster)[0]["metadata"]["name"])
    assert len(active(cluster)) == 1
    assert status(cluster)["failed"] == 1


async def test_with_policy_failed_a_pod_is_replaced_only_after_its_end(cluster: Stepper) -> None:
    await create(cluster, podReplacementPolicy="Failed")
    pod = active(cluster)[0]
    await bind(cluster, pod)
    await cluster.set_pods("Running")
    await cluster.delete(PODS, pod["metadata"]["name"])
    assert not active(cluster)
    assert status(cluster)["terminating"] == 1
    await cluster.set_pod(pod, "Failed")
    assert len(active(cluster)) == 1
    assert status(cluster)["failed"] == 1


async def test_time_to_live_deletes_the_finished_job_in_the_foreground(cluster: Stepper) -> None:
    cluster.start(GarbageCollector(cluster.api))
    await create(cluster, ttlSecondsAfterFinished=30)
    await cluster.set_pods("Succeeded")
    await cluster.advance(29)
    assert cluster.exists(JOBS, "train")
    await cluster.advance(1)
    assert not cluster.exists(JOBS, "train")
    assert cluster.objects(PODS) == []


async def test_pods_of_an_orphaning_deletion_lose_the_tracking_finalizer(cluster: Stepper) -> None:
    """Deleting a Job orphans by default; a finalizer that nobody removes would keep its pods for ever."""
    cluster.start(GarbageCollector(cluster.api))
    await create(cluster)
    await cluster.delete(JOBS, "train")
    (pod,) = cluster.objects(PODS)
    assert not pod["metadata"].get("finalizers")
    assert not pod["metadata"].get("ownerReferences")


async def test_a_crash_between_status_and_release_counts_each_failure_once(cluster: Stepper) -> None:
    await create(cluster, backoffLimit=5)
    cluster.stop()
    (pod,) = cluster.objects(PODS)
    job = get(cluster)
    counted = {**job["status"], "active": 0, "uncountedTerminatedPods": {"failed": [pod["metadata"]["uid"]]}}
    await cluster.set_pod(pod, "Failed")
    await cluster.api.update(JOBS, {**job, "status": counted}, subresource="status")
    cluster.start(JobController(cluster.api, pod_backoff=NO_BACKOFF))
    await cluster.settle()
    assert status(cluster)["failed"] == 1
    assert not status(cluster).get("uncountedTerminatedPods")


async def test_non_indexed_jobs_count_successes(cluster: Stepper) -> None:
    await create(cluster, completionMode="NonIndexed", completions=2, parallelism=1)
    await cluster.set_pods("Succeeded")
    assert status(cluster)["succeeded"] == 1
    assert "hostname" not in active(cluster)[0]["spec"]
    await cluster.set_pods("Succeeded")
    assert status(cluster)["succeeded"] == 2
    assert conditions(cluster)[-1] == ("Complete", "True", "CompletionsReached")


async def test_a_work_queue_ends_when_one_pod_succeeded_and_none_runs(cluster: Stepper) -> None:
    job = manifest(completionMode="NonIndexed", parallelism=2)
    del job["spec"]["completions"]
    await cluster.api.create(JOBS, job, namespace="default")
    await cluster.settle()
    first, second = active(cluster)
    await cluster.set_pod(first, "Succeeded")
    assert len(active(cluster)) == 1
    assert conditions(cluster) == []
    await cluster.set_pod(second, "Succeeded")
    assert conditions(cluster)[-1] == ("Complete", "True", "CompletionsReached")


async def test_parallelism_can_shrink_and_grow(cluster: Stepper) -> None:
    await create(cluster, completions=3, parallelism=3)
    await change(cluster, parallelism=1)
    assert [pod["spec"]["hostname"] for pod in active(cluster)] == ["train-0"]
    assert "failed" not in status(cluster)
    await change(cluster, parallelism=2)
    assert [pod["spec"]["hostname"] for pod in active(cluster)] == ["train-0", "train-1"]


async def test_jobs_of_another_controller_are_left_alone(cluster: Stepper) -> None:
    await create(cluster, managedBy="acme.io/jobs")
    assert cluster.objects(PODS) == []
    assert status(cluster) == {}


FAIL_RULE = {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}}
IGNORE_RULE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


async def test_pod_failure_policy_fails_the_job_on_an_exit_code(cluster: Stepper) -> None:
    await create(cluster, podFailurePolicy={"rules": [IGNORE_RULE, FAIL_RULE]})
    pod = active(cluster)[0]
    await cluster.set_pod(pod, "Failed", exit_code=42)
    assert conditions(cluster)[-1] == ("Failed", "True", "PodFailurePolicy")
    assert status(cluster)["conditions"][-1]["message"] == (
        f"Container main for pod default/{pod['metadata']['name']} failed with exit code 42 "
        "matching FailJob rule at index 1"
    )


async def test_pod_failure_policy_ignores_disruptions(cluster: Stepper) -> None:
    await create(cluster, backoffLimit=0, podFailurePolicy={"rules": [IGNORE_RULE, FAIL_RULE]})
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await cluster.set_pod(active(cluster)[0], "Failed", conditions=[disrupted])
    assert "failed" not in status(cluster)
    assert len(active(cluster)) == 1
    await cluster.set_pods("Failed")
    assert conditions(cluster)[-1] == ("Failed", "True", "BackoffLimitExceeded")


async def test_failures_per_index_fail_the_job_when_the_others_are_done(cluster: Stepper) -> None:
    await create(cluster, completions=2, parallelism=2, backoffLimitPerIndex=1)
    first, second = active(cluster)
    await cluster.set_pod(first, "Failed")
    (replacement,) = [pod for pod in active(cluster) if pod["metadata"]["name"] != second["metadata"]["name"]]
    assert replacement["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    await cluster.set_pod(replacement, "Failed")
    assert status(cluster)["failedIndexes"] == "0"
    assert [pod["spec"]["hostname"] for pod in active(cluster)] == ["train-1"]
    await cluster.set_pod(second, "Succeeded")
    assert conditions(cluster) == [("FailureTarget", "True", "FailedIndexes"), ("Failed", "True", "FailedIndexes")]
    assert (status(cluster)["failed"], status(cluster)["succeeded"]) == (2, 1)


async def test_too_many_failed_indexes_stop_the_job_early(cluster: Stepper) -> None:
    await create(cluster, completions=3, parallelism=3, backoffLimitPerIndex=0, maxFailedIndexes=0)
    await cluster.set_pod(active(cluster)[0], "Failed")
    assert conditions(cluster)[-1] == ("Failed", "True", "MaxFailedIndexesExceeded")


async def test_success_policy_ends_the_job_with_its_leader_and_the_rest_has_not_failed(cluster: Stepper) -> None:
    await create(cluster, completions=3, parallelism=3, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    leader, waiting, running = active(cluster)
    await bind(cluster, running)
    await cluster.set_pod(running, "Running")
    await cluster.set_pod(leader, "Succeeded")
    assert waiting["metadata"]["name"] not in {pod["metadata"]["name"] for pod in cluster.objects(PODS)}
    met = ("SuccessCriteriaMet", "True", "SuccessPolicy")
    assert (conditions(cluster), active(cluster)) == ([met], [])
    assert status(cluster)["terminating"] == 1
    await cluster.set_pod(running, "Failed", exit_code=143)
    assert conditions(cluster) == [met, ("Complete", "True", "SuccessPolicy")]
    assert status(cluster)["succeeded"] == 1
    assert "failed" not in status(cluster)


async def test_a_status_has_the_zeros_of_a_real_server_and_no_others(cluster: Stepper) -> None:
    """Clients compare `job.status.failed > 0`, which fails on a real cluster where nothing has failed."""
    await create(cluster, completionMode="NonIndexed")
    assert status(cluster) == {
        "active": 1,
        "ready": 0,
        "startTime": "2026-01-01T00:00:00Z",
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    await cluster.set_pods("Succeeded")
    done = {field: value for field, value in status(cluster).items() if field not in ("conditions", "completionTime")}
    assert done == {
        "ready": 0,
        "startTime": "2026-01-01T00:00:00Z",
        "succeeded": 1,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }


async def test_the_pods_of_a_job_with_a_long_name_keep_their_index(cluster: Stepper) -> None:
    name = "j" * 60
    await create(cluster, name=name, completions=12, parallelism=12)
    names = {pod["spec"]["hostname"]: pod["metadata"]["name"] for pod in active(cluster)}
    assert names.keys() == {f"{name}-{index}" for index in range(12)}
    for hostname, pod_name in names.items():
        index = hostname.removeprefix(f"{name}-")
        assert len(pod_name) == 63
        assert pod_name[:-5] == "j" * (57 - len(index) - 1) + f"-{index}-"


async def test_a_refused_pod_is_told_and_retried(cluster: Stepper) -> None:
    refused = 2

    def refuse(operation: str, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        nonlocal refused
        if operation == "CREATE" and refused:
            refused -= 1
            raise StatusError(403, "Forbidden", "exceeded quota")
        return obj

    cluster.api.add_admission(PODS, refuse)
    await create(cluster)
    assert "active" not in status(cluster)
    assert "FailedCreate" in cluster.reasons("train")
    await cluster.advance(1)
    assert len(active(cluster)) == 1
    assert status(cluster)["active"] == 1


@pytest.mark.parametrize(
    ("indexes", "text"),
    [(set(), ""), ({0}, "0"), ({0, 1}, "0,1"), ({0, 1, 2}, "0-2"), ({0, 2, 3, 4, 7, 8}, "0,2-4,7,8")],
)
def test_the_compressed_form(indexes: set[int], text: str) -> None:
    assert format_indexes(indexes) == text


@given(st.sets(st.integers(min_value=0, max_value=60)))
def test_reading_is_the_inverse_of_writing(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


def test_huge_ranges_are_not_expanded() -> None:
    assert parse_ranges("0-2147483646") == [range(2147483647)]


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1-b"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_indexes(text)
