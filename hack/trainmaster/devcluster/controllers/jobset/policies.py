"""The policies of a JobSet: what its failed and successful Jobs mean, and which Jobs may start. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.devcluster.controllers.jobset.children import replicas_of
from trainmaster.devcluster.controllers.jobset.status import replicated_job_of
from trainmaster.devcluster.controllers.objects import find_condition, parse_time
from trainmaster.runtime.jsontree import JsonObject

FAIL = "FailJobSet"
RESTART = "RestartJobSet"
RESTART_IGNORING_MAXIMUM = "RestartJobSetAndIgnoreMaxRestarts"


@dataclass(frozen=True, slots=True)
class FailurePolicyResult:
    """What the failure policy says: an action, the rule that chose it, and the Job that is to blame."""

    action: str
    rule: str | None
    job: str


def apply_failure_policy(jobset: JsonObject, failed: Sequence[JsonObject]) -> FailurePolicyResult:
    """Apply the first rule that matches a failed Job; without one the JobSet restarts."""
    for rule in jobset["spec"]["failurePolicy"].get("rules") or ():
        matching = [job for job in failed if _matches(rule, job)]
        if matching:
            return FailurePolicyResult(rule["action"], rule.get("name", ""), first_failed_job(matching))
    return FailurePolicyResult(RESTART, None, first_failed_job(failed))


def first_failed_job(failed: Sequence[JsonObject]) -> str:
    """Return the name of the Job that failed first."""
    earliest = min(failed, key=lambda job: parse_time(_failure(job)["lastTransitionTime"]))
    name: str = earliest["metadata"]["name"]
    return name


def _failure(job: JsonObject) -> JsonObject:
    condition = find_condition(job, "Failed")
    if condition is None:
        raise ValueError(f"Job {job['metadata']['name']} has not failed")
    return condition


def _matches(rule: JsonObject, job: JsonObject) -> bool:
    condition = _failure(job)
    reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
    targets = rule.get("targetReplicatedJobs")
    return (
        (not reasons or condition.get("reason") in reasons)
        and (not patterns or any(re.search(pattern, condition.get("message", "")) for pattern in patterns))
        and (not targets or replicated_job_of(job) in targets)
    )


def is_success_policy_met(jobset: JsonObject, successful: Sequence[JsonObject]) -> bool:
    """Tell whether the success policy is satisfied."""
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or [each["name"] for each in jobset["spec"]["replicatedJobs"]]
    succeeded = sum(1 for job in successful if replicated_job_of(job) in targets)
    if policy.get("operator", "All") == "Any":
        return succeeded >= 1
    wanted = sum(replicas_of(each) for each in jobset["spec"]["replicatedJobs"] if each["name"] in targets)
    return succeeded >= wanted


def is_startup_in_order(jobset: JsonObject) -> bool:
    """Tell whether each replicated Job waits for the one before it."""
    return bool((jobset["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder")


def all_replicas_started(replicated_job: JsonObject, count: JsonObject) -> bool:
    """Tell whether every Job of a replicated Job runs or has ended."""
    started: int = count["ready"] + count["succeeded"] + count["failed"]
    return started == replicas_of(replicated_job)


def are_dependencies_reached(jobset: JsonObject, replicated_job: JsonObject, counts: Mapping[str, JsonObject]) -> bool:
    """Tell whether what the replicated Job depends on has come far enough."""
    by_name = {each["name"]: each for each in jobset["spec"]["replicatedJobs"]}
    for dependency in replicated_job.get("dependsOn") or ():
        needed, count = by_name[dependency["name"]], counts[dependency["name"]]
        if dependency["status"] == "Complete":
            reached = count["succeeded"] == replicas_of(needed)
        else:
            reached = all_replicas_started(needed, count)
        if not reached:
            return False
    return True
