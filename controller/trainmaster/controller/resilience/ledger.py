"""How the attempts of a TrainJob ended, what of that is charged, and what is done about it. Pure.

The JobSet starts all pods anew by itself, and counts. But it counts what it sees: that ranks crashed on other nodes
since one node had died, for instance. So the manager keeps a ledger in the status of the TrainJob, by what the pods
told, and that one counts. It outlives the JobSet. What the JobSet cannot do is done by making a new one in its place:

- it gave up although the ledger has restarts left, within their window;
- a node has failed the job so often that it is avoided from now on;
- an elastic job is resized, and the JobSet refuses to be changed in place: that is not charged;
- the training stands still, or has broken a rule about its log (`Violation`, which the monitor finds).

Where the server does not keep the ledger, as with the definitions of the original, the policy of the JobSet holds
alone, but for violations that fail the job. Where the runtime says itself what follows a failure, attempts are written
down, and nothing more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from trainmaster.controller.conditions import find_condition, is_true, stored_status
from trainmaster.controller.container_failures import REPLICATED_JOB_LABEL
from trainmaster.controller.diagnosis.first_failures import describe
from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.redaction import redact
from trainmaster.controller.resilience.attempts import PATIENCE, AttemptFacts, Disruption
from trainmaster.controller.resilience.goodput import RESIZED, RETRY, AttemptTimes
from trainmaster.runtime.api.constants import (
    JOBSET_COMPLETED,
    JOBSET_FAILED,
    JOBSET_LABEL,
    MAX_RESTARTS_EXCEEDED_REASON,
)
from trainmaster.runtime.api.meta import duration_seconds
from trainmaster.runtime.api.resilience import COUNT, EVENT, FAIL, RESTART, ResiliencePolicy
from trainmaster.runtime.elastic import Sizes
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resilience import BuiltPolicy

REMEMBERED: Final = 32
"""Attempts in the status."""

RESTARTED: Final = "Restarted"
"""Reason of the event that all pods are made anew by the manager."""

_REACHED: Final = "ReachedMaxRestarts"  # what JobSet says when it gives up
LONGEST_MESSAGE: Final = 1024

FAILED, DISRUPTED, UNKNOWN = "Failed", "Disrupted", "Unknown"
"""Reasons of attempts, with `RETRY`; those of violations have their own."""


class Violation(NamedTuple):
    """What the training does, or does not, against its policy."""

    reason: str
    """For instance NoProgress; a condition reason."""

    message: str
    action: str
    """Restart, Fail or Event."""

    since: str = ""
    """RFC 3339: since when it stands still, if it does; that time counts as stalled."""

    rule: str = ""
    """The log rule that is broken, if it is one."""


@dataclass(slots=True)
class Verdict:
    """What is to be done."""

    status: JsonObject
    """`status.resilience` of the TrainJob."""

    ended: int
    """How many attempts have ended."""

    is_end: bool = False
    """Whether the TrainJob ends with the last of them."""

    replaces: bool = False
    """Whether the JobSet is deleted, so that a new one takes its place."""

    resizes: bool = False
    """Whether the JobSet is asked to change its size in place."""

    hides_end: bool = False
    """Whether the end of the JobSet is none of the TrainJob."""

    failure: tuple[str, str] | None = None
    """Reason and message with which the TrainJob fails now."""

    held_for: float | None = None
    """For how many seconds the end of the JobSet is not to be told yet."""

    due: float | None = None
    """Seconds until it is to be looked at again."""

    events: list[tuple[str, str]] = field(default_factory=list)
    """Reasons and notes."""

    news: list[JsonObject] = field(default_factory=list)
    """Attempts whose end was found just now."""

    times: Sequence[AttemptTimes] = ()
    """Of these, and of the attempt that goes on."""

    @property
    def restarts(self) -> int:
        """How often the training was started again."""
        return self.ended - self.is_end


def judge(
    built: BuiltPolicy,
    stored: JsonObject,
    jobset: JsonObject,
    facts: Callable[[int], AttemptFacts],
    *,
    violation: Violation | None = None,
    sizes: Sizes | None = None,
    waited: float,
    now: datetime,
) -> Verdict:
    """Bring the ledger up to date, and decide what is done.

    Args:
        stored: `status.resilience` as it is stored.
        facts: Returns what is known of an attempt of it.
        sizes: How many nodes it has and is to have, if it is elastic.
        waited: For how many seconds the JobSet has been seen in this state.
    """
    uid, ended = jobset["metadata"]["uid"], _ended(stored, built.attempts)
    if stored.get("replacedJobSet") == uid:
        return Verdict(stored, ended, replaces=True, hides_end=True)
    kept = {name: value for name, value in stored.items() if name not in ("replacedJobSet", "resizing")}
    verdict = Verdict({**kept, "jobSet": uid}, ended)
    if sizes is not None:
        _note_size(verdict, sizes, jobset, now)
    conditions = stored_status(jobset)["conditions"]
    failed = find_condition(conditions, JOBSET_FAILED) if is_true(conditions, JOBSET_FAILED) else None
    write_down = partial(_write_down, verdict, built, jobset, facts, now=now)
    if is_true(conditions, JOBSET_COMPLETED):
        # Nothing is left to decide, and nothing is written down later.
        write_down(has_failed=False, waited=PATIENCE)
    elif not stored:
        _judge_without_ledger(verdict, violation, has_failed=failed is not None, waited=waited)
    elif not write_down(has_failed=failed is not None, waited=waited):
        verdict.due = PATIENCE - waited
        verdict.held_for = verdict.due if failed is not None else None
    elif sizes is not None and sizes.wanted != sizes.nodes and failed is None:
        _resize(verdict, sizes, uid, is_refused=stored.get("resizing") == sizes.wanted, now=now)
    else:
        _judge_attempts(verdict, built.policy, uid=uid, violation=violation, failed=failed, now=now)
    return verdict


def _judge_without_ledger(verdict: Verdict, violation: Violation | None, *, has_failed: bool, waited: float) -> None:
    """Decide nothing by a ledger that is not kept, but what needs none."""
    if violation is not None and violation.action == FAIL and not has_failed:
        verdict.failure, verdict.is_end = (violation.reason, violation.message), True
    verdict.hides_end = has_failed and waited < PATIENCE
    verdict.due = PATIENCE - waited if verdict.hides_end else None


def _judge_attempts(
    verdict: Verdict,
    policy: ResiliencePolicy,
    *,
    uid: str,
    violation: Violation | None,
    failed: JsonObject | None,
    now: datetime,
) -> None:
    """Decide whether the job fails, or its JobSet is replaced; `failed` is the condition of one that has failed."""
    if violation is not None and failed is None and violation.action != EVENT:
        _note_violation(verdict, violation, policy, now)
    _count(verdict.status, policy, now)
    is_asked = _avoid(verdict, policy, now) or (violation is not None and violation.action == RESTART)
    exceeded = _exceeded(verdict.status, policy) if policy.counts_failures or violation is not None else ""
    if failed is not None:
        replaces = policy.counts_failures and not exceeded and _may_go_on(verdict.status, failed)
    else:
        replaces = is_asked and not exceeded and verdict.failure is None
        if exceeded and verdict.failure is None:
            verdict.failure = MAX_RESTARTS_EXCEEDED_REASON, exceeded
    verdict.is_end = verdict.failure is not None or (failed is not None and not replaces)
    if replaces:
        _replace(verdict, uid)
        verdict.events.append(_restarted(verdict.status))


def judge_group(
    policy: ResiliencePolicy, stored: JsonObject, facts: AttemptFacts, *, is_trainer: bool, now: datetime
) -> Verdict:
    """Write down that an attempt has ended of a job of `kubeflow.org/v1`, whose pods the manager makes itself.

    Args:
        is_trainer: Whether the container that failed first is the one that trains: its exit codes have a meaning.
    """
    verdict = Verdict(dict(stored), _ended(stored, 0))
    attempt = _attempt(facts, policy, has_deadline=False, by_jobset=True, now=now)
    _append(verdict, attempt)
    _count(verdict.status, policy, now)
    _avoid(verdict, policy, now)
    code = facts.failure.exit_code if facts.failure is not None and is_trainer else 0
    if attempt["reason"] == FAILED and policy.exit_codes is not None and code in policy.exit_codes.fail:
        verdict.failure = FAILED, f"exitCodes.fail has {code}: {attempt['message']}"
    elif exceeded := _exceeded(verdict.status, policy):
        verdict.failure = MAX_RESTARTS_EXCEEDED_REASON, exceeded
    else:
        verdict.events.append(_restarted(verdict.status))
    verdict.is_end = verdict.failure is not None
    return verdict


def _exceeded(status: JsonObject, policy: ResiliencePolicy) -> str:
    """Say that a job failed more often than it may; empty if it did not."""
    charged, allowed = status.get("chargedRestarts", 0), policy.max_restarts or 0
    if charged <= allowed:
        return ""
    return f"it failed {charged} times, maxRestarts is {allowed}: {_last(status).get('message', '')}"


def _restarted(status: JsonObject) -> tuple[str, str]:
    return RESTARTED, f"all pods are made anew: {_last(status).get('message', '')}"


def _note_size(verdict: Verdict, observed: Sizes, jobset: JsonObject, now: datetime) -> None:
    nodes = observed.nodes
    selector = f"{JOBSET_LABEL}={jobset['metadata']['name']},{REPLICATED_JOB_LABEL}={observed.trainer}"
    verdict.status |= {"nodes": nodes, "selector": selector}
    sizes: Sequence[JsonObject] = verdict.status.get("worldSizes") or ()
    if sizes and sizes[-1]["nodes"] == nodes:
        return
    if sizes:
        verdict.events.append((RESIZED, f"resized from {sizes[-1]['nodes']} to {nodes} nodes"))
    verdict.status["worldSizes"] = [*sizes, {"nodes": nodes, "since": time_text(now)}][-REMEMBERED:]


def _resize(verdict: Verdict, sizes: Sizes, uid: str, *, is_refused: bool, now: datetime) -> None:
    """Change the size in place if the JobSet lets one: one that was asked and has not changed does not.

    A suspended job has no pods that could go on, so its JobSet is replaced at once.
    """
    if not sizes.suspended and not is_refused:
        verdict.resizes, verdict.due = True, 0.0
        verdict.status["resizing"] = sizes.wanted
        return
    if not sizes.suspended:
        text = f"{sizes.nodes} nodes become {sizes.wanted}; this cluster's JobSets cannot change their size in place"
        _append(verdict, {"reason": RESIZED, "message": text, "endedAt": time_text(now), "charged": False})
    _replace(verdict, uid)


def _replace(verdict: Verdict, uid: str) -> None:
    verdict.replaces = verdict.hides_end = True
    verdict.status["replacedJobSet"] = uid


def _may_go_on(status: JsonObject, failed: JsonObject) -> bool:
    """Tell whether a JobSet has failed for nothing else than a failure that the ledger does not charge, or has left.

    By an exit code with which the job fails at once ranks may end, too, that lost a peer.
    """
    return failed.get("reason") == _REACHED or _last(status).get("reason") == DISRUPTED


def _ended(status: JsonObject, before: int) -> int:
    """Return how many attempts have ended, of which so many are not in the ledger if there is none."""
    last = _last(status)
    return last["number"] + 1 if last else before


def _last(status: JsonObject) -> JsonObject:
    attempts: Sequence[JsonObject] = status.get("attempts") or ({},)
    return attempts[-1]


def _write_down(
    verdict: Verdict,
    built: BuiltPolicy,
    jobset: JsonObject,
    facts: Callable[[int], AttemptFacts],
    *,
    has_failed: bool,
    waited: float,
    now: datetime,
) -> bool:
    """Write down the attempts that have ended; tells whether all are, since pods may tell of the last one yet."""
    _amend(verdict, built.policy, facts)
    status, before = jobset.get("status") or {}, built.attempts
    total = before + status.get("restarts", 0) + has_failed
    noted = sum(each["charged"] for each in verdict.status.get("attempts") or () if each["number"] >= before)
    unnoted = status.get("restartsCountTowardsMax", 0) + has_failed - noted
    # Of those that nobody would remember it only counts what the JobSet has charged: they may be any number.
    forgotten = total - REMEMBERED - verdict.ended
    if forgotten > 0:
        if waited < PATIENCE:
            return False
        verdict.ended += forgotten
        charged = max(min(forgotten, unnoted), 0)
        unnoted -= charged
        verdict.status["chargedRestarts"] = verdict.status.get("chargedRestarts", 0) + charged
    for number in range(verdict.ended, total):
        known = facts(number)
        if known.is_open and waited < PATIENCE:
            return False
        has_deadline = _has_deadline(jobset)
        _append(verdict, _attempt(known, built.policy, has_deadline=has_deadline, by_jobset=unnoted > 0, now=now))
        unnoted -= verdict.news[-1]["charged"]
    return True


def _amend(verdict: Verdict, policy: ResiliencePolicy, facts: Callable[[int], AttemptFacts]) -> None:
    """Take back what was charged for a node that was lost: its peers crash first, and the cluster gives it up late."""
    attempts: list[JsonObject] = list(verdict.status.get("attempts") or ())
    for position, attempt in enumerate(attempts):
        known = facts(attempt["number"])
        if attempt["reason"] != FAILED or known.disruption is None or not known.disruption.is_certain:
            continue
        if known.is_disrupted and policy.disruptions != COUNT:
            attempts[position] = {"number": attempt["number"], **_disrupted(known.disruption, policy)}
            verdict.status["attempts"] = attempts
            verdict.status["chargedRestarts"] = max(verdict.status.get("chargedRestarts", 0) - 1, 0)


def _disrupted(disruption: Disruption, policy: ResiliencePolicy) -> JsonObject:
    text = f"pod {disruption.pod} was taken away from node {disruption.node or 'unknown'}: {disruption.text}"
    attempt = {
        "reason": DISRUPTED,
        "message": redact(text)[:LONGEST_MESSAGE],
        "pod": disruption.pod,
        "node": disruption.node,
    }
    return {**attempt, "endedAt": disruption.at, "charged": policy.disruptions == COUNT}


def _attempt(
    facts: AttemptFacts, policy: ResiliencePolicy, *, has_deadline: bool, by_jobset: bool, now: datetime
) -> JsonObject:
    failure, disruption = facts.failure, facts.disruption
    if disruption is not None and not disruption.is_certain and has_deadline:
        disruption = None  # perhaps its Job took too long
    if disruption is not None and facts.is_disrupted:
        return _disrupted(disruption, policy)
    if failure is None:
        text = "nobody saw why: its pods were gone when the manager looked"
        return {"reason": UNKNOWN, "message": text, "endedAt": time_text(now), "charged": by_jobset}
    retry = policy.exit_codes is not None and failure.exit_code in policy.exit_codes.retry
    return {
        "reason": RETRY if retry else FAILED,
        "message": describe(failure),
        "pod": failure.pod,
        "node": facts.node,
        "endedAt": failure.at or time_text(now),
        "charged": not retry,
    }


def _has_deadline(jobset: JsonObject) -> bool:
    """Tell whether a Job of a JobSet may take too long; then its pods are deleted, and do not know why."""
    jobs = (jobset.get("spec") or {}).get("replicatedJobs") or ()
    return any(((job.get("template") or {}).get("spec") or {}).get("activeDeadlineSeconds") for job in jobs)


def _note_violation(verdict: Verdict, violation: Violation, policy: ResiliencePolicy, now: datetime) -> None:
    _append(
        verdict,
        {"reason": violation.reason, "message": violation.message, "endedAt": time_text(now), "charged": True},
    )
    if violation.action == FAIL or not policy.max_restarts:
        verdict.failure = violation.reason, violation.message


def _append(verdict: Verdict, attempt: JsonObject) -> None:
    status = verdict.status
    told = {"number": verdict.ended, **attempt, "message": redact(str(attempt["message"]))[:LONGEST_MESSAGE]}
    verdict.ended += 1
    verdict.news.append({name: each for name, each in told.items() if each != ""})
    status["attempts"] = [*(status.get("attempts") or ()), verdict.news[-1]][-REMEMBERED:]
    if attempt["charged"]:
        status["chargedRestarts"] = status.get("chargedRestarts", 0) + 1


def _count(status: JsonObject, policy: ResiliencePolicy, now: datetime) -> None:
    """Count what is charged within the window."""
    if not policy.restart_window or "attempts" not in status:
        return
    since = time_text(now - timedelta(seconds=duration_seconds(policy.restart_window)))
    status["chargedRestarts"] = sum(each["charged"] and each.get("endedAt", "") > since for each in status["attempts"])


def _avoid(verdict: Verdict, policy: ResiliencePolicy, now: datetime) -> bool:
    """Note the nodes that are avoided; tells whether there is a new one."""
    status, nodes = verdict.status, policy.nodes
    valid = [each for each in status.get("avoidedNodes") or () if each["until"] > time_text(now)]
    new: list[str] = []
    if nodes is not None and nodes.avoid_after is not None and verdict.news:
        until = time_text(now + timedelta(seconds=duration_seconds(nodes.for_)))
        names = {each["name"] for each in valid}
        failures = Counter(_failed_on(status.get("attempts") or ()))
        hit = dict.fromkeys(_failed_on(verdict.news))
        new = [name for name in hit if failures[name] >= nodes.avoid_after and name not in names]
        for name in new:
            valid.append({"name": name, "until": until})
            note = f"node {name} is avoided until {until}: the job failed there {failures[name]} times"
            verdict.events.append(("NodeAvoided", note))
    if valid:
        status["avoidedNodes"] = valid
    else:
        status.pop("avoidedNodes", None)
    return bool(new)


def _failed_on(attempts: Sequence[JsonObject]) -> Sequence[str]:
    return [each["node"] for each in attempts if each.get("node") and each["reason"] in (FAILED, UNKNOWN)]
