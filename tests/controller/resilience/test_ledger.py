"""What a manager makes of attempts that ended, in virtual time: what is charged, replaced, avoided and failed."""

from datetime import UTC, datetime

import pytest
from support.attempts import EVICTED, GLOO, NAN, TOLD, Cluster, started
from support.failing_pods import container_status
from support.series import series

from trainmaster.controller.resilience.attempts import AttemptFacts
from trainmaster.controller.resilience.ledger import Violation, judge
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.api.resilience import ResiliencePolicy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resilience import BuiltPolicy


async def test_a_failure_is_charged_once_whoever_fails_with_it() -> None:
    cluster = await started(maxRestarts=2)
    cluster.crash(1, message=GLOO, at=5)
    cluster.crash(0, at=6)
    await cluster.restart()
    assert cluster.ledger == [(0, "Failed", True)]
    assert (cluster.last["pod"], cluster.last["node"]) == ("demo-node-0-0-abcde", "node-0")
    assert cluster.last["message"].endswith(NAN)
    assert (cluster.job_status["restarts"], cluster.job_status["resilience"]["chargedRestarts"]) == (1, 1)


async def test_over_its_budget_the_job_fails_as_its_jobset_does_with_the_cause() -> None:
    cluster = await started(maxRestarts=1)
    for last in (False, True):
        cluster.crash()
        await (cluster.fail() if last else cluster.restart())
    assert cluster.world.conditions["Failed"]["reason"] == "ReachedMaxRestarts"
    assert not cluster.is_replaced
    assert cluster.ledger == [(0, "Failed", True), (1, "Failed", True)]
    assert cluster.job_status["restarts"] == 1


async def test_what_is_charged_is_counted_by_node() -> None:
    cluster = await started(maxRestarts=9)
    for node in ("worse", "worse", "bad"):
        cluster.crash(0, node=node)
        await cluster.restart()
    cluster.evict(7)
    await cluster.restart(counts=False)
    told = {each.labels["node"]: each.value for each in series("trainmaster_trainjob_node_failures_total")}
    assert (told["worse"], told["bad"], "node-7" in told) == (2, 1, False)


@pytest.mark.parametrize("budget", [0, 2])
@pytest.mark.parametrize("first", ["evicted", "peer"])
async def test_an_eviction_is_not_charged_though_peers_crash_of_it(budget: int, first: str) -> None:
    """The JobSet sees a rank that failed, and gives up; a new one takes its place with all the budget."""
    cluster = await started(maxRestarts=budget)
    if first == "evicted":
        cluster.evict(1)
    cluster.crash(0, message=GLOO, at=7)
    await cluster.fail()
    if first == "peer":
        assert cluster.ledger == [], "perhaps others have more to tell"
        assert "Failed" not in cluster.world.conditions
        cluster.evict(1)
        await cluster.world.reconcile_after(3)
    assert cluster.ledger == [(0, "Disrupted", False)]
    assert cluster.last["message"] == (
        "pod demo-node-0-1-abcde was taken away from node node-1: EvictionByEvictionAPI: Eviction API: evicting"
    )
    assert f"all pods are made anew: {cluster.last['message']}" in cluster.world.events
    assert "Failed" not in cluster.world.conditions
    await cluster.renew()
    assert cluster.world.find("JobSet")["spec"]["failurePolicy"]["maxRestarts"] == budget
    assert cluster.labels["trainmaster.dev/attempts-before"] == "1"
    assert cluster.job_status["restarts"] == 1


async def test_attempts_are_numbered_on_over_jobsets() -> None:
    cluster = await started(maxRestarts=1)
    cluster.evict()
    await cluster.restart(counts=False)
    cluster.evict()
    await cluster.fail()
    await cluster.renew()
    cluster.crash(1)
    await cluster.restart()
    assert cluster.ledger == [(0, "Disrupted", False), (1, "Disrupted", False), (2, "Failed", True)]
    assert "replacedJobSet" not in cluster.job_status["resilience"]
    cluster.crash(1)
    await cluster.fail()
    assert cluster.ledger[-1] == (3, "Failed", True)
    failed = cluster.world.conditions["Failed"]
    assert failed["reason"] == "ReachedMaxRestarts"
    assert "; attempt 3: rank 1 (pod demo-node-0-1-abcde" in failed["message"]
    assert cluster.job_status["restarts"] == 3


