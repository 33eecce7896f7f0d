"""What a plugin takes for granted is found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from support.suites import GOOD, Good, failure

from trainmaster.runtime.sdk import Info, Listers, StatusReport, TrainJob, Watch
from trainmaster.runtime.testing import trainjob


def test_a_field_that_it_takes_for_granted_is_found() -> None:
    class Sure(Good):
        def pre_build(self, info: Info, job: TrainJob) -> None:
            assert info.trainer_container is not None

    told = failure("test_it_stands_absent_fields", Sure, **GOOD)
    assert "plugin good failed in pre_build: AssertionError" in told
    assert "the runtime without spec.template" in told


@pytest.mark.parametrize(
    ("read", "value", "told_of"),
    [
        (lambda marks: marks["acme.io/team"], "4", "without metadata.{}[acme.io/team]: "),
        (lambda marks: int(marks.get("acme.io/team") or 0), "4", "with metadata.{}[acme.io/team] "),
    ],
)
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_a_label_or_annotation_that_it_takes_for_granted_is_found(
    field: str, read: Any, value: str, told_of: str
) -> None:
    class Sure(Good):
        def pre_build(self, job: TrainJob) -> None:
            read(getattr(job.metadata, field))

    marks: dict[str, Any] = {field: {"acme.io/team": value}}
    told = failure("test_it_stands_absent_fields", Sure, **{**GOOD, "jobs": [trainjob(**marks)]})
    assert f"the TrainJob {told_of.format(field)}" in told


def test_an_object_of_others_that_it_takes_for_granted_is_found() -> None:
    class Sure(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("acme.dev/v1", "Queue", "queues", jobs=lambda obj: [("team", obj["spec"]["job"])])]

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert "Queue (fields: apiVersion, kind, metadata)" in told
    assert "plugin good failed in Watch.jobs: KeyError: 'spec'" in told


def test_an_index_that_takes_fields_for_granted_is_found() -> None:
    class Sure(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [
                Watch("acme.dev/v1", "Queue", "queues", indexes={"good-by-rank": lambda obj: [obj["spec"]["rank"]]})
            ]

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert "Queue (fields: apiVersion, kind, metadata): plugin good failed in " in told
    assert "KeyError: 'spec'" in told


def test_a_workload_without_a_status_that_it_takes_for_granted_is_found() -> None:
    class Sure(Good):
        def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
            there = listers.get("v1", "ConfigMap", job.metadata.namespace, f"{job.metadata.name}-good")
            return StatusReport([each for each in there["status"]["conditions"] if each]) if there else None

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert "a workload whose status is {}: plugin good failed in status: KeyError: 'conditions'" in told
