"""Calls that take too much time or memory are found."""

from __future__ import annotations

import pytest
from support.suites import GOOD, Good, failure, passes

from trainmaster.runtime.sdk import Info, Rejected, TrainJob


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
