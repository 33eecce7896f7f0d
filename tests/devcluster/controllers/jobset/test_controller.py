"""The JobSet controller together with the Job controller and garbage collection, with hand-set pod statuses."""

import hashlib
from typing import Any

import pytest
from support.devcluster.jobsets import (
    change,
    conditions,
    counts,
    create,
    finish,
    get,
    jobs,
    manifest,
    message,
    replicated,
    start,
    status,
)
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import CRDS, JOBS, JOBSETS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES
from trainmaster.runtime.jsontree import JsonObject, copy_tree

PREFIX = "jobset.sigs.k8s.io/"


@pytest.fixture
async def cluster(cluster: Stepper, jobset_definition: JsonObject) -> Stepper:
    await cluster.api.create(CRDS, jobset_definition)
    start(cluster)
    return cluster


async def test_jobs_carry_their_place_in_the_jobset(cluster: Stepper) -> None:
    await create(cluster, replicated("a", replicas=2, groupName="g"), replicated("b", groupName="g"))
    assert jobs(cluster) == ["js-a-0", "js-a-1", "js-b-0"]
    job = cluster.objects(JOBS)[2]
    expected = {
        "jobset-name": "js",
        "jobset-uid": get(cluster)["metadata"]["uid"],
        "replicatedjob-name": "b",
        "replicatedjob-replicas": "1",
        "global-replicas": "3",
        "job-index": "0",
        "job-global-index": "2",
        "job-key": hashlib.sha1(b"default/js-b-0").hexdigest(),
        "restart-attempt": "0",
        "group-name": "g",
        "group-replicas": "3",
        "job-group-index": "2",
    }
    for holder in (job, job["spec"]["template"]):
        for kind in ("labels", "annotations"):
            found = {key.removeprefix(PREFIX): value for key, value in holder["metadata"][kind].items()}
            assert expected.items() <= found.items()
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert job["spec"]["template"]["spec"]["subdomain"] == "js"
    pod = cluster.objects(PODS)[0]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("js-a-0-0", "js")


async def test_the_wish_for_exclusive_nodes_reaches_jobs_and_pods(cluster: Stepper) -> None:
    prefix = "alpha.jobset.sigs.k8s.io"
    wish = {f"{prefix}/exclusive-topology": "rack", f"{prefix}/node-selector": "true"}
    jobset = manifest()
    jobset["metadata"]["annotations"] = wish
    await cluster.api.create(JOBSETS, jobset, namespace="default")
    await cluster.settle()
    for each in (*cluster.objects(JOBS), *cluster.objects(PODS)):
        assert wish.items() <= each["metadata"]["annotations"].items()
    (pod,) = cluster.objects(PODS)
    assert pod["spec"]["nodeSelector"] == {f"{prefix}/namespaced-job": "default_js-node-0"}
    assert {"key": f"{prefix}/no-schedule", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]


async def test_a_headless_service_names_the_pods_unless_their_names_are_not_wanted(cluster: Stepper) -> None:
    await create(cluster)
    (service,) = cluster.objects(SERVICES)
    assert service["metadata"]["name"] == "js"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {f"{PREFIX}jobset-name": "js"}
    assert service["spec"]["publishNotReadyAddresses"] is True
    await cluster.delete(JOBSETS, "js")
    await create(cluster, network={"enableDNSHostnames": False})
    assert cluster.objects(SERVICES) == []
    assert "subdomain" not in cluster.objects(PODS)[0]["spec"]


async def test_status_follows_the_jobs_to_completion(cluster: Stepper) -> None:
    await create(cluster, replicated(replicas=2, pods=2))
    assert counts(cluster) == {"node": {"active": 2}}
    assert status(cluster)["restarts"] == 0
    await cluster.set_pods("Running")
    assert counts(cluster) == {"node": {"active": 2, "ready": 2}}
    await finish(cluster, "js-node-0")
    assert counts(cluster) == {"node": {"active": 1, "ready": 1, "succeeded": 1}}
    assert conditions(cluster) == {}, "a JobSet that was never suspended has no Suspended condition"
    await finish(cluster, "js-node-1")
    assert conditions(cluster) == {"Completed": ("True", "AllJobsCompleted")}
    assert message(cluster, "Completed") == "jobset completed successfully"
    assert status(cluster)["terminalState"] == "Completed"
    assert counts(cluster) == {"node": {"succeeded": 2}}
    assert "AllJobsCompleted" in cluster.reasons("js")


