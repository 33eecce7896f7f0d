"""Events: two names for one storage."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import EVENTS, EVENTS_V1
from trainmaster.devcluster.apiserver.selectors import parse_field_selector
from trainmaster.runtime.jsontree import copy_tree


def new_style(**fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.123456Z",
        "reportingController": "trainmaster",
        "reportingInstance": "pod-1",
        "action": "Reconciling",
        "reason": "Created",
        "type": "Normal",
        "note": "made it",
        "regarding": {"kind": "TrainJob", "name": "t", "namespace": "default", "uid": "u"},
        **fields,
    }


def old_style(name: str = "old") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "hello",
        "reason": "Pulled",
        "type": "Normal",
        "source": {"component": "kubelet"},
    }


async def test_a_new_event_reads_as_an_old_one(api: Api) -> None:
    """The Kubeflow SDK skips events that have no firstTimestamp."""
    await api.create(EVENTS_V1, new_style(), namespace="default")
    old = api.get(EVENTS, "default", "e")
    assert old["apiVersion"] == "v1"
    assert old["involvedObject"]["name"] == "t"
    assert old["message"] == "made it"
    assert old["source"] == {"component": "trainmaster"}
    assert (old["firstTimestamp"], old["lastTimestamp"], old["count"]) == (
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05Z",
        1,
    )
    new = api.get(EVENTS_V1, "default", "e")
    assert new["apiVersion"] == "events.k8s.io/v1"
    assert (new["note"], new["regarding"]["kind"]) == ("made it", "TrainJob")


async def test_a_series_counts_in_the_old_form_too(api: Api) -> None:
    made = copy_tree(await api.create(EVENTS_V1, new_style(), namespace="default"))
    made["series"] = {"count": 4, "lastObservedTime": "2026-01-02T03:05:00.000000Z"}
    await api.update(EVENTS_V1, made, namespace="default")
    old = api.get(EVENTS, "default", "e")
    assert (old["count"], old["firstTimestamp"], old["lastTimestamp"]) == (
        4,
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:05:00Z",
    )


async def test_an_old_event_reads_as_a_new_one(api: Api) -> None:
    await api.create(EVENTS, old_style(), namespace="default")
    (record,), _ = api.list(EVENTS_V1, "default", fields=parse_field_selector("regarding.kind=Pod"))
    assert (record.object["note"], record.object["apiVersion"]) == ("hello", "events.k8s.io/v1")
    (record,), _ = api.list(EVENTS, fields=parse_field_selector("involvedObject.name=p,source=kubelet"))
    assert record.object["message"] == "hello"


async def test_watchers_see_the_form_that_they_asked_for(api: Api) -> None:
    watch = api.watch(EVENTS_V1, since=api.revision)
    await api.create(EVENTS, old_style(), namespace="default")
    event = await anext(watch)
    assert event.object is not None
    assert (event.object["apiVersion"], event.object["note"]) == ("events.k8s.io/v1", "hello")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"action": ""}, "action"),
        ({"type": "Odd"}, "type"),
        ({"note": "é" * 600}, "message"),
    ],
)
async def test_the_newer_api_is_strict(api: Api, change: dict[str, Any], field: str) -> None:
    with pytest.raises(StatusError) as caught:
        await api.create(EVENTS_V1, new_style(**change), namespace="default")
    assert caught.value.details is not None
    assert [cause["field"] for cause in caught.value.details["causes"]] == [field]


async def test_an_event_tells_its_story_once(api: Api) -> None:
    """Only the series may change: that is how repetitions are counted."""
    made = await api.create(EVENTS_V1, new_style(), namespace="default")
    with pytest.raises(StatusError, match=r"reason: Invalid value: .*field is immutable"):
        await api.update(EVENTS_V1, {**made, "reason": "Other"}, namespace="default")
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}
    assert (await api.update(EVENTS_V1, {**made, "series": series}, namespace="default"))["series"] == series
