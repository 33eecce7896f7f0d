"""The policies of a Job: what a failed pod means (KEP-3329), which indexes make it a success (KEP-3998). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.devcluster.controllers.job.children import parse_ranges
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """The first rule that applies to a failed pod."""

    action: str
    message: str


def match_pod_failure_policy(job: JsonObject, pod: JsonObject) -> PolicyMatch | None:
    """Return the first rule of the Job's pod failure policy that the failed pod matches; None means: count it."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        cause = _exit_code_cause(rule.get("onExitCodes"), pod, name) or _condition_cause(
            rule.get("onPodConditions") or (), pod, name
        )
        if cause:
            return PolicyMatch(rule["action"], f"{cause} matching {rule['action']} rule at index {number}")
    return None


def _exit_code_cause(requirement: JsonObject | None, pod: JsonObject, name: str) -> str | None:
    if requirement is None:
        return None
    status = pod.get("status", {})
    for container in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
        terminated = (container.get("state") or {}).get("terminated")
        if terminated is None or requirement.get("containerName") not in {None, container["name"]}:
            continue
        code = terminated.get("exitCode", 0)
        # A container that ended well is never the reason of a failure, not even for NotIn.
        if code != 0 and (code in requirement["values"]) == (requirement["operator"] == "In"):
            return f"Container {container['name']} for pod {name} failed with exit code {code}"
    return None


def _condition_cause(patterns: list[JsonObject] | tuple[()], pod: JsonObject, name: str) -> str | None:
    for pattern in patterns:
        for condition in pod.get("status", {}).get("conditions") or ():
            if condition["type"] == pattern["type"] and condition.get("status") == pattern.get("status", "True"):
                return f"Pod {name} has condition {pattern['type']}"
    return None


def match_success_policy(job: JsonObject, completed: set[int]) -> int | None:
    """Return the number of the first rule of the Job's success policy that its completed indexes satisfy."""
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        if _is_satisfied(rule, completed):
            return number
    return None


def _is_satisfied(rule: JsonObject, completed: set[int]) -> bool:
    """Judge one rule: enough of the named indexes (all of them if no number is given), or enough of any."""
    named, enough = rule.get("succeededIndexes"), rule.get("succeededCount")
    if named is None:
        return enough is not None and len(completed) >= enough
    ranges = parse_ranges(named)
    succeeded = sum(1 for index in completed if any(index in each for each in ranges))
    return succeeded >= (sum(map(len, ranges)) if enough is None else enough)