async def test_a_node_that_is_given_up_late_takes_back_what_was_charged_for_it() -> None:
    """Ranks that lose a dead node crash in seconds; the cluster waits for it for minutes."""
    cluster = await started(maxRestarts=1)
    lost = cluster.pod(1, conditions=[EVICTED | {"reason": "DeletionByTaintManager", "message": "node is gone"}])
    cluster.crash(0, message=GLOO, at=3)
    await cluster.restart()
    await cluster.world.reconcile_after(3)
    assert cluster.ledger == [(0, "Failed", True)]
    cluster.world.show_pod(lost)
    cluster.crash(0)
    await cluster.fail()
    assert cluster.ledger == [(0, "Disrupted", False), (1, "Failed", True)]
    assert cluster.job_status["resilience"]["chargedRestarts"] == 1
    assert cluster.is_replaced


async def test_disruptions_count_where_the_policy_says_so() -> None:
    cluster = await started(maxRestarts=0, disruptions="Count")
    cluster.evict()
    await cluster.fail()
    assert cluster.ledger == [(0, "Disrupted", True)]
    assert "Failed" in cluster.world.conditions


async def test_exit_codes_ask_for_a_restart_or_end_the_job() -> None:
    cluster = await started(maxRestarts=0, exitCodes={"fail": [2], "retry": [75]})
    cluster.crash(code=75)
    await cluster.restart(counts=False)
    assert cluster.ledger == [(0, "Retry", False)]
    cluster.crash(code=2)
    await cluster.fail(TOLD)
    assert cluster.ledger[-1] == (1, "Failed", True)
    assert cluster.world.conditions["Failed"]["message"].endswith(NAN)


async def test_with_such_a_code_a_rank_may_end_that_lost_its_peer() -> None:
    cluster = await started(maxRestarts=0, exitCodes={"fail": [1]})
    cluster.evict(1)
    cluster.crash(0, message="SystemExit: bye", at=7)
    await cluster.fail(TOLD)
    assert cluster.ledger == [(0, "Disrupted", False)]
    assert cluster.is_replaced


async def test_a_pod_deleted_by_hand_is_not_charged() -> None:
    cluster = await started(maxRestarts=0)
    cluster.world.show_pod(cluster.pod(1, deleted={"deletionTimestamp": "2026-01-01T00:00:05Z"}))
    cluster.crash(0, message=GLOO, at=7)
    await cluster.fail()
    assert cluster.ledger == [(0, "Disrupted", False)]
    assert cluster.last["message"].endswith(": it was deleted while it ran")
    assert cluster.is_replaced


async def test_a_job_that_took_too_long_is_no_disruption_though_its_pods_are_deleted() -> None:
    """Nothing would end it otherwise: pods do not tell who deletes them."""
    cluster = Cluster({"maxRestarts": 0})
    runtime = cluster.world.find("TrainingRuntime", "rt")
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] = 60
    cluster.world.put(runtime)
    await cluster.start()
    cluster.world.show_pod(cluster.pod(1, deleted={"deletionTimestamp": "2026-01-01T00:00:05Z"}))
    await cluster.fail()
    assert cluster.ledger == [(0, "Unknown", True)]
    assert "Failed" in cluster.world.conditions


async def test_what_volcano_takes_away_is_known_by_its_own_condition() -> None:
    cluster = await started(maxRestarts=0)
    evicted = {**EVICTED, "type": "Ready", "status": "False", "reason": "Evict", "message": "because of preempt"}
    cluster.world.show_pod(cluster.pod(1, conditions=[evicted]))
    cluster.crash(0, message=GLOO, at=7)
    await cluster.fail()
    assert cluster.ledger == [(0, "Disrupted", False)]
    assert cluster.last["message"].endswith(": Evict: because of preempt")


