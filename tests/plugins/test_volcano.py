"""Volcano: queues, priorities, topology. What its gangs share with those of coscheduling is tested there."""

from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob
from support.resolutions import FRAMEWORK, FakeListers, Runtime, companion, error_details, jobset

from trainmaster.runtime.api.decoding import parse_runtime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.resolver import new_info, resolve

QUEUE = "scheduling.volcano.sh/queue-name"
DATA = replicated_job("data", ancestor="dataset-initializer")


def on(*jobs: JsonObject, queue: str | None = None, **volcano: Any) -> Runtime:
    obj = runtime_object(*jobs)
    obj["spec"]["podGroupPolicy"] = {"volcano": volcano}
    if queue is not None:
        obj["spec"]["template"]["metadata"] = {"annotations": {QUEUE: queue}}
    return parse_runtime(obj)


def prioritized(priority: str, name: str = "node", **fields: Any) -> JsonObject:
    job = replicated_job(name, **fields)
    job["template"]["spec"]["template"]["spec"]["priorityClassName"] = priority
    return job


def patch(template: JsonObject) -> JsonObject:
    return {"manager": "acme.io/x", "trainingRuntimeSpec": {"template": template}}


def pod_annotations(job: TrainJob, runtime: Runtime) -> dict[str, JsonObject]:
    """Annotations of pods by ReplicatedJob."""
    jobs = jobset(job, runtime)["spec"]["replicatedJobs"]
    return {each["name"]: each["template"]["spec"]["template"]["metadata"].get("annotations", {}) for each in jobs}


def group(job: TrainJob, runtime: Runtime) -> JsonObject:
    spec: JsonObject = companion("PodGroup", job, runtime).object["spec"]
    return spec


@pytest.mark.defect("B10")
def test_pods_outside_of_the_gang_stay_in_its_queue() -> None:
    """Volcano makes a group of its own for them, and looks for the queue on the pod."""
    runtime = on(DATA, replicated_job(dependsOn=[{"name": "data", "status": "Complete"}]), queue="research")
    assert pod_annotations(trainjob(), runtime) == {
        "data": {QUEUE: "research"},
        "node": {"scheduling.k8s.io/group-name": "demo"},
    }


@pytest.mark.parametrize("queue", ["", "Research", "a_b", "-a", "a.", "a" * 254])
def test_a_queue_that_cannot_be_is_refused(queue: str) -> None:
    ((path, message),) = error_details(trainjob(), on(queue=queue))
    assert path == f"spec.annotations[{QUEUE}]"
    assert message.startswith("Volcano queue name must")
    with pytest.raises(PluginFailed, match=f"annotation {QUEUE} of the JobSet: Volcano queue name must") as failed:
        resolve(trainjob(), on(queue=queue), FRAMEWORK)
    assert failed.value.rejected


def test_the_topology_is_spelled_out() -> None:
    assert group(trainjob(), on(networkTopology={}))["networkTopology"] == {"mode": "hard", "highestTierAllowed": 1}
    soft = on(networkTopology={"mode": "soft", "highestTierAllowed": 3})
    assert group(trainjob(), soft)["networkTopology"] == {"mode": "soft", "highestTierAllowed": 3}


def test_the_priority_of_the_last_member_is_that_of_the_group() -> None:
    """Not that of an initializer that the trainer waits for, which is scheduled alone."""
    early = prioritized("low", "data", ancestor="dataset-initializer")
    trainer = {**prioritized("higher"), "dependsOn": [{"name": "data", "status": "Complete"}]}
    jobs = [prioritized("high", "a", ancestor=None), early, trainer, replicated_job("b", ancestor=None)]
    assert group(trainjob(), on(*jobs))["priorityClassName"] == "higher"


def priority_classes(*names: str) -> Listers:
    return FakeListers(
        *(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            for name in ("system-cluster-critical", "system-node-critical", *names)
        )
    )


def errors_of(
    job: TrainJob, runtime: Runtime, listers: Listers, *, old: TrainJob | None = None
) -> list[tuple[str, str]]:
    errors, warnings = FRAMEWORK.validate(new_info(job, runtime), job, old, listers)
    assert not warnings
    return [(error.path, error.detail) for error in errors]


@pytest.mark.defect("B16")
def test_a_priority_class_is_known_from_the_cluster() -> None:
    """B16: the original was not allowed to look, so that no runtime with a priority could be used."""
    assert errors_of(trainjob(), on(prioritized("high")), priority_classes("high")) == []


@pytest.mark.defect("B16")
def test_a_missing_priority_class_is_told_where_it_is_named() -> None:
    """B16: the path did not exist in the API, and a system class ended the search."""
    runtime = on(prioritized("system-node-critical"), prioritized("gold", "other", ancestor=None))
    message = 'PriorityClass "{}" doesn\'t exist: create it, or name one that does'
    assert errors_of(trainjob(), runtime, priority_classes()) == [("spec.runtimeRef", message.format("gold"))]
    other = {"name": "other", "template": {"spec": {"template": {"spec": {"priorityClassName": "mine"}}}}}
    job = trainjob(runtimePatches=[patch({"spec": {"replicatedJobs": [other]}})])
    assert errors_of(job, runtime, priority_classes()) == [("spec.runtimePatches", message.format("mine"))]


@pytest.mark.defect("B16")
def test_who_may_not_see_priority_classes_knows_nothing_against_them() -> None:
    """Every cluster has some of its own."""
    assert errors_of(trainjob(), on(prioritized("gold")), FakeListers()) == []


@pytest.mark.defect("B13")
def test_a_priority_class_that_is_gone_does_not_keep_a_job_from_being_changed() -> None:
    job = trainjob(suspend=True)
    assert errors_of(job, on(prioritized("gold")), priority_classes(), old=trainjob()) == []
