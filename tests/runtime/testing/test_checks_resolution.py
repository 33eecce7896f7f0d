"""A plugin that makes something else of the same TrainJob is found, also while another one is resolved."""

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from support.suites import CONFIG_MAP, GOOD, Good, failure, passes

from trainmaster.runtime.sdk import ApplyWhen, Desired, Info, Listers, TrainJob, Watch


def test_a_counter_is_found() -> None:
    numbers = itertools.count()

    class Counting(Good):
        def pre_build(self, info: Info) -> None:
            info.annotations["number"] = str(next(numbers))

    told = failure("test_it_is_deterministic", Counting, **GOOD)
    assert "becomes something else when the same plugin resolves it again" in told
    assert "JobSet demo-0.metadata.annotations.number" in told


def test_what_differs_after_a_restart_is_found() -> None:
    numbers = itertools.count()

    class Numbered(Good):
        def __init__(self, options: Good.Options) -> None:
            super().__init__(options)
            self._number = next(numbers)

        def pre_build(self, info: Info) -> None:
            info.labels["number"] = str(self._number)

    assert "a plugin that was made anew" in failure("test_it_is_deterministic", Numbered, **GOOD)


def test_what_is_written_once_may_be_random() -> None:
    numbers = itertools.count()

    class Random(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("v1", "Secret", "secrets", writes=True, creates_only=True)]

        def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{job.metadata.name}-key"}}
            yield Desired({**secret, "stringData": {"key": str(next(numbers))}}, ApplyWhen.ONCE)

    for test in ("test_it_is_deterministic", "test_it_is_idempotent", "test_it_declares_what_it_uses"):
        passes(test, Random, **GOOD)


def test_an_object_that_grows_is_found() -> None:
    class Growing(Good):
        def build(self, info: Info, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            name = f"{job.metadata.name}-good"
            there = listers.get("v1", "ConfigMap", job.metadata.namespace, name) or {"data": {"all": ""}}
            data = {"all": there["data"]["all"] + "more"}
            yield Desired({**CONFIG_MAP, "metadata": {"name": name}, "data": data})

    told = failure("test_it_is_idempotent", Growing, **GOOD)
    assert "ConfigMap demo-0-good is built in another way once all objects exist" in told
    assert "data.all is 'moremore' instead of 'more'" in told


@pytest.mark.parametrize("what", ["job", "config"])
def test_inputs_that_are_changed_are_found(what: str) -> None:
    class Greedy(Good):
        def pre_build(self, job: TrainJob, config: Good.Config) -> None:
            if what == "job":
                job.metadata.labels["mine"] = "yes"
            else:
                config.zone = "mine"

    assert f"pre_build changes `{what}`" in failure("test_it_leaves_inputs_alone", Greedy, **GOOD)


def test_an_info_that_is_changed_while_it_is_asked_about_is_found() -> None:
    class Nosy(Good):
        def applies_to(self, info: Info) -> bool:
            info.labels["asked"] = "yes"
            return True

    assert "applies_to changes `info`: labels.asked is new" in failure("test_it_leaves_inputs_alone", Nosy, **GOOD)


def test_a_plugin_that_remembers_the_suspension_is_found() -> None:
    class Sticky(Good):
        def build(self, info: Info, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            name = f"{job.metadata.name}-good"
            there = listers.get("v1", "ConfigMap", job.metadata.namespace, name)
            mode = there["data"]["mode"] if there else "paused" if job.spec.suspend else "running"
            yield Desired({**CONFIG_MAP, "metadata": {"name": name}, "data": {"mode": mode}})

    told = failure("test_it_survives_suspension", Sticky, **GOOD)
    assert "becomes something else if it was suspended before" in told
    assert "data.mode is 'paused' instead of 'running'" in told


def test_a_workload_that_does_not_stop_is_found() -> None:
    class Unstoppable(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("batch/v1", "Job", "jobs", writes=True, workload=True)]

        def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
            yield Desired(
                {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.metadata.name}, "spec": {}}
            )

    told = failure("test_it_survives_suspension", Unstoppable, **GOOD)
    assert "the workload batch/v1 Job demo-0 is the same whether spec.suspend is set or not" in told


def test_what_a_snapshot_does_not_keep_is_found() -> None:
    class Ordered(Good):
        def pre_build(self, info: Info) -> None:
            metadata = info.runtime_template["replicatedJobs"][0]["template"]["metadata"]
            info.annotations["order"] = ",".join(metadata["labels"])

    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"z": "1", "a": "2"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "train:1"}]}}},
        },
    }
    template = {"spec": {"replicatedJobs": [node]}}
    told = failure(
        "test_it_survives_the_snapshot", Ordered, **{**GOOD, "runtime": {**GOOD["runtime"], "template": template}}
    )
    assert "becomes something else of its runtime's snapshot" in told
    assert "annotations.order" in told


def test_what_needs_the_cluster_is_found() -> None:
    class Dependent(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("acme.dev/v1", "Queue", "queues")]

        def build(self, info: Info, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            queue: Any = listers.get("acme.dev/v1", "Queue", "team", "research")
            info.labels["queue"] = queue["spec"]["rank"]
            return iter(())

    queue = {"apiVersion": "acme.dev/v1", "kind": "Queue", "metadata": {"name": "research", "namespace": "team"}}
    objects = [{**queue, "spec": {"rank": "1"}}]
    passes("test_it_serves_its_sample", Dependent, **GOOD, objects=objects)
    told = failure("test_it_works_without_a_cluster", Dependent, **GOOD, objects=objects)
    assert "in an empty cluster: plugin good failed in build: TypeError" in told


def test_a_job_that_is_kept_between_hooks_is_found() -> None:
    class Forgetful(Good):
        _job: TrainJob

        def enforce_ml_policy(self, job: TrainJob) -> None:
            self._job = job

        def pre_build(self, info: Info) -> None:
            info.annotations["job"] = self._job.metadata.name

    told = failure("test_it_stands_two_calls_at_once", Forgetful, **GOOD)
    assert "becomes something else while another one is resolved" in told
    assert "annotations.job" in told


def test_a_lock_of_a_plugin_holds_nobody_up() -> None:
    class Locked(Good):
        def __init__(self, options: Good.Options) -> None:
            super().__init__(options)
            self._lock = threading.Lock()

        def pre_build(self, info: Info, job: TrainJob) -> None:
            with self._lock:
                name = job.metadata.name
                info.annotations["job"] = name

    passes("test_it_stands_two_calls_at_once", Locked, **GOOD)
