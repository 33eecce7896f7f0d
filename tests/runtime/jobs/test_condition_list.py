"""The conditions of jobs, and their PodGroups."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobworld import KINDS, pytorchjob, replicas

from trainmaster.runtime.jobs.condition_list import Conditions
from trainmaster.runtime.jobs.constants import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED, SUSPENDED
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.podgroup import SchedulerPlugins, Volcano
from trainmaster.runtime.jsontree import JsonObject

FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def conditions_after(*steps: str | tuple[str, str]) -> Conditions:
    """Set conditions one after the other, each True or as the step says."""
    conditions = Conditions([], FIRST)
    for step in steps:
        name, status = (step, "True") if isinstance(step, str) else step
        conditions.set(name, f"Job{name}{status}", f"is {name}", status=status)
    return conditions


def shown(conditions: Conditions) -> list[tuple[str, str]]:
    return [(each["type"], each["status"]) for each in conditions.to_json()]


def test_the_same_again_changes_neither_words_nor_times() -> None:
    conditions = Conditions(conditions_after(CREATED).to_json(), LATER)
    assert not conditions.set(CREATED, "JobCreatedTrue", "in other words")
    (created,) = conditions.to_json()
    assert (created["message"], created["lastUpdateTime"]) == ("is Created", FIRST)


def test_a_new_reason_is_an_update_and_no_transition() -> None:
    conditions = Conditions(conditions_after(CREATED).to_json(), LATER)
    assert conditions.set(CREATED, "AnotherReason", "again")
    (created,) = conditions.to_json()
    assert (created["lastUpdateTime"], created["lastTransitionTime"]) == (LATER, FIRST)


@pytest.mark.defect("V1-B28")
def test_what_does_not_hold_is_never_the_state() -> None:
    conditions = conditions_after(CREATED, SUSPENDED, (SUSPENDED, "False"))
    assert shown(conditions) == [(SUSPENDED, "False"), (CREATED, "True")]
    again = Conditions(conditions.to_json(), LATER)
    again.set(RUNNING, "JobRunning", "runs")
    assert shown(again) == [(CREATED, "True"), (SUSPENDED, "False"), (RUNNING, "True")]


def test_put_takes_new_words_and_leaves_the_same_ones_alone() -> None:
    conditions = conditions_after(CREATED)
    conditions.put("Blocked", "NameTaken", "one")
    stored = conditions.to_json()
    later = Conditions(stored, LATER)
    later.put("Blocked", "NameTaken", "one")
    assert later.to_json() == stored
    later.put("Blocked", "NameTaken", "another")
    assert later.to_json()[-1]["message"] == "another"
    later.remove("Blocked")
    assert shown(later) == [(CREATED, "True")]


STEP = st.tuples(st.sampled_from([RUNNING, RESTARTING, SUCCEEDED, SUSPENDED, FAILED]), st.booleans())


@given(st.lists(STEP, max_size=12))
def test_types_are_unique_and_what_is_stored_is_read_again_as_it_was(steps: list[tuple[str, bool]]) -> None:
    stored = conditions_after(CREATED, *((name, str(holds)) for name, holds in steps)).to_json()
    assert len({each["type"] for each in stored}) == len(stored)
    assert Conditions(stored, LATER).to_json() == stored
    assert stored[-1]["status"] == "True"


def asking(count: int, resources: JsonObject, **spec: Any) -> JsonObject:
    """Replicas whose container has some resources."""
    asked = replicas(count)
    asked["template"]["spec"]["containers"][0]["resources"] = resources
    asked["template"]["spec"].update(spec)
    return asked


def job(policy: JsonObject | None = None, *, master: JsonObject, worker: JsonObject | None = None) -> Job:
    scheduling = {"schedulingPolicy": policy} if policy is not None else None
    return parse_job(KINDS["PyTorchJob"], pytorchjob(master=master, worker=worker, policy=scheduling))


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