async def test_a_job_is_not_ready_while_a_pod_of_it_restarts_in_place(cluster: Stepper) -> None:
    await create(cluster, replicated(pods=2))
    await cluster.set_pods("Running")
    assert counts(cluster) == {"node": {"ready": 1, "active": 1}}
    pod = cluster.objects(PODS)[0]
    await cluster.set_pod(pod, "Running", ready=False)
    assert counts(cluster) == {"node": {"active": 1}}
    await cluster.set_pod(pod, "Running", restarts=1)
    assert status(cluster).get("restarts", 0) == 0


async def test_without_failure_policy_one_failed_job_fails_the_jobset(cluster: Stepper) -> None:
    await create(cluster, replicated("a"), replicated("b"))
    await cluster.set_pods("Running")
    await finish(cluster, "js-b-0", "Failed")
    assert conditions(cluster) == {"Failed": ("True", "FailedJobs")}
    assert message(cluster, "Failed") == ("jobset failed due to one or more job failures (first failed job: js-b-0)")
    assert status(cluster)["terminalState"] == "Failed"
    assert jobs(cluster) == ["js-b-0"], "the jobs that still ran are deleted"
    assert [pod["metadata"]["labels"]["job-name"] for pod in cluster.objects(PODS)] == ["js-b-0"]


async def test_a_jobset_is_suspended_and_resumed_before_and_while_it_runs(cluster: Stepper) -> None:
    await create(cluster, replicated("a"), replicated("b"), suspend=True)
    assert [job["spec"]["suspend"] for job in cluster.objects(JOBS)] == [True, True]
    assert cluster.objects(PODS) == []
    assert conditions(cluster) == {"Suspended": ("True", "SuspendedJobs")}
    assert message(cluster, "Suspended") == "jobset is suspended"
    assert counts(cluster) == {"a": {"suspended": 1}, "b": {"suspended": 1}}
    await change(cluster, suspend=False)
    assert len(cluster.objects(PODS)) == 2
    assert conditions(cluster) == {"Suspended": ("False", "ResumeJobs")}
    assert message(cluster, "Suspended") == "jobset is resumed"
    assert counts(cluster) == {"a": {"active": 1}, "b": {"active": 1}}
    await cluster.set_pods("Running")
    await change(cluster, suspend=True)
    assert cluster.objects(PODS) == []
    assert conditions(cluster) == {"Suspended": ("True", "SuspendedJobs")}
    await change(cluster, suspend=False)
    await cluster.set_pods("Succeeded")
    assert conditions(cluster)["Completed"] == ("True", "AllJobsCompleted")
    assert status(cluster)["restarts"] == 0


