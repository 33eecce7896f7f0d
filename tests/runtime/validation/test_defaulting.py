"""What defaulting fills in: times of runtime patches, and amounts in canonical form."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from support.objects import trainjob_object

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation import default_trainjob

NOW = datetime(2026, 5, 4, 3, 2, 1, 999_999, tzinfo=UTC)
STAMP = "2026-05-04T03:02:01Z"
OLD = "2020-01-01T00:00:00Z"


def patch(manager: str = "acme.io/a", *, selector: str = "1", **fields: Any) -> JsonObject:
    pods = {"spec": {"template": {"spec": {"nodeSelector": {"a": selector}}}}}
    jobs = [{"name": "node", "template": pods}]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}, **fields}


def times(*patches: JsonObject, old: list[JsonObject] | None = None) -> list[Any]:
    before = None if old is None else trainjob_object(runtimePatches=old)
    obj = trainjob_object(runtimePatches=list(patches))
    given = copy.deepcopy(obj)
    defaulted = default_trainjob(obj, before, now=NOW)
    assert obj == given, "the given object was changed"
    return [patch.get("time") for patch in defaulted["spec"]["runtimePatches"]]


def test_a_new_patch_gets_the_present_time_unless_it_has_one() -> None:
    assert times(patch("a.io/a"), patch("a.io/b", time=OLD), patch("a.io/c", time=None)) == [STAMP, OLD, STAMP]


def test_an_unchanged_patch_keeps_its_time_whatever_is_sent() -> None:
    old = [patch(time=OLD)]
    assert times(patch(), old=old) == [OLD]
    assert times(patch(time="2022-02-02T00:00:00Z"), old=old) == [OLD]
    assert times(patch(time=OLD), old=[patch()]) == [None]


def test_a_changed_patch_gets_the_present_time_whatever_is_sent() -> None:
    assert times(patch(selector="2", time="2022-02-02T00:00:00Z"), old=[patch(time=OLD)]) == [STAMP]


def test_patches_are_matched_by_manager_and_not_by_place() -> None:
    old = [patch("a.io/a", time=OLD)]
    assert times(patch("a.io/new"), patch("a.io/a"), old=old) == [STAMP, OLD]


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("2024-01-01T02:00:00+02:00", "2024-01-01T00:00:00Z"),
        ("2024-01-01T00:00:00.75Z", "2024-01-01T00:00:00Z"),
        ("yesterday", "yesterday"),
        ("2024-01-01", "2024-01-01"),
        ("0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00+23:00"),
        (7, 7),
    ],
)
def test_times_are_written_in_utc_and_what_is_none_is_left_to_the_schema(sent: Any, stored: Any) -> None:
    assert times(patch(time=sent)) == [stored]


def test_amounts_are_spelled_as_the_api_server_would() -> None:
    resources = {"limits": {"cpu": 1.5, "memory": "1024Mi"}, "requests": {"cpu": 0.5}}
    defaulted = default_trainjob(trainjob_object(trainer={"resourcesPerNode": resources}), None, now=NOW)
    assert defaulted["spec"]["trainer"]["resourcesPerNode"] == {
        "limits": {"cpu": "1500m", "memory": "1Gi"},
        "requests": {"cpu": "500m"},
    }


@pytest.mark.parametrize(
    ("stored", "sent", "kept"),
    [
        ({"limits": {"nvidia.com/gpu": 2}}, {"limits": {"nvidia.com/gpu": 2}}, True),
        ({"limits": {"memory": "1024Mi"}}, {"limits": {"memory": "1Gi"}}, True),
        ({"limits": {"nvidia.com/gpu": 2}}, {"limits": {"nvidia.com/gpu": 3}}, False),
        ({"limits": {"cpu": "many"}}, {"limits": {"cpu": "many"}}, True),
        ("none", {"limits": {"cpu": "1"}}, False),
    ],
)
def test_amounts_that_mean_the_same_stay_as_they_are_stored(stored: Any, sent: Any, kept: bool) -> None:
    """One that was stored before there was a webhook could not be labelled otherwise: its trainer is immutable."""
    old = trainjob_object(trainer={"resourcesPerNode": stored})
    obj = trainjob_object(trainer={"resourcesPerNode": sent})
    assert (default_trainjob(obj, old, now=NOW)["spec"]["trainer"]["resourcesPerNode"] == stored) is kept


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"runtimePatches": []},
        {"runtimePatches": "patches"},
        {"runtimePatches": [None, 7, {"manager": ["a"]}, {}]},
        {"trainer": {"resourcesPerNode": {"limits": {"cpu": "many"}}}},
        {"trainer": {"resourcesPerNode": {"limits": ["cpu"]}}},
        {"trainer": []},
    ],
)
def test_what_needs_no_default_or_cannot_be_understood_stays_the_very_same_object(spec: JsonObject) -> None:
    obj = trainjob_object(**spec)
    assert default_trainjob(obj, None, now=NOW) is obj


def test_an_object_without_a_spec_stays_as_it_is() -> None:
    assert default_trainjob({"kind": "TrainJob"}, None, now=NOW) == {"kind": "TrainJob"}
    assert default_trainjob({"spec": []}, {"spec": 1}, now=NOW) == {"spec": []}


@pytest.mark.guarantee("H-7")
def test_defaulting_twice_is_defaulting_once() -> None:
    obj = trainjob_object(runtimePatches=[patch(), patch("b.io/b", time="2024-01-01T02:00:00+02:00")])
    once = default_trainjob(obj, None, now=NOW)
    assert default_trainjob(once, None, now=NOW) is once
