"""What two calls at once do to each other is found."""

from __future__ import annotations

import threading

from support.suites import GOOD, Good, failure, passes

from trainmaster.runtime.sdk import Info, TrainJob


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