async def test_pods_deleted_by_a_suspension_tell_nothing_of_how_the_attempt_ends() -> None:
    cluster = await started(maxRestarts=1)
    cluster.world.show_pod(cluster.pod(0, deleted={"deletionTimestamp": "2026-01-01T00:00:05Z"}))
    cluster.world.show_pod(cluster.pod(0, suffix="later"))
    cluster.crash(1, at=9)
    await cluster.restart()
    assert cluster.ledger == [(0, "Failed", True)]


@pytest.mark.parametrize(("counts", "charged"), [(True, True), (False, False)])
async def test_of_an_unseen_attempt_the_jobset_knows_whether_it_is_charged(counts: bool, charged: bool) -> None:
    """The manager was away: pods that go say nothing of what was before."""
    cluster = await started(maxRestarts=3)
    going = cluster.pod(1, deleted={"deletionTimestamp": "2026-01-01T00:00:05Z"})
    cluster.world.restart()
    cluster.world.show_pod(going, initial=True)
    await cluster.restart(counts=counts)
    assert cluster.ledger == [], "pods may tell yet"
    await cluster.world.reconcile_after(3)
    assert cluster.ledger == [(0, "Unknown", charged)]
    assert cluster.last["message"] == "nobody saw why: its pods were gone when the manager looked"


@pytest.mark.defect("B27")
async def test_a_manager_that_was_away_meanwhile_learns_from_the_pods_that_are_there() -> None:
    """Of a JobSet that was to be replaced it is known why it is gone, whatever its time to live."""
    cluster = Cluster({"maxRestarts": 0}, ttlSecondsAfterFinished=0)
    await cluster.start()
    cluster.world.restart()
    cluster.evict(1)
    cluster.crash(0, message=GLOO, at=8)
    await cluster.fail()
    assert cluster.is_replaced
    cluster.world.restart()
    cluster.world.remove("JobSet")
    await cluster.start()
    assert cluster.ledger == [(0, "Disrupted", False)]
    assert "Blocked" not in cluster.world.conditions


async def test_of_a_job_that_is_complete_all_is_written_down_at_once() -> None:
    cluster = await started(maxRestarts=3)
    done = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
    cluster.world.change("JobSet", status={**cluster.status, "restarts": 1, "conditions": [done]})
    await cluster.world.reconcile()
    assert "Complete" in cluster.world.conditions
    assert cluster.ledger == [(0, "Unknown", False)]


async def test_a_deleted_jobset_comes_back_with_the_budget_that_is_left() -> None:
    cluster = await started(maxRestarts=3)
    cluster.crash()
    await cluster.restart()
    cluster.world.remove("JobSet")
    await cluster.start()
    assert cluster.world.find("JobSet")["spec"]["failurePolicy"]["maxRestarts"] == 2
    cluster.crash()
    await cluster.restart()
    assert cluster.ledger == [(0, "Failed", True), (1, "Failed", True)]
    assert cluster.job_status["resilience"]["chargedRestarts"] == 2


