"""PodGroups of jobs: for whom there is room together, and whose pods count for it."""

from __future__ import annotations

from typing import Any

import pytest
from support.jobworld import KINDS, pytorchjob, replicas

from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.podgroup import SchedulerPlugins, Volcano, gang_scheduler
from trainmaster.runtime.jsontree import JsonObject


def asking(count: int, resources: JsonObject, **spec: Any) -> JsonObject:
    """Replicas whose container has some resources."""
    asked = replicas(count)
    asked["template"]["spec"]["containers"][0]["resources"] = resources
    asked["template"]["spec"].update(spec)
    return asked


def job(policy: JsonObject | None = None, *, master: JsonObject, worker: JsonObject | None = None) -> Job:
    scheduling = {"schedulingPolicy": policy} if policy is not None else None
    return parse_job(KINDS["PyTorchJob"], pytorchjob(master=master, worker=worker, policy=scheduling))


@pytest.mark.parametrize(
    ("name", "gang"),
    [
        ("", None),
        ("volcano", Volcano()),
        ("Volcano", Volcano()),
        ("scheduler-plugins-scheduler", SchedulerPlugins("scheduler-plugins-scheduler")),
    ],
)
def test_the_flag_chooses_the_scheduler(name: str, gang: object) -> None:
    assert gang_scheduler(name) == gang


def test_all_pods_are_one_gang_that_asks_for_what_they_request() -> None:
    of = job(
        master=asking(1, {"requests": {"cpu": "500m"}}), worker=asking(3, {"limits": {"cpu": "1", "memory": "1Gi"}})
    )
    spec = Volcano().pod_group(of, None, {})["spec"]
    assert spec == {"minMember": 4, "minResources": {"cpu": "3500m", "memory": "3Gi"}, "queue": "default"}


@pytest.mark.defect("V1-B11")
def test_the_first_pods_of_the_highest_priority_count() -> None:
    of = job(
        {"minAvailable": 2},
        master=asking(1, {"requests": {"cpu": "1"}}, priorityClassName="low"),
        worker=asking(3, {"requests": {"memory": "1Gi"}}, priorityClassName="high"),
    )
    assert Volcano().pod_group(of, None, {"low": 1, "high": 2})["spec"]["minResources"] == {"memory": "2Gi"}
    assert Volcano().pod_group(of, None, {})["spec"]["minResources"] == {"cpu": "1", "memory": "1Gi"}


def test_what_the_policy_says_counts() -> None:
    policy = {
        "minAvailable": 2,
        "queue": "research",
        "priorityClass": "high",
        "minResources": {"cpu": "9"},
        "scheduleTimeoutSeconds": 30,
    }
    of = job(policy, master=replicas(1), worker=replicas(3))
    assert Volcano().pod_group(of, None, {})["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "9"},
        "queue": "research",
        "priorityClassName": "high",
    }
    assert SchedulerPlugins("s").pod_group(of, None, {})["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "9"},
        "scheduleTimeoutSeconds": 30,
    }


@pytest.mark.defect("V1-B24")
def test_a_queue_that_is_named_later_counts_and_one_that_somebody_else_chose_stays() -> None:
    existing = {"spec": {"queue": "chosen"}}
    assert Volcano().pod_group(job(master=replicas(1)), existing, {})["spec"]["queue"] == "chosen"
    assert Volcano().pod_group(job({"queue": "late"}, master=replicas(1)), existing, {})["spec"]["queue"] == "late"
