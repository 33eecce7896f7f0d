"""Init containers that do not end, and for which the others of their pods wait."""

from __future__ import annotations

from typing import Any

from support.pod_views import pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.init_containers import init_container_runs
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty
from trainmaster.controller.explain.times import parse_time
from trainmaster.runtime.jsontree import JsonObject

LONG_AGO, JUST_NOW = "2026-11-23T11:50:05Z", "2026-11-23T11:59:45Z"


def initializing(rank: int = 0, *, started: str = LONG_AGO, **container: Any) -> JsonObject:
    status = {"name": "wait-for-data", "restartCount": 0, "state": {"running": {"startedAt": started}}}
    spec = {"initContainers": [{"name": "wait-for-data", "image": "busybox", **container}]}
    return pod(rank, spec={"nodeName": "n1", **spec}, initContainerStatuses=[status])


def test_an_init_container_that_does_not_end_is_named_with_what_it_said_last() -> None:
    logs = {("t-node-0-0", "wait-for-data"): ("waiting for /data/READY", "")}
    (found,) = explain(view(initializing(0), initializing(1), logs=logs)).findings
    assert (found.cause, found.certainty) == (Cause.INIT_CONTAINER_FAILED, Certainty.LIKELY)
    assert [each.text for each in found.evidence] == [
        "rank 0 and 1 other: init container wait-for-data still runs, and the others start when it has ended",
        "it said last: waiting for /data/READY",
    ]
    assert found.evidence[0].at == found.since == parse_time(LONG_AGO)
    assert found.what_next == ("see what it waits for: kubectl logs t-node-0-0 -c wait-for-data -n ns",)


def test_one_that_has_just_started_and_one_that_goes_on_beside_the_others_are_well() -> None:
    assert not list(init_container_runs(view(initializing(started=JUST_NOW))))
    assert not list(init_container_runs(view(initializing(restartPolicy="Always"))))