async def test_only_failures_within_the_window_count() -> None:
    cluster = await started(maxRestarts=1, restartWindow="1h")
    cluster.crash(at=6)
    await cluster.restart()
    cluster.world.clock.step(3660)
    late = cluster.pod(0, {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T01:00:30Z", "message": NAN}})
    cluster.world.show_pod(late)
    await cluster.fail()
    assert cluster.job_status["resilience"]["chargedRestarts"] == 1
    assert cluster.is_replaced
    await cluster.renew()
    assert cluster.world.find("JobSet")["spec"]["failurePolicy"]["maxRestarts"] == 0


async def test_a_node_on_which_the_job_keeps_failing_is_avoided_for_a_time() -> None:
    cluster = await started(maxRestarts=5, nodes={"avoidAfter": 2, "for": "1h"})
    for _ in range(2):
        assert not cluster.is_replaced
        cluster.crash(0, node="bad")
        await cluster.restart()
    [avoided] = cluster.job_status["resilience"]["avoidedNodes"]
    assert avoided["name"] == "bad"
    note = f"node bad is avoided until {avoided['until']}: the job failed there 2 times"
    assert note in cluster.world.events
    await cluster.renew()
    assert '"bad"' in str(cluster.world.find("JobSet")["spec"]).replace("'", '"')
    cluster.world.clock.step(3600)
    cluster.crash(0)
    await cluster.restart()
    assert "avoidedNodes" not in cluster.job_status["resilience"]


async def test_what_the_runtime_says_of_failures_holds_and_is_written_down() -> None:
    cluster = Cluster({"gracePeriod": "5s"}, failurePolicy={"maxRestarts": 4})
    await cluster.start()
    for _ in range(2):
        cluster.crash()
        await cluster.restart()
    assert "Failed" not in cluster.world.conditions
    cluster.evict()
    await cluster.fail()
    assert not cluster.is_replaced
    assert cluster.world.conditions["Failed"]["reason"] == "ReachedMaxRestarts"
    assert [reason for _, reason, _ in cluster.ledger] == ["Failed", "Failed", "Disrupted"]


async def test_where_the_ledger_is_not_kept_the_jobset_has_the_last_word() -> None:
    """The definitions of the original prune it; nothing is written again and again, nor restarted for ever."""
    cluster = Cluster({"maxRestarts": 0})

    def prune(obj: JsonObject) -> None:
        if obj["kind"] == "TrainJob" and "resilience" in obj.get("status", {}):
            del obj["status"]["resilience"]
            cluster.world.store(obj)

    cluster.world.on_write = prune
    await cluster.start()
    written = len(cluster.world.patches)
    for _ in range(3):
        await cluster.world.reconcile_after(10)
    assert len(cluster.world.patches) == written
    cluster.evict()
    await cluster.fail()
    await cluster.world.reconcile_after(3)
    assert not cluster.is_replaced
    assert cluster.world.conditions["Failed"]["reason"] == "ReachedMaxRestarts"


async def test_a_jobset_that_has_failed_before_anything_was_written_down_is_judged_all_the_same() -> None:
    cluster = Cluster({"maxRestarts": 0})
    await cluster.world.reconcile()
    cluster.status = {"restarts": 0}
    cluster.evict()
    await cluster.fail()
    assert "Failed" not in cluster.world.conditions
    await cluster.world.reconcile_after(1)
    assert cluster.ledger == [(0, "Disrupted", False)]
    assert cluster.is_replaced


@pytest.mark.parametrize(
    ("policy", "action", "failure", "replaces"),
    [
        ({"maxRestarts": 1}, "Restart", None, True),
        ({"maxRestarts": 1}, "Fail", "NoProgress", False),
        ({"maxRestarts": 1}, "Event", None, False),
        ({}, "Restart", "NoProgress", False),
        ({"maxRestarts": 1, "spent": 1}, "Restart", "MaxRestartsExceeded", False),
    ],
)
def test_violations_restart_or_fail_jobs(policy: JsonObject, action: str, failure: str | None, replaces: bool) -> None:
    spent = policy.get("spent", 0)
    built = BuiltPolicy(ResiliencePolicy(maxRestarts=policy.get("maxRestarts")))
    attempts = [{"number": 0, "reason": "Failed", "message": "", "charged": True}] * spent
    verdict = judge(
        built,
        {"jobSet": "uid", "attempts": attempts, "chargedRestarts": spent},
        {"metadata": {"uid": "uid"}, "status": {"restarts": spent}},
        lambda _: AttemptFacts(),
        violation=Violation("NoProgress", "no progress for 15m", action),
        waited=0.0,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert (verdict.failure[0] if verdict.failure else None, verdict.replaces) == (failure, replaces)
    assert [each["reason"] for each in verdict.news] == ([] if action == "Event" else ["NoProgress"])
    assert verdict.restarts == spent + replaces
    if failure == "MaxRestartsExceeded":
        assert verdict.failure == (failure, "it failed 2 times, maxRestarts is 1: no progress for 15m")


@pytest.mark.parametrize(("attempts", "restarts", "charged"), [(0, 100, 40), (10**9, 0, 0), (0, 2**31 - 2, 2**31 - 4)])
def test_of_any_number_of_attempts_only_those_that_are_remembered_are_looked_at(
    attempts: int, restarts: int, charged: int
) -> None:
    """The manager may have been away for long, and who may write a JobSet may write any number into it."""
    asked: list[int] = []

    def facts(number: int) -> AttemptFacts:
        asked.append(number)
        assert len(asked) < 100
        return AttemptFacts()

    built = BuiltPolicy(ResiliencePolicy(maxRestarts=999_999), attempts=attempts)
    stored = {"attempts": [{"number": 0, "reason": "Failed", "charged": False}], "chargedRestarts": 0}
    jobset = {"metadata": {"uid": "uid"}, "status": {"restarts": restarts, "restartsCountTowardsMax": charged}}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    early = judge(built, stored, jobset, facts, waited=0.0, now=now)
    assert (early.status["chargedRestarts"], early.news) == (0, [])
    verdict = judge(built, stored, jobset, facts, waited=9.0, now=now)
    assert (verdict.ended, verdict.status["chargedRestarts"]) == (attempts + restarts, charged)


def test_a_ledger_needs_no_more_than_the_definition_demands() -> None:
    """The API server keeps an attempt without a message."""
    stored = {"attempts": [{"number": 0, "reason": "Failed", "charged": True}], "chargedRestarts": 1}
    built, jobset = (
        BuiltPolicy(ResiliencePolicy(maxRestarts=0)),
        {"metadata": {"uid": "uid"}, "status": {"restarts": 1}},
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    verdict = judge(built, stored, jobset, lambda _: AttemptFacts(), waited=0.0, now=now)
    assert verdict.failure == ("MaxRestartsExceeded", "it failed 1 times, maxRestarts is 0: ")


async def test_a_settled_job_costs_nothing_and_of_a_deleted_one_nothing_is_kept() -> None:
    cluster = await started(maxRestarts=1)
    cluster.world.requests.clear()
    for _ in range(3):
        await cluster.world.reconcile_after(60)
    assert cluster.world.requests == []
    last = cluster.pod(deleted={"deletionTimestamp": "2026-01-01T00:00:05Z"})
    cluster.world.remove("TrainJob")
    await cluster.world.reconcile()
    for job in ("demo", "other", "another"):  # whoever may write a pod may change its labels
        last["metadata"]["labels"][JOBSET_LABEL] = job
        cluster.world.show_pod(last)
    cluster.world.show_pod(last, is_gone=True)
    assert not cluster.world.resilience.attempts._facts


async def test_a_job_that_is_deleted_while_it_is_replaced_is_left_to_garbage_collection() -> None:
    cluster = await started(maxRestarts=0)
    cluster.evict()
    await cluster.fail()
    assert cluster.is_replaced
    cluster.world.remove("TrainJob")
    cluster.world.requests.clear()
    await cluster.world.reconcile_after(1)
    assert cluster.world.requests == []


async def test_what_is_read_of_a_container_that_never_ran_is_a_failure_of_the_attempt() -> None:
    cluster = await started(maxRestarts=0)
    waiting = container_status({"waiting": {"reason": "ContainerCreating"}})
    refused = cluster.pod(containers=[waiting], phase="Failed", reason="UnexpectedAdmissionError", message="no GPU")
    cluster.world.show_pod(refused)
    await cluster.fail()
    assert cluster.ledger == [(0, "Failed", True)]
    assert cluster.last["message"].endswith("no GPU")
