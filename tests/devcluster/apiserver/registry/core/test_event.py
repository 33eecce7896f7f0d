"""Events: two names for one storage."""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import EVENTS, EVENTS_V1
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
