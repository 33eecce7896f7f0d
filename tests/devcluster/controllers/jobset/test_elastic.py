"""Elastic JobSets and restarts, as recorded with JobSet 0.12; the names are those of the recording.

Not offered, and so not here: J10 to J12 and J21 (gates InPlaceRestart and RestartJob), J15 (WorkloadWithJob). J5, J6,
J9 and J13 are in the tests of the controller, J14 in those of the webhooks; J7 is about Jobs.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.devcluster.jobsets import change, conditions, create, finish, get, replicated, start, status
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.admission.plugins.workload import job_admission
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry import workload
from trainmaster.devcluster.apiserver.resources import CRDS, JOBS, JOBSETS, PODS, WORKLOAD_POD_GROUPS
from trainmaster.runtime.jsontree import JsonObject, copy_tree

INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
async def cluster(cluster: Stepper, jobset_definition: JsonObject, elastic: bool) -> Stepper:
    await cluster.api.create(CRDS, jobset_definition)
    start(cluster, elastic=elastic)
    return cluster


@pytest.fixture
def elastic() -> bool:
    """Whether JobSets may change their size."""
    return True


def resized(cluster: Stepper, **size: Any) -> JsonObject:
    """The JobSet with another size of its Job, and perhaps another image."""
    obj: JsonObject = copy_tree(get(cluster))
    spec = obj["spec"]["replicatedJobs"][0]["template"]["spec"]
    image = size.pop("image", None)
    if image:
        spec["template"]["spec"]["containers"][0]["image"] = image
    spec.update(size)
    for name in [name for name, value in size.items() if value is None]:
        del spec[name]
    return obj


async def test_an_elastic_jobset_grows_and_shrinks_without_a_restart(cluster: Stepper) -> None:
    """J2 and J23 of what was recorded with JobSet 0.12: the pods that stay are not touched, the highest indexes go."""

    async def run_all() -> dict[str, str]:
        for pod in cluster.objects(PODS):
            if pod["status"]["phase"] == "Pending":
                await cluster.set_pod(pod, "Running")
        return {
            pod["metadata"]["labels"][INDEX]: pod["metadata"]["uid"]
            for pod in cluster.objects(PODS)
            if "deletionTimestamp" not in pod["metadata"]
        }

    await create(cluster, replicated(pods=2))
    before, pods = cluster.objects(JOBS)[0]["metadata"]["uid"], await run_all()
    for size in (4, 1, 2):
        await cluster.api.update(JOBSETS, resized(cluster, parallelism=size, completions=size))
        await cluster.settle()
        now = await run_all()
        assert list(now) == [str(index) for index in range(size)]
        assert now["0"] == pods["0"]
    [job] = cluster.objects(JOBS)
    assert job["metadata"]["uid"] == before
    await cluster.api.update(JOBS, {**job, "spec": {**job["spec"], "parallelism": 1, "completions": 1}})
    await cluster.settle()
    assert cluster.objects(JOBS)[0]["spec"]["completions"] == 2
    assert not {"restarts"} & {name for name, value in status(cluster).items() if value}
    await run_all()
    await finish(cluster, "js-node-0")
    assert conditions(cluster)["Completed"] == ("True", "AllJobsCompleted")
    with pytest.raises(StatusError, match="Forbidden: Cannot mutate parallelism or completions when JobSet is in a te"):
        await cluster.api.update(JOBSETS, resized(cluster, parallelism=3, completions=3))


@pytest.mark.parametrize(
    ("elastic", "size", "told"),
    [
        (False, {"parallelism": 3, "completions": 3}, "spec.replicatedJobs: Invalid value"),
        (True, {"parallelism": 3}, "template.spec.completions: Invalid value: 2: completions must be equal to paral"),
        (True, {"parallelism": 0, "completions": 0}, "parallelism: Invalid value: 0: parallelism must be >= 1, spec"),
        (True, {"parallelism": 3, "completions": 3, "image": "other"}, "field is immutable"),
        (True, {"parallelism": 3, "completions": None}, ""),
    ],
)
async def test_which_sizes_are_refused(cluster: Stepper, size: JsonObject, told: str) -> None:
    """J1, J2 and J22."""
    await create(cluster, replicated(pods=2))
    if told:
        with pytest.raises(StatusError) as refusal:
            await cluster.api.update(JOBSETS, resized(cluster, **size))
        assert told in refusal.value.message
        return
    await cluster.api.update(JOBSETS, resized(cluster, **size))
    await cluster.settle()
    assert cluster.objects(JOBS)[0]["spec"]["parallelism"] == 2


async def resize(cluster: Stepper, size: int) -> None:
    await cluster.api.update(JOBSETS, resized(cluster, parallelism=size, completions=size))
    await cluster.settle()


def indexes(cluster: Stepper, *, terminating: bool = False) -> list[str]:
    """The indexes of the pods there are, without those that are on their way out unless asked for."""
    pods = [pod for pod in cluster.objects(PODS) if terminating or "deletionTimestamp" not in pod["metadata"]]
    return sorted(pod["metadata"]["labels"][INDEX] for pod in pods)


async def place(cluster: Stepper) -> None:
    """Bind and start all pods, so that they take their time to end."""
    for pod in cluster.objects(PODS):
        if not pod["spec"].get("nodeName"):
            bound = {**pod, "spec": {**pod["spec"], "nodeName": "node"}}
            await cluster.api.update(PODS, bound, subresource="binding")
    await cluster.set_pods("Running")


async def test_j3_a_succeeded_index_above_the_new_size_is_forgotten(cluster: Stepper) -> None:
    await create(cluster, replicated(pods=4))
    for number in (0, 3):
        await cluster.set_pod(cluster.objects(PODS)[number], "Succeeded")
    [job] = cluster.objects(JOBS)
    assert (job["status"]["completedIndexes"], job["status"]["succeeded"]) == ("0,3", 2)
    await resize(cluster, 2)
    [job] = cluster.objects(JOBS)
    assert (job["status"]["completedIndexes"], job["status"]["succeeded"]) == ("0", 1)
    await finish(cluster, "js-node-0")
    assert conditions(cluster) == {"Completed": ("True", "AllJobsCompleted")}


async def test_j4_every_job_gets_the_size_also_while_suspended_and_after_a_restart(cluster: Stepper) -> None:
    def sizes() -> list[int]:
        return [job["spec"]["completions"] for job in cluster.objects(JOBS)]

    await create(cluster, replicated(replicas=2, pods=2), failurePolicy={"maxRestarts": 1})
    await resize(cluster, 3)
    assert (sizes(), len(cluster.objects(PODS))) == ([3, 3], 6)
    await change(cluster, suspend=True)
    await resize(cluster, 1)
    assert (sizes(), cluster.objects(PODS)) == ([1, 1], [])
    await change(cluster, suspend=False)
    await finish(cluster, "js-node-0", "Failed")
    assert (sizes(), status(cluster)["restarts"]) == ([1, 1], 1)


async def test_j8_recreate_starts_a_job_beside_the_last_pods_of_another(cluster: Stepper) -> None:
    await create(cluster, replicated("a"), replicated("b"), failurePolicy={"maxRestarts": 1})
    await place(cluster)
    await finish(cluster, "js-a-0", "Failed")
    names = [pod["metadata"]["labels"]["job-name"] for pod in cluster.objects(PODS)]
    assert names == ["js-a-0", "js-b-0"]
    assert ["deletionTimestamp" in pod["metadata"] for pod in cluster.objects(PODS)] == [False, True]


async def test_j17_a_negative_maximum_fails_at_the_first_failure(cluster: Stepper) -> None:
    await create(cluster, failurePolicy={"maxRestarts": -1})
    assert get(cluster)["spec"]["failurePolicy"] == {"maxRestarts": -1, "restartStrategy": "Recreate"}
    await finish(cluster, "js-node-0", "Failed")
    assert conditions(cluster)["Failed"] == ("True", "ReachedMaxRestarts")


@pytest.mark.parametrize(("policy", "at_once"), [("Failed", False), ("TerminatingOrFailed", True)], ids=["J18", "J19"])
async def test_when_pods_come_back_whose_predecessors_terminate(cluster: Stepper, policy: str, at_once: bool) -> None:
    node = replicated(pods=3)
    node["template"]["spec"]["podReplacementPolicy"] = policy
    await create(cluster, node)
    await place(cluster)
    await resize(cluster, 1)
    await resize(cluster, 3)
    assert indexes(cluster) == (["0", "1", "2"] if at_once else ["0"])
    assert indexes(cluster, terminating=True) == (["0", "1", "1", "2", "2"] if at_once else ["0", "1", "2"])
    for pod in cluster.objects(PODS):
        if "deletionTimestamp" in pod["metadata"]:
            await cluster.end_pod(pod)
    await cluster.advance(1)
    assert indexes(cluster) == ["0", "1", "2"]


async def test_j20_a_jobset_may_shrink_below_its_coordinator(cluster: Stepper) -> None:
    await create(cluster, replicated(pods=3), coordinator={"replicatedJob": "node", "podIndex": 2})
    await resize(cluster, 1)
    assert (indexes(cluster), get(cluster)["spec"]["coordinator"]["podIndex"]) == (["0"], 2)


async def test_j16_a_gang_keeps_its_jobs_at_their_size(cluster: Stepper) -> None:
    for kind in workload.kinds():
        cluster.api.registry.add(kind)
    cluster.api.add_admission(JOBS, job_admission(cluster.api))
    gang = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    await cluster.api.create(WORKLOAD_POD_GROUPS, gang, namespace="default")
    node = replicated(pods=2)
    node["template"]["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    await create(cluster, node)
    await resize(cluster, 3)
    assert indexes(cluster) == ["0", "1"]