async def test_resuming_takes_over_where_the_pods_shall_run(cluster: Stepper) -> None:
    """A queue that admits a suspended JobSet says by node selectors and tolerations where it may run."""
    await create(cluster, suspend=True)
    jobset = copy_tree(get(cluster))
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["nodeSelector"] = {"pool": "gpu"}
    template["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    template["metadata"] = {"labels": {"queue": "q"}}
    jobset["spec"]["suspend"] = False
    await cluster.api.update(JOBSETS, jobset)
    await cluster.settle()
    (pod,) = cluster.objects(PODS)
    assert pod["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert {"key": "gpu", "operator": "Exists"} in pod["spec"]["tolerations"]
    assert pod["metadata"]["labels"]["queue"] == "q"
    assert pod["metadata"]["labels"][f"{PREFIX}jobset-name"] == "js"


async def test_a_failure_restarts_the_jobset_up_to_the_maximum(cluster: Stepper) -> None:
    await create(cluster, replicated("a"), replicated("b"), failurePolicy={"maxRestarts": 1})
    before = {job["metadata"]["uid"] for job in cluster.objects(JOBS)}
    await cluster.set_pods("Running")
    await finish(cluster, "js-a-0", "Failed")
    assert (status(cluster)["restarts"], status(cluster)["restartsCountTowardsMax"]) == (1, 1)
    assert jobs(cluster) == ["js-a-0", "js-b-0"]
    assert before.isdisjoint(job["metadata"]["uid"] for job in cluster.objects(JOBS)), "all jobs are new"
    assert {job["metadata"]["labels"][f"{PREFIX}restart-attempt"] for job in cluster.objects(JOBS)} == {"1"}
    assert conditions(cluster) == {"RestartingJobSet": ("True", "DefaultFailurePolicy")}
    assert "RestartJobSetFailurePolicyAction" in cluster.reasons("js")
    await cluster.set_pods("Running")
    assert conditions(cluster) == {"RestartingJobSet": ("False", "JobsReady")}
    await finish(cluster, "js-b-0", "Failed")
    assert conditions(cluster)["Failed"] == ("True", "ReachedMaxRestarts")
    assert message(cluster, "Failed") == (
        "jobset failed due to reaching max number of restarts (first failed job: js-b-0)"
    )


async def test_blocking_recreate_waits_until_the_old_jobs_are_gone(cluster: Stepper) -> None:
    policy = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    await create(cluster, replicated("a"), replicated("b"), failurePolicy=policy)
    lingering = next(pod for pod in cluster.objects(PODS) if pod["metadata"]["labels"]["job-name"] == "js-b-0")
    bound = {**lingering, "spec": {**lingering["spec"], "nodeName": "node"}}
    await cluster.api.update(PODS, bound, subresource="binding")
    await cluster.set_pods("Running")
    await finish(cluster, "js-a-0", "Failed")
    assert jobs(cluster) == ["js-b-0"], "nothing new beside a pod that still ends"
    await cluster.end_pod(lingering)
    assert jobs(cluster) == ["js-a-0", "js-b-0"]


async def test_rules_of_the_failure_policy_are_tried_in_order(cluster: Stepper) -> None:
    rules = [
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        {"action": "FailJobSet", "onJobFailureMessagePatterns": ["no such message"]},
        {"action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["a"], "name": "spot"},
        {"action": "FailJobSet", "targetReplicatedJobs": ["b"], "onJobFailureMessagePatterns": ["backoff limit$"]},
    ]
    await create(cluster, replicated("a"), replicated("b"), failurePolicy={"maxRestarts": 0, "rules": rules})
    await finish(cluster, "js-a-0", "Failed")
    assert status(cluster)["restarts"] == 1
    assert status(cluster).get("restartsCountTowardsMax", 0) == 0
    assert conditions(cluster) == {"RestartingJobSet": ("True", "FailurePolicy_spot")}
    await finish(cluster, "js-b-0", "Failed")
    assert conditions(cluster)["Failed"] == ("True", "FailJobSetFailurePolicyAction")
    assert message(cluster, "Failed") == "applying FailJobSet failure policy action (first failed job: js-b-0)"


async def test_success_policy_any_completes_and_stops_the_rest(cluster: Stepper) -> None:
    policy = {"operator": "Any", "targetReplicatedJobs": ["leader"]}
    await create(cluster, replicated("leader"), replicated("worker"), successPolicy=policy)
    await finish(cluster, "js-leader-0")
    assert conditions(cluster) == {"Completed": ("True", "AllJobsCompleted")}
    assert jobs(cluster) == ["js-leader-0"]


async def test_dependencies_on_completion_hold_a_job_back(cluster: Stepper) -> None:
    """This is how dataset and model initializers run before the trainer."""
    after = replicated("node", dependsOn=[{"name": "init", "status": "Complete"}])
    await create(cluster, replicated("init"), after)
    await cluster.set_pods("Running")
    assert jobs(cluster) == ["js-init-0"]
    await finish(cluster, "js-init-0")
    assert jobs(cluster) == ["js-init-0", "js-node-0"]
    await finish(cluster, "js-node-0")
    assert conditions(cluster) == {"Completed": ("True", "AllJobsCompleted")}


async def test_dependencies_on_readiness_and_suspension(cluster: Stepper) -> None:
    after = replicated("worker", dependsOn=[{"name": "leader", "status": "Ready"}])
    await create(cluster, replicated("leader"), after, suspend=True)
    assert jobs(cluster) == ["js-leader-0"]
    await change(cluster, suspend=False)
    assert jobs(cluster) == ["js-leader-0"]
    await cluster.set_pods("Running")
    assert jobs(cluster) == ["js-leader-0", "js-worker-0"]


async def test_a_job_without_pods_holds_nobody_back(cluster: Stepper) -> None:
    """This is how an MPI job of one node runs: in the launcher alone."""
    after = replicated("launcher", dependsOn=[{"name": "node", "status": "Ready"}])
    await create(cluster, replicated("node", pods=0), after)
    assert jobs(cluster) == ["js-launcher-0", "js-node-0"]
    await finish(cluster, "js-launcher-0")
    assert conditions(cluster) == {"Completed": ("True", "AllJobsCompleted")}


async def test_startup_in_order(cluster: Stepper) -> None:
    await create(cluster, replicated("a"), replicated("b"), startupPolicy={"startupPolicyOrder": "InOrder"})
    assert jobs(cluster) == ["js-a-0"]
    assert conditions(cluster) == {"StartupPolicyInProgress": ("True", "InOrderStartupPolicyInProgress")}
    await cluster.set_pods("Running")
    assert jobs(cluster) == ["js-a-0", "js-b-0"]
    await cluster.set_pods("Running")
    assert conditions(cluster)["StartupPolicyInProgress"][0] == "False"
    assert conditions(cluster)["StartupPolicyCompleted"] == ("True", "InOrderStartupPolicyCompleted")


async def test_time_to_live_deletes_the_jobset_with_everything(cluster: Stepper) -> None:
    await create(cluster, ttlSecondsAfterFinished=60)
    await cluster.set_pods("Succeeded")
    await cluster.advance(59)
    assert cluster.exists(JOBSETS, "js")
    await cluster.advance(1)
    assert not cluster.exists(JOBSETS, "js")
    assert (cluster.objects(JOBS), cluster.objects(PODS), cluster.objects(SERVICES)) == ([], [], [])


@pytest.mark.parametrize("propagation", ["Background", "Foreground", None])
async def test_a_deleted_jobset_takes_its_children_with_it(cluster: Stepper, propagation: Any) -> None:
    await create(cluster, replicated(replicas=2, pods=2))
    await cluster.delete(JOBSETS, "js", propagation=propagation)
    assert not cluster.exists(JOBSETS, "js")
    assert (cluster.objects(JOBS), cluster.objects(PODS), cluster.objects(SERVICES)) == ([], [], [])


async def test_a_restarted_controller_writes_nothing_for_a_settled_jobset(cluster: Stepper) -> None:
    await create(cluster, replicated(replicas=2))
    await cluster.set_pods("Running")
    revision = cluster.store.revision
    cluster.stop()
    start(cluster)
    assert await cluster.settle() > 0
    assert cluster.store.revision == revision


async def test_the_coordinator_is_told_to_every_pod(cluster: Stepper) -> None:
    await create(cluster, replicated("a"), replicated("b", pods=2), coordinator={"replicatedJob": "b", "podIndex": 1})
    labels = {pod["metadata"]["labels"][f"{PREFIX}coordinator"] for pod in cluster.objects(PODS)}
    assert labels == {"js-b-0-1.js"}


async def test_volume_claims_are_made_from_templates(cluster: Stepper) -> None:
    node = replicated()
    container = node["template"]["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}, {"name": "keep", "mountPath": "/keep"}]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    policies = [
        {"templates": [{"metadata": {"name": "data"}, "spec": claim}]},
        {"templates": [{"metadata": {"name": "keep"}, "spec": claim}], "retentionPolicy": {"whenDeleted": "Retain"}},
    ]
    await create(cluster, node, volumeClaimPolicies=policies)
    assert [claim["metadata"]["name"] for claim in cluster.objects(PERSISTENT_VOLUME_CLAIMS)] == ["data-js", "keep-js"]
    volumes = cluster.objects(PODS)[0]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-js"}} in volumes
    await cluster.delete(JOBSETS, "js")
    assert [claim["metadata"]["name"] for claim in cluster.objects(PERSISTENT_VOLUME_CLAIMS)] == ["keep-js"]


async def test_jobsets_of_another_controller_are_left_alone(cluster: Stepper) -> None:
    await create(cluster, managedBy="acme.io/jobsets")
    assert jobs(cluster) == []


async def test_a_job_that_cannot_be_created_is_told(cluster: Stepper) -> None:
    """The name is taken by somebody else's Job."""
    foreign = replicated()["template"]
    foreign["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    foreign = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "js-node-0"}, "spec": foreign["spec"]}
    await cluster.api.create(JOBS, foreign, namespace="default")
    await create(cluster)
    assert "JobCreationFailed" in cluster.reasons("js")
    await cluster.delete(JOBS, "js-node-0", propagation="Background")
    await cluster.advance(1)
    assert cluster.objects(JOBS)[0]["metadata"]["ownerReferences"][0]["kind"] == "JobSet"


async def test_two_hundred_jobsets_at_once_cost_a_bounded_number_of_reconciles(cluster: Stepper) -> None:
    """Each object is looked at a few times; a full list for each reconcile would show as quadratic time."""
    for number in range(200):
        obj = manifest()
        obj["metadata"]["name"] = f"js{number}"
        await cluster.api.create(JOBSETS, obj, namespace="default")
    reconciles = await cluster.settle()
    assert len(cluster.objects(PODS)) == 200
    assert reconciles < 200 * 30
