"""What JobSet's webhooks fill in and refuse."""

from collections.abc import Callable
from typing import Any

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import CRDS, JOBSETS
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.runtime.jsontree import JsonObject, copy_tree

PREFIX = 'admission webhook "vjobset.kb.io" denied the request: JobSet.jobset.x-k8s.io "js" is invalid: '


@pytest.fixture
async def cluster(cluster: Stepper, jobset_definition: JsonObject) -> Stepper:
    """The controller is not started: only its admission is looked at."""
    await cluster.api.create(CRDS, jobset_definition)
    JobSetController(cluster.api)
    return cluster


def manifest(*names: str, **spec: Any) -> JsonObject:
    pod = {"containers": [{"name": "main", "image": "img"}]}
    job = {"completions": 2, "parallelism": 2, "template": {"spec": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {
            "replicatedJobs": [
                {"name": name, "replicas": 1, "template": {"spec": copy_tree(job)}} for name in names or ("a", "b")
            ],
            **spec,
        },
    }


async def create(cluster: Stepper, obj: JsonObject) -> JsonObject:
    return await cluster.api.create(JOBSETS, obj, namespace="default")


async def test_defaults(cluster: Stepper) -> None:
    spec = (await create(cluster, manifest(failurePolicy={"rules": [{"action": "FailJobSet"}]})))["spec"]
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["failurePolicy"]["rules"][0]["name"] == "failurePolicyRule0"
    job = spec["replicatedJobs"][0]["template"]["spec"]
    assert job["completionMode"] == "Indexed"
    assert job["template"]["spec"]["restartPolicy"] == "OnFailure"


async def test_what_the_author_says_is_kept(cluster: Stepper) -> None:
    obj = manifest(network={"enableDNSHostnames": False}, successPolicy={"operator": "Any"})
    obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    spec = (await create(cluster, obj))["spec"]
    assert spec["network"]["enableDNSHostnames"] is False
    assert spec["successPolicy"]["operator"] == "Any"
    assert spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    "spec",
    [
        "text",
        [],
        {"replicatedJobs": "a"},
        {"replicatedJobs": [1]},
        {"network": []},
        {"replicatedJobs": [{"name": "a"}]},
    ],
)
async def test_malformed_objects_are_refused_not_stumbled_over(cluster: Stepper, spec: Any) -> None:
    obj = {**manifest(), "spec": spec}
    with pytest.raises(StatusError) as refusal:
        await create(cluster, obj)
    assert refusal.value.code in {400, 422}


def depend(name: str, on: str) -> Callable[[JsonObject], None]:
    def change(obj: JsonObject) -> None:
        job = next(each for each in obj["spec"]["replicatedJobs"] if each["name"] == name)
        job["dependsOn"] = [{"name": on, "status": "Ready"}]

    return change


def put(**spec: Any) -> Callable[[JsonObject], None]:
    return lambda obj: obj["spec"].update(spec)


def rule(**fields: Any) -> Callable[[JsonObject], None]:
    return put(failurePolicy={"rules": [{"action": "FailJobSet", **fields}]})


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (depend("a", "b"), "DependsOn can't be set for the first ReplicatedJob"),
        (depend("b", "b"), "replicatedJob: b cannot depend on replicatedJob: b"),
        (depend("b", "c"), "replicatedJob: b cannot depend on replicatedJob: c"),
        (put(network={"subdomain": "x" * 64}), ".spec.network.subdomain is too long, must be less than 63 characters"),
        (put(managedBy="me"), "spec.managedBy: Invalid value"),
        (put(successPolicy={"operator": "All", "targetReplicatedJobs": ["x"]}),
         "invalid replicatedJob name 'x' does not appear in .spec.ReplicatedJobs"),
        (rule(targetReplicatedJobs=["x"]),
         "invalid replicatedJob name 'x' in failure policy does not appear in .spec.ReplicatedJobs"),
        (rule(name="0x"), "spec.failurePolicy.rules[0].name: Invalid value"),
        (rule(onJobFailureMessagePatterns=["("]), "not a regular expression"),
        (put(coordinator={"replicatedJob": "x"}), "coordinator replicatedJob x does not exist"),
        (put(coordinator={"replicatedJob": "a", "podIndex": 2}), "coordinator pod index 2 is invalid"),
        (put(volumeClaimPolicies=[{"templates": [{"metadata": {"name": "d"}, "spec": {}}]}]), "no container mounts"),
        (lambda obj: obj["metadata"].update(name="j" * 60),
         "JobSet name is too long, job names generated for this JobSet will exceed 63 characters"),
        (lambda obj: obj["metadata"].update(name="j" * 55),
         "JobSet name is too long, pod names generated for this JobSet will exceed 63 characters"),
    ],
)  # fmt: skip
async def test_refusals(cluster: Stepper, break_it: Callable[[JsonObject], None], complaint: str) -> None:
    obj = manifest()
    break_it(obj)
    with pytest.raises(StatusError) as refusal:
        await create(cluster, obj)
    assert refusal.value.code == 422
    assert complaint in refusal.value.message
    assert refusal.value.message.startswith('admission webhook "vjobset.kb.io" denied the request: ')


async def test_order_and_dependencies_exclude_each_other(cluster: Stepper) -> None:
    obj = manifest(startupPolicy={"startupPolicyOrder": "InOrder"})
    depend("b", "a")(obj)
    with pytest.raises(StatusError, match="StartupPolicy and DependsOn APIs are mutually exclusive"):
        await create(cluster, obj)


def schedule_elsewhere(obj: JsonObject) -> None:
    template = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["nodeSelector"] = {"pool": "gpu"}
    template.setdefault("metadata", {})["labels"] = {"queue": "q"}


async def test_a_running_jobset_can_change_neither_its_jobs_nor_its_manager(cluster: Stepper) -> None:
    created = await create(cluster, manifest())
    obj = copy_tree(created)
    schedule_elsewhere(obj)
    with pytest.raises(StatusError) as refusal:
        await cluster.api.update(JOBSETS, obj)
    assert refusal.value.message.startswith(PREFIX + "spec.replicatedJobs: Invalid value: ")
    assert refusal.value.message.endswith(": field is immutable")
    assert refusal.value.details is not None
    assert refusal.value.details["causes"][0]["reason"] == "FieldValueInvalid"
    with pytest.raises(StatusError, match=r"spec\.managedBy.*field is immutable"):
        await cluster.api.update(JOBSETS, {**created, "spec": {**created["spec"], "managedBy": "acme.io/x"}})


async def test_a_suspended_jobset_can_change_where_it_runs_and_nothing_else(cluster: Stepper) -> None:
    obj = copy_tree(await create(cluster, manifest(suspend=True)))
    schedule_elsewhere(obj)
    obj = copy_tree(await cluster.api.update(JOBSETS, obj))
    obj["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 1
    with pytest.raises(StatusError, match="field is immutable"):
        await cluster.api.update(JOBSETS, obj)
