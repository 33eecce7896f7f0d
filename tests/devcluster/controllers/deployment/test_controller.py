"""The Deployment controller with that of ReplicaSets against the API, with hand-set pod statuses."""

from typing import Any

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import change_deployment, deployment, make_ready, sizes, template, terminating

from trainmaster.devcluster.apiserver.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from trainmaster.devcluster.controllers.deployment.controller import DeploymentController
from trainmaster.devcluster.controllers.objects import find_condition
from trainmaster.devcluster.controllers.replicaset import ReplicaSetController
from trainmaster.runtime.jsontree import JsonObject

NEW = template(image="img:2")


@pytest.fixture
def cluster(cluster: Stepper) -> Stepper:
    cluster.start(DeploymentController(cluster.api), ReplicaSetController(cluster.api))
    return cluster


async def create(cluster: Stepper, **spec: Any) -> None:
    await cluster.api.create(DEPLOYMENTS, deployment(**spec), namespace="default")
    await cluster.settle()


def get(cluster: Stepper) -> JsonObject:
    return cluster.api.get(DEPLOYMENTS, "default", "web")


def condition(cluster: Stepper, kind: str) -> tuple[str, str, str]:
    found = find_condition(get(cluster), kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


def pods_of(cluster: Stepper, image: str) -> list[JsonObject]:
    return [pod for pod in cluster.objects(PODS) if pod["spec"]["containers"][0]["image"] == image]


async def all_ready(cluster: Stepper) -> None:
    """Let kubelets do what they do until nothing changes any more."""
    for _ in range(40):
        waiting = [pod for pod in cluster.objects(PODS) if pod["status"]["phase"] == "Pending"]
        ending = terminating(cluster)
        if not waiting and not ending:
            return
        for pod in ending:
            await cluster.end_pod(pod)
        for pod in waiting:
            if cluster.exists(PODS, pod["metadata"]["name"]) and pod not in ending:
                await make_ready(cluster, pod)
    raise AssertionError("the rollout does not come to an end")


async def test_a_first_rollout_ends_when_all_pods_are_available(cluster: Stepper) -> None:
    await create(cluster)
    (replicaset,) = cluster.objects(REPLICA_SETS)
    short = replicaset["metadata"]["labels"]["pod-template-hash"]
    assert replicaset["metadata"]["name"] == f"web-{short}"
    assert replicaset["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert condition(cluster, "Available")[:2] == ("False", "MinimumReplicasUnavailable")
    assert condition(cluster, "Progressing")[1] == "ReplicaSetUpdated"
    await all_ready(cluster)
    assert condition(cluster, "Available")[:2] == ("True", "MinimumReplicasAvailable")
    name = replicaset["metadata"]["name"]
    text = f'ReplicaSet "{name}" has successfully progressed.'
    assert condition(cluster, "Progressing") == ("True", "NewReplicaSetAvailable", text)
    status = get(cluster)["status"]
    assert {field: status[field] for field in ("replicas", "updatedReplicas", "availableReplicas")} == {
        "replicas": 3,
        "updatedReplicas": 3,
        "availableReplicas": 3,
    }
    assert "unavailableReplicas" not in status


@pytest.mark.parametrize(
    ("surge", "unavailable", "steps"),
    [
        (
            1,
            0,
            [{"img:1": 3, "img:2": 1}, {"img:1": 2, "img:2": 2}, {"img:1": 1, "img:2": 3}, {"img:1": 0, "img:2": 3}],
        ),
        (0, 1, [{"img:1": 2, "img:2": 1}, {"img:1": 1, "img:2": 2}, {"img:1": 0, "img:2": 3}]),
        ("100%", 0, [{"img:1": 3, "img:2": 3}, {"img:1": 0, "img:2": 3}]),
        ("0%", "0%", None),
    ],
)
async def test_a_rollout_keeps_to_its_surge_and_unavailability(
    cluster: Stepper, surge: int | str, unavailable: int | str, steps: list[dict[str, int]] | None
) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    if steps is None:
        with pytest.raises(Exception, match="may not be 0 when `maxSurge` is 0"):
            await create(cluster, strategy=strategy)
        return
    await create(cluster, strategy=strategy)
    await all_ready(cluster)
    await change_deployment(cluster, template=NEW)
    seen = [sizes(cluster)]
    while seen[-1] != {"img:1": 0, "img:2": 3}:
        for pod in terminating(cluster):
            await cluster.end_pod(pod)
        for pod in pods_of(cluster, "img:2"):
            if pod["status"]["phase"] == "Pending":
                await make_ready(cluster, pod)
        if sizes(cluster) != seen[-1]:
            seen.append(sizes(cluster))
    assert seen == steps


async def test_pods_that_do_not_work_do_not_hold_up_the_rollout_that_mends_them(cluster: Stepper) -> None:
    await create(cluster, replicas=2, strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    await change_deployment(cluster, template=NEW)
    await all_ready(cluster)
    assert sizes(cluster) == {"img:1": 0, "img:2": 2}


async def test_recreate_waits_for_the_end_of_the_old_pods(cluster: Stepper) -> None:
    await create(cluster, replicas=2, strategy={"type": "Recreate"})
    await all_ready(cluster)
    live = cluster.objects(PODS)[0]
    await cluster.api.update(PODS, {**live, "metadata": {**live["metadata"], "finalizers": ["example.com/slow"]}})
    await change_deployment(cluster, template=NEW)
    assert sizes(cluster) == {"img:1": 0}
    (left,) = cluster.objects(PODS)
    await cluster.api.update(PODS, {**left, "metadata": {**left["metadata"], "finalizers": []}})
    await cluster.settle()
    assert sizes(cluster) == {"img:1": 0, "img:2": 2}


async def test_going_back_takes_up_the_old_replicaset_under_a_new_revision(cluster: Stepper) -> None:
    await create(cluster)
    await all_ready(cluster)
    await change_deployment(cluster, template=NEW)
    await all_ready(cluster)
    assert get(cluster)["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    await change_deployment(cluster, template=template())
    await all_ready(cluster)
    assert sizes(cluster) == {"img:1": 3, "img:2": 0}
    revisions = {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: (
            each["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
            each["metadata"]["annotations"].get("deployment.kubernetes.io/revision-history"),
        )
        for each in cluster.objects(REPLICA_SETS)
    }
    assert revisions == {"img:1": ("3", "1"), "img:2": ("2", None)}


async def test_only_so_many_revisions_are_kept(cluster: Stepper) -> None:
    await create(cluster, replicas=1, revisionHistoryLimit=1)
    for number in range(2, 5):
        await all_ready(cluster)
        await change_deployment(cluster, template=template(image=f"img:{number}"))
    await all_ready(cluster)
    assert sizes(cluster) == {"img:3": 0, "img:4": 1}


async def test_a_paused_deployment_is_scaled_and_not_rolled_out(cluster: Stepper) -> None:
    await create(cluster, replicas=2)
    await all_ready(cluster)
    await change_deployment(cluster, paused=True, template=NEW)
    assert sizes(cluster) == {"img:1": 2}
    assert condition(cluster, "Progressing") == ("Unknown", "DeploymentPaused", "Deployment is paused")
    await change_deployment(cluster, replicas=4)
    assert sizes(cluster) == {"img:1": 4}
    await change_deployment(cluster, paused=False)
    await all_ready(cluster)
    assert sizes(cluster) == {"img:1": 0, "img:2": 4}
    assert condition(cluster, "Progressing")[1] == "NewReplicaSetAvailable"


async def test_a_change_of_size_in_a_rollout_is_taken_up_paused_or_not(cluster: Stepper) -> None:
    await create(cluster, replicas=4, strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}})
    await all_ready(cluster)
    await change_deployment(cluster, template=NEW)
    assert sizes(cluster) == {"img:1": 2, "img:2": 2}
    await change_deployment(cluster, paused=True, replicas=6)
    assert sizes(cluster) == {"img:1": 2, "img:2": 4}
    await change_deployment(cluster, paused=False, replicas=8)
    assert sizes(cluster) == {"img:1": 2, "img:2": 6}
    await all_ready(cluster)
    assert sizes(cluster) == {"img:1": 0, "img:2": 8}


async def test_a_rollout_without_progress_is_told_after_its_deadline(cluster: Stepper) -> None:
    await create(cluster, progressDeadlineSeconds=60)
    await cluster.advance(59)
    assert condition(cluster, "Progressing")[0] == "True"
    await cluster.advance(2)
    assert condition(cluster, "Progressing")[:2] == ("False", "ProgressDeadlineExceeded")
    await all_ready(cluster)
    assert condition(cluster, "Progressing")[:2] == ("True", "NewReplicaSetAvailable")


async def test_a_foreign_replicaset_of_the_same_name_is_left_alone(cluster: Stepper) -> None:
    await create(cluster, replicas=1)
    (own,) = cluster.objects(REPLICA_SETS)
    # The name that the Deployment would choose is taken by somebody else, with another template.
    await cluster.api.delete(DEPLOYMENTS, "default", "web")
    live = cluster.api.get(REPLICA_SETS, "default", own["metadata"]["name"])
    foreign = {**live, "metadata": {**live["metadata"], "ownerReferences": []}}
    foreign["spec"] = {**live["spec"], "template": {**live["spec"]["template"], "spec": NEW["spec"]}}
    foreign["metadata"]["labels"] = {}
    await cluster.api.update(REPLICA_SETS, foreign)
    await cluster.settle()
    await create(cluster, replicas=1)
    await cluster.advance(5)
    names = [each["metadata"]["name"] for each in cluster.objects(REPLICA_SETS)]
    assert len(names) == 2
    assert own["metadata"]["name"] in names
    assert get(cluster)["status"]["collisionCount"] == 1


async def test_a_restart_in_the_middle_of_a_rollout_changes_nothing(cluster: Stepper) -> None:
    await create(cluster)
    await all_ready(cluster)
    await change_deployment(cluster, template=NEW)
    cluster.stop()
    cluster.start(DeploymentController(cluster.api), ReplicaSetController(cluster.api))
    await cluster.settle()
    await all_ready(cluster)
    assert sizes(cluster) == {"img:1": 0, "img:2": 3}
    assert len(cluster.objects(PODS)) == 3
