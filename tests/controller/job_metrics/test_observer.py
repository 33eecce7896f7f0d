"""What an observer of TrainJobs counts, and when: in every order in which caches may show things."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from support.observed_jobs import ObservedJobs, condition, training_job
from support.series import series

from trainmaster.controller.job_fields import QUEUE_LABEL
from trainmaster.metrics.trainjobs import MOST_RUNTIMES, OTHER

_numbers = count()

TO_JOBSET = "trainmaster_trainjob_time_to_jobset_seconds"
TO_RUNNING = "trainmaster_trainjob_time_to_running_seconds"
TO_PROGRESS = "trainmaster_trainjob_time_to_progress_seconds"
TO_END = "trainmaster_trainjob_time_to_end_seconds"
QUEUE_WAIT = "trainmaster_trainjob_queue_wait_seconds"
SUSPENSION = "trainmaster_trainjob_suspension_seconds"
RESTARTS = "trainmaster_trainjob_restarts_total"
FAILURES = "trainmaster_trainjob_failures_total"
KILLED = "attempt 0: rank 1 (pod demo-1, container node) failed with exit code 137 (killed: SIGKILL)"


@pytest.fixture
def runtime() -> str:
    """One that no other test has: counters are those of the process."""
    return f"observed-{next(_numbers)}"


@pytest.fixture
def jobs(runtime: str) -> Iterator[ObservedJobs]:
    observed = ObservedJobs(runtime)
    yield observed
    observed.observer.close()


async def test_a_job_from_its_creation_to_its_end(jobs: ObservedJobs) -> None:
    jobs.put_job()
    assert jobs.states() == {("Waiting", ""): 1}
    jobs.put_jobset(created=3)
    assert jobs.times(TO_JOBSET) == (1, 3)
    assert jobs.nodes() == {"Waiting": 2}
    jobs.put_jobset(created=3, active=1)
    assert jobs.times(TO_RUNNING) == (0, 0)
    await jobs.clock.advance(20)
    jobs.put_jobset(created=3, active=1, ready=1)
    assert (jobs.states(), jobs.nodes()) == ({("Running", ""): 1}, {"Running": 2})
    assert jobs.times(TO_RUNNING) == (1, 20)
    for reported in (40, 50):
        jobs.put_job(status={"trainerStatus": {"lastUpdatedTime": jobs.at(reported)}})
    assert jobs.times(TO_PROGRESS) == (1, 40)
    jobs.put_jobset(created=3, succeeded=1)
    jobs.put_job("demo", condition("Complete", "AllJobsCompleted", at=jobs.at(90)))
    assert (jobs.states(), jobs.nodes()) == ({("Complete", ""): 1}, {})
    assert jobs.times(TO_END, result="Complete") == (1, 90)
    assert jobs.times(TO_END, result="Failed") == (0, 0)
    jobs.resync()
    jobs.delete_jobset()
    jobs.delete_job()
    assert jobs.states() == {}
    assert [jobs.times(name)[0] for name in (TO_JOBSET, TO_RUNNING, TO_PROGRESS, TO_END)] == [1, 1, 1, 1]
    assert [jobs.times(name)[0] for name in (QUEUE_WAIT, SUSPENSION)] == [0, 0]
    assert jobs.seconds() == {}, "only a resilience policy has it counted"


def test_what_a_status_tells_of_the_time_of_a_job_is_counted_once_at_its_end_by_queue(jobs: ObservedJobs) -> None:
    counted = {"queuedSeconds": 9, "lostSeconds": 20, "restartingSeconds": 2}
    goodput = {**counted, "since": jobs.at(31), "phase": "Productive"}
    kept, labels = {"resilience": {"goodput": goodput}}, {QUEUE_LABEL: "team-queue"}
    jobs.put_job(status=kept, labels=labels)
    jobs.put_jobset(created=3)
    assert jobs.seconds("team-queue") == {}
    for text in ("done", "told again"):
        jobs.put_job("demo", condition("Complete", text, at=jobs.at(90)), status=kept, labels=labels)
    assert jobs.seconds("team-queue") == {"Queued": 9, "Lost": 20, "Restarting": 2, "Productive": 59}


@pytest.mark.parametrize("ended", [False, True])
def test_the_cache_of_jobsets_may_be_ahead(jobs: ObservedJobs, ended: bool) -> None:
    """Also of a job that came and went while nobody watched: it is counted when it is seen."""
    jobs.put_jobset(created=2, ready=1)
    assert jobs.states() == {}
    jobs.put_job("demo", *([condition("Complete", at=jobs.at(30))] if ended else []))
    assert jobs.states() == {("Complete" if ended else "Running", ""): 1}
    assert jobs.times(TO_JOBSET) == (1, 2)
    assert jobs.times(TO_END) == ((1, 30) if ended else (0, 0))


@pytest.mark.guarantee("K-15")
def test_what_was_reached_before_this_process_led_is_not_counted(runtime: str) -> None:
    jobs = ObservedJobs(runtime, leads=False)
    ended = condition("Failed", "FailedJobs", at=jobs.at(60))
    jobs.put_jobset("old", owner="uid-0", created=1, ready=1, restarts=2)
    jobs.put_job("old", uid="uid-0", status={"trainerStatus": {"lastUpdatedTime": jobs.at(9)}})
    jobs.put_job("failed", ended, uid="uid-f")
    jobs.put_job("new", uid="uid-2")
    assert series_of(jobs) == []
    jobs.observer.lead()
    assert jobs.states() == {("Running", ""): 1, ("Failed", "FailedJobs"): 1, ("Waiting", ""): 1}
    assert sum(each.value for each in series("trainmaster_trainjobs") if each.labels["runtime"] == runtime) == 3
    jobs.resync("old")
    jobs.put_jobset("old", owner="uid-0", created=1, ready=0, active=1, restarts=2)
    jobs.put_jobset("old", owner="uid-0", created=1, ready=1, restarts=2)
    jobs.put_job("failed", ended, uid="uid-f", status={"jobsStatus": [{"name": "node", "failed": 1}]})
    assert series_of(jobs) == []
    jobs.put_job("old", condition("Complete", at=jobs.at(70)), uid="uid-0")
    jobs.put_jobset("new", owner="uid-2", created=80)
    assert jobs.times(TO_END, result="Complete") == (1, 70)
    assert jobs.times(TO_JOBSET) == (1, 80)
    assert jobs.counts(FAILURES) == jobs.counts(RESTARTS) == {}
    jobs.observer.close()


def series_of(jobs: ObservedJobs) -> list[str]:
    """Name the histograms and counters that have a series for the runtime of a test."""
    histograms = (TO_JOBSET, TO_RUNNING, TO_PROGRESS, TO_END, QUEUE_WAIT, SUSPENSION)
    found = [name for name in histograms if jobs.times(name)[0]]
    return found + [name for name in (RESTARTS, FAILURES) if jobs.counts(name)]


@pytest.mark.guarantee("K-15")
def test_a_job_that_was_deleted_before_this_process_led_is_gone(runtime: str) -> None:
    jobs = ObservedJobs(runtime, leads=False)
    jobs.put_job()
    jobs.put_jobset(ready=1, restarts=1)
    jobs.put_job("other", uid="uid-2")
    jobs.delete_jobset()
    jobs.delete_job()
    jobs.observer.lead()
    assert (jobs.states(), jobs.nodes(), series_of(jobs)) == ({("Waiting", ""): 1}, {}, [])
    jobs.put_job()
    jobs.put_jobset(created=8)
    assert jobs.times(TO_JOBSET) == (1, 8)
    jobs.observer.close()


@pytest.mark.guarantee("K-15")
def test_what_a_late_cache_shows_at_first_is_not_counted(jobs: ObservedJobs) -> None:
    """A kind, or a namespace, that could not be read when this process began to lead."""
    jobs.put_job(initial=True)
    jobs.put_jobset(created=3, ready=1, restarts=1, initial=True)
    assert (series_of(jobs), jobs.states()) == ([], {("Running", ""): 1})


@pytest.mark.guarantee("K-15")
@pytest.mark.parametrize(
    ("more", "counted"),
    [
        ({"suspend": True, "generation": 1}, True),
        ({"suspend": True, "generation": 3}, False),
        ({"generation": 2}, True),
        ({"generation": 4}, False),
        ({"generation": 2, "status": {"trainerStatus": {"lastUpdatedTime": "2026-01-01T00:00:05Z"}}}, False),
    ],
)
async def test_a_job_that_has_perhaps_run_before_a_restart_is_not_said_to_run_for_the_first_time(
    runtime: str, more: dict[str, Any], counted: bool
) -> None:
    jobs = ObservedJobs(runtime, leads=False)
    flag = "True" if more.get("suspend") else "False"
    jobs.put_job("demo", condition("Suspended", status=flag, at=jobs.at(5)), **more)
    jobs.put_jobset(created=1)
    jobs.observer.lead()
    await jobs.clock.advance(100)
    jobs.put_job("demo", condition("Suspended", status="False", at=jobs.at(90)), generation=9)
    jobs.put_jobset(created=1, ready=1)
    assert jobs.times(TO_RUNNING) == ((1, 100) if counted else (0, 0))
    jobs.observer.close()


def test_waits_in_a_queue_and_suspensions_are_two_things(jobs: ObservedJobs) -> None:
    queued: dict[str, Any] = {"suspend": True, "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    jobs.put_job(generation=1, **queued)
    jobs.put_job("demo", condition("Suspended", at=jobs.at(1)), generation=1, **queued)
    jobs.put_jobset(created=1)
    assert (jobs.states(), jobs.nodes()) == ({("Suspended", "Queued"): 1}, {"Suspended": 2})
    jobs.put_job("demo", condition("Suspended", at=jobs.at(1)), generation=2)
    assert jobs.times(QUEUE_WAIT) == (0, 0)
    for _ in range(2):
        jobs.put_job("demo", condition("Suspended", status="False", at=jobs.at(300)), generation=2)
    assert (jobs.times(QUEUE_WAIT), jobs.times(SUSPENSION)) == ((1, 300), (0, 0))
    jobs.put_jobset(created=1, ready=1)
    jobs.put_job("demo", condition("Suspended", at=jobs.at(400)), generation=3, suspend=True)
    assert jobs.states() == {("Suspended", ""): 1}
    jobs.put_jobset(created=1)
    jobs.put_job("demo", condition("Suspended", status="False", at=jobs.at(450)), generation=4)
    assert (jobs.times(QUEUE_WAIT), jobs.times(SUSPENSION)) == ((1, 300), (1, 50))
    assert jobs.states() == {("Restarting", ""): 1}


def test_a_job_that_was_resumed_before_its_status_told_of_it_waits_no_longer(jobs: ObservedJobs) -> None:
    """Its first suspension left no trace; a later one is no wait for its start."""
    jobs.put_jobset()
    jobs.put_job(generation=1, suspend=True)
    jobs.put_job(generation=2)
    jobs.put_job("demo", condition("Suspended", at=jobs.at(100)), generation=3, suspend=True)
    jobs.put_job("demo", condition("Suspended", status="False", at=jobs.at(130)), generation=4)
    assert (jobs.times(QUEUE_WAIT), jobs.times(SUSPENSION)) == ((0, 0), (1, 30))


@pytest.mark.parametrize(
    ("before", "after", "is_wait"), [({"generation": 1, "suspend": True}, 2, True), ({"generation": 4}, 4, False)]
)
def test_what_began_before_a_restart_of_the_manager_is_counted_whole(
    runtime: str, before: dict[str, Any], after: int, is_wait: bool
) -> None:
    """A wait in a queue, and a resume that nobody led to see, when the status says so."""
    jobs = ObservedJobs(runtime, leads=False)
    jobs.put_jobset()
    jobs.put_job("demo", condition("Suspended", at=jobs.at(0 if is_wait else 100)), **before)
    jobs.observer.lead()
    jobs.put_job("demo", condition("Suspended", status="False", at=jobs.at(160)), generation=after)
    waits, suspensions = ((1, 160), (0, 0)) if is_wait else ((0, 0), (1, 60))
    assert (jobs.times(QUEUE_WAIT), jobs.times(SUSPENSION)) == (waits, suspensions)
    jobs.observer.close()


def test_a_job_that_ends_while_it_is_suspended_was_not_resumed(jobs: ObservedJobs) -> None:
    jobs.put_jobset()
    jobs.put_job("demo", condition("Suspended", at=jobs.at(1)), generation=1, suspend=True)
    jobs.put_job("demo", condition("Failed", "FailedJobs", at=jobs.at(9)), generation=1)
    assert series_of(jobs) == [TO_JOBSET, TO_END, FAILURES]


@pytest.mark.guarantee("K-15")
def test_failures_are_counted_once_by_cause(jobs: ObservedJobs) -> None:
    failed = condition("Failed", "FailedJobs", at=jobs.at(50))
    jobs.put_jobset(failed=1)
    for _ in range(2):
        jobs.put_job("demo", failed, condition("ContainerFailed", "Error", message=KILLED))
    # It is known no better for a plugin that is skipped afterwards.
    jobs.put_job("demo", failed, condition("PluginSkipped", "PluginFailed"))
    assert jobs.states() == {("Failed", "FailedJobs"): 1}
    assert jobs.times(TO_END, result="Failed") == (1, 50)
    assert jobs.counts(FAILURES) == {("ContainerFailed", "SIGKILL"): 1}


def test_restarts_are_counted_when_their_cause_is_known(jobs: ObservedJobs) -> None:
    jobs.put_job()
    jobs.put_jobset(ready=1)
    jobs.put_jobset(restarts=1, active=1)
    assert (jobs.states(), jobs.counts(RESTARTS)) == ({("Restarting", ""): 1}, {})
    jobs.put_job("demo", condition("ContainerFailed", "OOMKilled", message="attempt 0: rank 0"))
    assert jobs.states() == {("Restarting", "OutOfMemory"): 1}
    assert jobs.counts(RESTARTS) == {("OutOfMemory", ""): 1}
    jobs.put_jobset(restarts=1, ready=1)
    jobs.put_job()
    jobs.put_jobset(restarts=3, active=1)
    jobs.put_jobset(restarts=3, ready=1)
    assert jobs.counts(RESTARTS) == {("OutOfMemory", ""): 1, ("Unknown", ""): 2}
    assert jobs.times(TO_RUNNING)[0] == 1
    jobs.put_jobset(restarts=4)
    jobs.delete_job()
    assert jobs.counts(RESTARTS) == {("OutOfMemory", ""): 1, ("Unknown", ""): 3}, "or when the job is gone"


def test_restarts_in_place_are_counted_as_well_and_those_of_the_jobset_once(jobs: ObservedJobs) -> None:
    """The status counts them: after the failure that they follow, and when that is overcome."""
    told = condition("ContainerFailed", "OutOfMemory", message="attempt 0: rank 0")
    jobs.put_job()
    jobs.put_jobset(ready=1)
    jobs.put_job("demo", told)
    assert jobs.counts(RESTARTS) == {}
    jobs.put_job("demo", told, status={"restarts": 2})
    jobs.put_job(status={"restarts": 3})
    assert jobs.counts(RESTARTS) == {("OutOfMemory", ""): 3}
    jobs.put_jobset(restarts=4, ready=1)
    jobs.put_job(status={"restarts": 4})
    assert jobs.counts(RESTARTS) == {("OutOfMemory", ""): 3, ("Unknown", ""): 1}


def test_a_jobset_that_was_made_again_starts_to_count_anew(jobs: ObservedJobs) -> None:
    jobs.put_job()
    jobs.put_jobset(restarts=2, ready=1)
    jobs.delete_jobset()
    jobs.put_jobset(uid="another", created=500, restarts=1, ready=1)
    assert jobs.counts(RESTARTS) == {("Unknown", ""): 3}
    assert jobs.times(TO_JOBSET) == (1, 0)


def test_a_job_that_is_deleted_while_it_runs_is_gone_and_has_not_ended(jobs: ObservedJobs) -> None:
    jobs.put_job()
    jobs.put_jobset(ready=1, replicated_jobs=[training_job(gpus=4)])
    assert jobs.accelerators() == {("Running", "nvidia.com/gpu"): 8}
    jobs.delete_job()
    jobs.delete_jobset()
    assert (jobs.states(), jobs.nodes(), jobs.accelerators()) == ({}, {}, {})
    assert jobs.times(TO_END) == (0, 0)
    jobs.put_job()
    jobs.vanish()
    assert jobs.states() == {}, "also if nobody saw it go"


def test_a_job_that_is_being_deleted_says_so_unless_it_has_ended(jobs: ObservedJobs) -> None:
    jobs.put_job()
    obj = jobs.trainjobs.get("team/demo")
    assert obj is not None
    obj["metadata"]["deletionTimestamp"] = jobs.at(60)
    jobs.show_job(obj)
    jobs.put_jobset(ready=1)
    assert (jobs.states(), jobs.nodes()) == ({("Terminating", ""): 1}, {"Running": 2})
    jobs.show_job({**obj, "status": {"conditions": [condition("Complete", at=jobs.at(61))]}})
    assert jobs.states() == {("Complete", ""): 1}


def test_another_job_of_the_same_name_is_another_one(jobs: ObservedJobs) -> None:
    jobs.put_jobset(created=1, ready=1)
    jobs.put_job()
    jobs.put_job(uid="uid-2")
    assert jobs.states() == {("Waiting", ""): 1}
    assert jobs.nodes() == {}
    jobs.put_jobset(owner="uid-2", created=7)
    assert jobs.times(TO_JOBSET) == (2, 8)


def test_jobs_of_other_controllers_are_not_counted(jobs: ObservedJobs) -> None:
    jobs.put_job(managedBy="kueue.x-k8s.io/multikueue")
    assert jobs.states() == {}
    jobs.put_jobset(created=1, ready=1)
    assert (jobs.nodes(), jobs.times(TO_JOBSET)) == ({}, (0, 0))
    jobs.put_job(managedBy="trainer.kubeflow.org/trainjob-controller")
    assert jobs.states() == {("Running", ""): 1}
    jobs.put_job(managedBy="acme.io/other")
    assert (jobs.states(), jobs.nodes()) == ({}, {})


def test_what_a_jobset_leaves_open_is_one_and_without_a_trainjob_it_is_nobodys(jobs: ObservedJobs) -> None:
    job = training_job()
    job["replicas"] = job["template"]["spec"]["parallelism"] = None
    jobs.put_job()
    jobs.put_jobset(owner="somebody-else", ready=1)
    assert (jobs.states(), jobs.nodes()) == ({("Waiting", ""): 1}, {}), "that of nobody"
    jobs.put_jobset(replicated_jobs=[job], ready=1)
    assert (jobs.states(), jobs.nodes()) == ({("Running", ""): 1}, {"Running": 1})


def test_accelerators_and_nodes_are_those_of_the_pods_that_train(jobs: ObservedJobs) -> None:
    jobs.put_job()
    initializer = training_job("dataset-initializer", pods=1, ancestor="dataset-initializer", gpus=1)
    workers = training_job(replicas=3, pods=4, gpus=8)
    jobs.put_jobset(replicated_jobs=[initializer, workers], ready=1)
    assert jobs.nodes() == {"Running": 4, "Waiting": 8}
    assert jobs.accelerators() == {("Running", "nvidia.com/gpu"): 32, ("Waiting", "nvidia.com/gpu"): 64}
    assert jobs.states() == {("Waiting", ""): 1}
    jobs.put_jobset(replicated_jobs=[initializer, workers], ready=2, succeeded=1)
    assert (jobs.states(), jobs.nodes()) == ({("Running", ""): 1}, {"Running": 8})


def test_blocked_jobs_are_counted_by_reasons_that_are_known(jobs: ObservedJobs) -> None:
    for name, reason in (("a", "RuntimeNotFound"), ("b", "PluginFailed"), ("c", "SomethingOfAPlugin"), ("d", "")):
        jobs.put_job(name, condition("Blocked", reason), uid=name)
    known = {("Waiting", reason): 1 for reason in ("RuntimeNotFound", "PluginFailed", "Other", "")}
    assert jobs.states() == known
    jobs.put_job("a", uid="a")
    del known["Waiting", "RuntimeNotFound"]
    assert jobs.states() == {**known, ("Waiting", ""): 2}


def test_a_job_whose_pods_do_not_start_is_counted_by_the_cause_that_its_status_tells(jobs: ObservedJobs) -> None:
    jobs.put_job("demo", condition("Waiting", "Unschedulable"))
    assert jobs.states() == {("Waiting", "Unschedulable"): 1}
    jobs.put_job("demo", condition("Waiting", "NobodyKnowsThis"))
    assert jobs.states() == {("Waiting", "Other"): 1}
    failed = condition("ContainerFailed", "Evicted")
    jobs.put_job("demo", failed)
    assert jobs.states() == {("Waiting", "Evicted"): 1}
    jobs.put_job("demo", failed, condition("Waiting", "Unschedulable"))
    assert jobs.states() == {("Waiting", "Unschedulable"): 1}
    jobs.put_job("demo", condition("Waiting", "Unschedulable"), failed, condition("Blocked", "RuntimeNotFound"))
    assert jobs.states() == {("Waiting", "RuntimeNotFound"): 1}
    jobs.put_job("demo", condition("Waiting", "Unschedulable", status="False"))
    assert jobs.states() == {("Waiting", ""): 1}


def test_a_runtime_takes_a_place_when_something_is_built_of_it(jobs: ObservedJobs) -> None:
    """Names that people misspell would fill the label."""
    for number in range(MOST_RUNTIMES + 10):
        jobs.put_job(f"typo-{number}", uid=f"typo-{number}", runtimeRef={"name": f"misspelt-{number}"})
    assert set(jobs.metrics.jobs) == {("Waiting", "", OTHER)}
    jobs.put_job()
    jobs.put_jobset()
    assert jobs.metrics.jobs["Waiting", "", jobs.runtime] == 1
    jobs.delete_jobset()
    assert jobs.metrics.jobs["Waiting", "", jobs.runtime] == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"spec": None},
        {"spec": {"runtimeRef": {"name": {"a": 1}}}},
        {"status": []},
        {"status": {"conditions": {"type": "Complete"}}},
        {"status": {"conditions": [{"type": ["Complete"]}]}},
        {"status": {"trainerStatus": "fast"}},
        {"metadata": {"labels": 5}},
    ],
)
def test_a_job_that_nobody_can_read_is_counted_and_harms_nobody(jobs: ObservedJobs, broken: dict[str, Any]) -> None:
    jobs.put_job()
    obj = jobs.trainjobs.get("team/demo")
    assert obj is not None
    for name, value in broken.items():
        obj[name] = {**obj[name], **value} if name == "metadata" else value
    jobs.show_job(obj)
    assert sum(jobs.states().values()) == 1
    jobs.put_job()
    assert jobs.states() == {("Waiting", ""): 1}


@pytest.mark.parametrize("broken", [{"gpus": -1}, {"pods": "many"}])
def test_a_jobset_that_nobody_can_read_counts_as_none(jobs: ObservedJobs, broken: dict[str, Any]) -> None:
    job = training_job(gpus=1)
    if "gpus" in broken:
        job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "x"}}
    else:
        del job["template"]["spec"]["template"]
    jobs.put_job()
    jobs.put_jobset(ready=1, replicated_jobs=[job])
    assert jobs.states() == {("Waiting", ""): 1}
    jobs.put_jobset(uid="better", ready=1)
    assert jobs.states() == {("Running", ""): 1}


def test_exemplars_carry_the_job_and_its_trace(jobs: ObservedJobs) -> None:
    jobs.put_job()
    jobs.put_jobset(created=3)
    (exemplar,) = (
        each.exemplar
        for each in series(f"{TO_JOBSET}_bucket")
        if each.labels["runtime"] == jobs.runtime and each.exemplar
    )
    assert exemplar.labels == {"trainjob": "team/demo", "trace_id": "trace-of-uid-1"}
    assert exemplar.value == 3
