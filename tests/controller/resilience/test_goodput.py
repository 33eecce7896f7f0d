"""What the time of a TrainJob was spent on: every second once, and lost is what no checkpoint held."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.attempts import ACTIVE, started
from support.failing_pods import SECOND, pod
from support.objects import trainjob_object

from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.resilience.goodput import (
    KINDS,
    LOST,
    PRODUCTIVE,
    QUEUED,
    RESTARTING,
    STALLED,
    STARTING,
    AttemptTimes,
    Facts,
    PodTimes,
    account,
    failures_of,
    goodput_of,
    seconds_of,
    share_of,
    up_to,
)
from trainmaster.runtime.api.resilience import Goodput
from trainmaster.runtime.jsontree import JsonObject


def at(seconds: int) -> str:
    return time_text(datetime.fromtimestamp(seconds, UTC))


def told(goodput: Mapping[str, Any]) -> dict[str, int]:
    return {kind: goodput[field] for kind, field in KINDS.items() if goodput.get(field)}


def spent(goodput: JsonObject) -> int:
    """The seconds of all kinds."""
    return sum(told(goodput).values())


def facts(now: int, *attempts: AttemptTimes, created: int = 0, **more: Any) -> Facts:
    return Facts(created, now, attempts, 2, **more)


def ran(*times: tuple[int, int | None], **more: Any) -> AttemptTimes:
    return AttemptTimes([PodTimes(*each) for each in times], **more)


UP = ran((10, 20), (12, 30))
FAILED = replace(UP, ended=100)

CASES: dict[str, tuple[Facts, dict[str, int], str]] = {
    "waits": (facts(5), {}, QUEUED),
    "has one pod": (facts(25, ran((10, 20), (12, None))), {QUEUED: 10}, STARTING),
    "lacks a pod": (facts(25, ran((10, 20))), {QUEUED: 10}, STARTING),
    "runs": (facts(50, UP), {QUEUED: 10, STARTING: 20}, PRODUCTIVE),
    "stands still": (facts(90, replace(UP, stalled=70)), {QUEUED: 10, STARTING: 20, PRODUCTIVE: 40}, STALLED),
    "is suspended": (facts(90, UP, suspended=80), {QUEUED: 10, STARTING: 20, PRODUCTIVE: 50}, QUEUED),
    "fails without a checkpoint": (facts(105, FAILED, AttemptTimes()), {QUEUED: 10, STARTING: 20, LOST: 70},
        RESTARTING),
    "fails after a checkpoint": (facts(105, FAILED, AttemptTimes(), checkpoint=75, progress=99),
        {QUEUED: 10, STARTING: 20, PRODUCTIVE: 45, LOST: 25}, RESTARTING),
    "fails after a report": (facts(105, FAILED, AttemptTimes(), progress=99),
        {QUEUED: 10, STARTING: 20, PRODUCTIVE: 69, LOST: 1}, RESTARTING),
    "fails after the checkpoint of an attempt before": (facts(105, FAILED, AttemptTimes(), checkpoint=8),
        {QUEUED: 10, STARTING: 20, LOST: 70}, RESTARTING),
    "asks to be started again": (facts(105, replace(FAILED, loses=False), AttemptTimes()),
        {QUEUED: 10, STARTING: 20, PRODUCTIVE: 70}, RESTARTING),
    "is restarted since it stands still": (facts(105, replace(FAILED, stalled=70), AttemptTimes(), checkpoint=60),
        {QUEUED: 10, STARTING: 20, PRODUCTIVE: 30, LOST: 10, STALLED: 30}, RESTARTING),
    "fails before all pods ran": (facts(105, ran((10, 20), (12, None), ended=100), AttemptTimes()),
        {QUEUED: 10, STARTING: 90}, RESTARTING),
    "runs again": (facts(150, FAILED, ran((103, 120), (104, 125))),
        {QUEUED: 10, STARTING: 20, LOST: 70, RESTARTING: 25}, PRODUCTIVE),
    "fails twice while nobody looks": (
        facts(200, FAILED, ran((103, 120), (104, 125), ended=180), AttemptTimes(), checkpoint=170),
        {QUEUED: 10, STARTING: 20, PRODUCTIVE: 70 + 45, LOST: 10, RESTARTING: 25}, RESTARTING),
    "is complete": (facts(200, UP, ended=190), {QUEUED: 10, STARTING: 20, PRODUCTIVE: 160}, ""),
    "has failed": (facts(200, UP, ended=190, has_failed=True, checkpoint=180),
        {QUEUED: 10, STARTING: 20, PRODUCTIVE: 150, LOST: 10}, ""),
    "is complete before anybody looks": (facts(200, ended=190), {QUEUED: 190}, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_time_is_counted_by_what_objects_tell(case: str) -> None:
    known, expected, phase = CASES[case]
    goodput = account({}, known)
    assert (told(goodput), goodput.get("phase", "")) == (expected, phase)
    assert goodput.get("estimated", False) == (LOST in expected and known.checkpoint is None)
    assert spent(goodput) == seconds_of(goodput["since"])
    assert account(goodput, replace(known, attempts=known.attempts[-1:])) == goodput, "it is counted once"


def test_it_has_every_field_that_the_api_server_would_add() -> None:
    """Otherwise what is stored would differ for ever from what is counted, and be written again and again."""
    assert set(account({}, facts(5))) == {field.alias or name for name, field in Goodput.model_fields.items()}


def test_a_suspension_keeps_what_was_trained_until_a_failure_follows() -> None:
    goodput = account({}, facts(150, UP, checkpoint=60))
    goodput = account(goodput, facts(160, UP, checkpoint=60, suspended=100))
    assert (told(goodput), goodput["unsavedSeconds"]) == ({QUEUED: 10, STARTING: 20, PRODUCTIVE: 70}, 40)
    resumed = ran((210, 220), (212, 230))
    goodput = account(goodput, facts(205, UP, checkpoint=60))
    assert goodput["phase"] == QUEUED, "the pods from before are gone"
    goodput = account(goodput, facts(240, resumed, checkpoint=60))
    goodput = account(goodput, facts(305, replace(resumed, ended=300), AttemptTimes(), checkpoint=60))
    assert told(goodput) == {QUEUED: 10 + 110, STARTING: 20 + 20, PRODUCTIVE: 30, LOST: 40 + 70}


def test_a_job_that_stood_still_and_goes_on_is_productive_again() -> None:
    goodput = account({}, facts(90, replace(UP, stalled=70)))
    goodput = account(goodput, facts(140, UP, progress=120))
    assert (told(goodput)[STALLED], goodput["phase"], goodput["since"]) == (50, PRODUCTIVE, at(120))
    assert account(account({}, facts(90, replace(UP, stalled=70))), facts(140, UP))["since"] == at(140)


def test_attempts_that_end_on_purpose_are_no_failures() -> None:
    attempts = [{"reason": each} for each in ("Failed", "Disrupted", "Retry", "Resized")]
    assert failures_of({"status": {"resilience": {"attempts": attempts}}}) == 2


def test_who_reads_adds_the_time_that_goes_by() -> None:
    goodput = account({}, facts(50, UP))
    assert told(up_to(goodput, datetime.fromtimestamp(80, UTC)))[PRODUCTIVE] == 50
    assert share_of(up_to(goodput, datetime.fromtimestamp(80, UTC))) == 62
    ended = account({}, facts(50, UP, ended=40))
    assert up_to(ended, datetime.fromtimestamp(80, UTC)) == ended
    assert share_of({}) is None


MOMENTS = st.integers(0, 400)
MAYBE = st.none() | MOMENTS
ATTEMPTS = st.builds(
    AttemptTimes, st.lists(st.builds(PodTimes, MOMENTS, MAYBE), max_size=3), MAYBE, ended=MAYBE, loses=st.booleans()
)
CHANGES = st.builds(
    Facts,
    created=st.just(0),
    now=MOMENTS,
    attempts=st.lists(ATTEMPTS, max_size=3),
    wanted=st.integers(0, 2),
    suspended=MAYBE,
    checkpoint=MAYBE,
    progress=MAYBE,
    ended=st.none() | st.none() | MOMENTS,
    has_failed=st.booleans(),
)


@given(st.lists(CHANGES, min_size=1, max_size=12))
def test_the_seconds_add_up_to_the_time_since_the_creation_whatever_comes(changes: list[Facts]) -> None:
    """Also what contradicts itself: managers restart, caches lag, clocks differ."""
    goodput: JsonObject = {}
    for known in changes:
        before, goodput = goodput, account(goodput, known)
        assert min([0, *told(goodput).values()]) == 0
        assert spent(goodput) == seconds_of(goodput["since"])
        assert goodput["since"] >= before.get("since", "")
        assert before.get("phase", "none") or goodput == before, "after the end nothing changes"


STEPS = st.tuples(st.sampled_from(["fail", "suspend", "lose the JobSet"]), st.integers(1, 50))


@given(st.lists(STEPS, max_size=20), st.none() | st.integers(1, 30))
def test_lost_is_what_was_trained_after_the_last_checkpoint(steps: list[tuple[str, int]], interval: int | None) -> None:
    """A training ends again and again; a checkpoint is written every so many seconds of an attempt, or never."""
    goodput: JsonObject = {}
    now, saved, unsaved, lost, trained = 0, None, 0, 0, 0
    for how, seconds in steps:
        pods = [PodTimes(now + 1, now + 2)] * 2
        now, trained, unsaved = now + 2 + seconds, trained + seconds, unsaved + seconds
        if interval is not None and seconds >= interval:
            unsaved = seconds % interval
            saved = now - unsaved
        if how == "fail":
            looks = [facts(now, AttemptTimes(pods, ended=now), AttemptTimes(), checkpoint=saved)]
        elif how == "suspend":
            looks = [facts(now, AttemptTimes(pods), checkpoint=saved, suspended=now)]
        else:
            cut_off = AttemptTimes(ended=now)
            looks = [facts(now, each, AttemptTimes(), checkpoint=saved) for each in (AttemptTimes(pods), cut_off)]
        if how != "suspend":
            lost, unsaved = lost + unsaved, 0
        for known in looks:
            goodput = account(goodput, known)
    assert (told(goodput).get(PRODUCTIVE, 0), told(goodput).get(LOST, 0)) == (trained - lost, lost)
    assert spent(goodput) == now


def job(**status: Any) -> JsonObject:
    made = trainjob_object(status=status)
    made["metadata"]["creationTimestamp"] = at(0)
    return made


def a_pod(rank: int, *times: int, attempt: int = 0) -> JsonObject:
    made = pod(rank, {"running": {"startedAt": at(times[1])}}, attempt=attempt)
    made["metadata"]["creationTimestamp"] = at(times[0])
    return made


PAIR = [a_pod(0, 10, 20), a_pod(1, 12, 30)]
AGAIN = [a_pod(0, 110, 120, attempt=1), a_pod(1, 112, 130, attempt=1)]
JOBSET = {"metadata": {"creationTimestamp": at(5)}, "status": {"restarts": 1}}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": at(190)}]}
RESUMED = {"conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": at(60)}]}
SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": at(0)}]}
KEPT = {"resilience": {"goodput": {"queuedSeconds": 40, "phase": PRODUCTIVE, "since": at(40)}}}


@pytest.mark.parametrize(
    ("status", "known", "expected"),
    [
        ({}, {}, {QUEUED: 200}),
        ({}, {"jobset": JOBSET}, {QUEUED: 200}),
        ({}, {"pods": PAIR}, {QUEUED: 10, STARTING: 20, PRODUCTIVE: 170}),
        ({}, {"pods": [*PAIR, *AGAIN], "jobset": JOBSET},
         {QUEUED: 10, STARTING: 20, LOST: 80, RESTARTING: 20, PRODUCTIVE: 70}),
        ({}, {"pods": AGAIN, "jobset": JOBSET}, {QUEUED: 5, LOST: 105, RESTARTING: 20, PRODUCTIVE: 70}),
        (COMPLETE, {"pods": PAIR}, {QUEUED: 10, STARTING: 20, PRODUCTIVE: 160}),
        (COMPLETE, {}, {PRODUCTIVE: 190}),
        (COMPLETE, {"jobset": JOBSET, "started": at(25)}, {QUEUED: 5, STARTING: 20, PRODUCTIVE: 165}),
        (RESUMED, {"started": at(70)}, {QUEUED: 60, STARTING: 10, PRODUCTIVE: 130}),
        (SUSPENDED, {"jobset": JOBSET}, {QUEUED: 200}),
        (KEPT, {"pods": PAIR}, {QUEUED: 40, PRODUCTIVE: 160}),
        ({**KEPT, **COMPLETE}, {"pods": PAIR}, {QUEUED: 40, PRODUCTIVE: 150}),
        ({**KEPT, "conditions": "none", "trainerStatus": 3}, {}, {QUEUED: 40, PRODUCTIVE: 160}),
    ],
)  # fmt: skip
def test_of_a_job_without_a_policy_it_is_what_conditions_and_pods_tell(
    status: JsonObject, known: dict[str, Any], expected: dict[str, int]
) -> None:
    goodput = goodput_of(job(**status), now=datetime.fromtimestamp(200, UTC), **known)
    assert told(goodput) == expected
    assert spent(goodput) == seconds_of(goodput["since"])


async def test_the_status_has_what_the_time_was_spent_on() -> None:
    """Times are those of pods and conditions, though the manager looks later, and is another one meanwhile."""
    cluster = await started(maxRestarts=3)
    world = cluster.world

    async def run(created: int, ran: int) -> None:
        state = {"running": {"startedAt": SECOND.format(ran)}}
        world.show_pod(cluster.pod(state=state, created=created, suffix=f"{ran:05}"))
        cluster.status["replicatedJobsStatus"] = [{**ACTIVE, "ready": ran}]
        world.change("JobSet", status=cluster.status)
        await world.reconcile_after(1)

    def spent() -> dict[str, Any]:
        return {name: value for name, value in cluster.job_status["resilience"]["goodput"].items() if value}

    assert spent() == {"phase": "Queued", "since": SECOND.format(0)}
    await run(2, 5)
    counts = {"queuedSeconds": 2, "startingSeconds": 3}
    assert spent() == {**counts, "phase": "Productive", "since": SECOND.format(5)}
    report = {"lastUpdatedTime": SECOND.format(28), "lastCheckpointTime": SECOND.format(20)}
    world.change("TrainJob", status={**cluster.job_status, "trainerStatus": report})
    cluster.crash(at=30)
    await cluster.restart()
    counts |= {"productiveSeconds": 15, "lostSeconds": 10}
    assert spent() == {**counts, "phase": "Restarting", "since": SECOND.format(30)}
    world.restart()
    await run(33, 36)
    counts["restartingSeconds"] = 6
    assert spent() == {**counts, "phase": "Productive", "since": SECOND.format(36)}
    another = {**world.find("JobSet")["metadata"], "uid": "another", "creationTimestamp": SECOND.format(40)}
    world.change("JobSet", metadata=another, status={})
    await world.reconcile_after(1)
    counts["lostSeconds"] = 14
    assert spent() == {**counts, "phase": "Restarting", "since": SECOND.format(40)}
    await run(43, 46)
    counts["restartingSeconds"] = 12
    await world.reconcile_after(4)
    completed = {"type": "Completed", "status": "True", "lastTransitionTime": SECOND.format(50)}
    world.change("JobSet", status={**cluster.status, "conditions": [completed]})
    await world.reconcile_after(1)
    counts["productiveSeconds"] = 19
    assert spent() == {**counts, "since": SECOND.format(50)}
