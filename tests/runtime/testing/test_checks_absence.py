"""What a plugin takes for granted, calls that take too much, and the conformance suite itself."""

from collections.abc import Iterable
from typing import Any

import pytest
from support.suites import GOOD, Good, failure, passes

from trainmaster.runtime.framework import Framework
from trainmaster.runtime.sdk import Info, Listers, NoSuchIndex, Rejected, StatusReport, TrainJob, Watch
from trainmaster.runtime.testing import CHECKS, KnownObjects, PluginConformance, Subject, nonconformities, trainjob


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
def test_a_label_or_annotation_taken_for_granted_is_found(field: str, read: Any, value: str, told_of: str) -> None:
    class Sure(Good):
        def pre_build(self, job: TrainJob) -> None:
            read(getattr(job.metadata, field))

    marks: dict[str, Any] = {field: {"acme.io/team": value}}
    told = failure("test_it_stands_absent_fields", Sure, **{**GOOD, "jobs": [trainjob(**marks)]})
    assert f"the TrainJob {told_of.format(field)}" in told


@pytest.mark.parametrize(
    ("functions", "place"),
    [
        ({"jobs": lambda obj: [("team", obj["spec"]["job"])]}, "Watch.jobs: KeyError: 'spec'"),
        ({"indexes": {"good-by-rank": lambda obj: [obj["spec"]["rank"]]}}, ""),
    ],
    ids=["jobs", "indexes"],
)
def test_an_object_of_others_that_it_takes_for_granted_is_found(functions: dict[str, Any], place: str) -> None:
    class Sure(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("acme.dev/v1", "Queue", "queues", **functions)]

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert f"Queue (fields: apiVersion, kind, metadata): plugin good failed in {place}" in told
    assert "KeyError: 'spec'" in told


def test_a_workload_without_a_status_that_it_takes_for_granted_is_found() -> None:
    class Sure(Good):
        def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
            there = listers.get("v1", "ConfigMap", job.metadata.namespace, f"{job.metadata.name}-good")
            return StatusReport([each for each in there["status"]["conditions"] if each]) if there else None

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert "a workload whose status is {}: plugin good failed in status: KeyError: 'conditions'" in told


def test_a_loop_without_an_end_is_found() -> None:
    class Endless(Good):
        def pre_build(self) -> None:
            number = 0
            while True:
                number += 1

    told = failure("test_it_stays_in_its_budget", Endless, **GOOD)
    assert "pre_build takes more than 1,000,000 steps (lines of Python) in one call" in told


def test_a_call_that_takes_too_much_memory_is_found() -> None:
    class Huge(Good):
        def pre_build(self) -> None:
            self.kept = bytearray(3 * 1024 * 1024)

    told = failure("test_it_stays_in_its_budget", Huge, **GOOD, most_memory=1024 * 1024)
    assert "a call holds 3,1" in told
    assert "more than 1,048,576" in told


def test_what_stays_behind_of_each_job_is_found() -> None:
    class Hoarder(Good):
        def __init__(self, options: Good.Options) -> None:
            super().__init__(options)
            self._seen: list[TrainJob] = []

        def pre_build(self, job: TrainJob) -> None:
            self._seen.append(job)

    assert "bytes stay behind of each TrainJob" in failure("test_it_stays_in_its_budget", Hoarder, **GOOD)


def test_what_is_done_for_each_node_is_found() -> None:
    class Thorough(Good):
        def pre_build(self, info: Info) -> None:
            (pods,) = info.pod_sets
            for rank in range(pods.size):
                pods.pod_spec["subdomain"] = f"rank-{rank}"

    told = failure("test_it_stands_hostile_sizes", Thorough, **GOOD)
    assert "numNodes: 8,388,608: pre_build takes more than 1,000,000 steps" in told


def test_what_is_kept_for_each_node_is_found() -> None:
    class Listing(Good):
        def pre_build(self, info: Info, job: TrainJob) -> None:
            nodes = (job.spec.trainer.num_nodes if job.spec.trainer else None) or 1
            info.trainer_command = ["x" * nodes][:0]

    told = failure("test_it_stands_hostile_sizes", Listing, **GOOD)
    assert "with numNodes: 8,388,608 a call holds 8,3" in told
    assert "2,147,483,647" not in told


@pytest.mark.nightly
def test_a_limit_is_no_failure() -> None:
    class Limited(Good):
        def pre_build(self, job: TrainJob) -> None:
            if job.spec.trainer and (job.spec.trainer.num_nodes or 0) > 1000:
                raise Rejected("spec.trainer.numNodes: is more than 1000")

    passes("test_it_stands_hostile_sizes", Limited, **GOOD)


def test_a_plugin_that_conforms_passes_every_check() -> None:
    assert not nonconformities(Subject(Good, **GOOD))


def test_each_check_has_a_test_of_its_own() -> None:
    tests = [name for name in vars(PluginConformance) if name.startswith("test_")]
    elsewhere = {"uses_its_rights", "survives_definitions", "is_deterministic_across_processes"}
    assert {name.removeprefix("test_it_").removeprefix("test_") for name in tests} == {*CHECKS, *elsewhere}
    assert all(getattr(PluginConformance, name).__doc__ for name in tests)


def test_a_suite_without_a_plugin_says_so() -> None:
    suite = type("TestNothing", (PluginConformance,), {})
    with pytest.raises(AssertionError, match=r"TestNothing does not say which plugin it tests: give it `plugin = "):
        suite().test_it_is_deterministic()


@pytest.mark.parametrize("given", [lambda: Good(Good.Options()), Good(Good.Options())], ids=["function", "instance"])
def test_a_plugin_may_be_given_made_or_by_a_function(given: Any) -> None:
    passes("test_it_is_deterministic", given, runtime=GOOD["runtime"])


def test_a_plugin_may_be_given_by_its_entry_point() -> None:
    passes("test_it_is_deterministic", "jax", runtime={"mlPolicy": {"jax": {}}})


def test_the_subject_runs_among_the_built_in_plugins() -> None:
    framework = Subject(Good, **GOOD).framework()
    assert isinstance(framework, Framework)
    assert {"good", "torch", "jobset"} <= set(framework.names())


@pytest.mark.parametrize("nowhere", [None, ""])
def test_a_kind_of_no_namespace_is_found_however_that_is_written(nowhere: str | None) -> None:
    pool = {"apiVersion": "acme.io/v1", "kind": "Pool", "metadata": {"name": "fast"}}
    known = KnownObjects(pool)
    assert known.get("acme.io/v1", "Pool", nowhere, "fast") == pool
    assert known.list("acme.io/v1", "Pool", nowhere) == [pool]


def test_known_objects_say_how_they_are_made() -> None:
    with pytest.raises(TypeError, match=r"KnownObjects\(a, b\), not a list"):
        KnownObjects([{}])  # type: ignore[arg-type]  # the fault
    with pytest.raises(NoSuchIndex) as raised:
        KnownObjects().by_index("v1", "ConfigMap", "acme-team", "robotics")
    assert raised.value.__notes__ == [
        "In a test: KnownObjects(..., watches=plugin.watch_extension()) has those of a plugin."
    ]
