"""Pod failure policy (KEP-3329): what a failed pod means for its Job, judged by exit codes and pod conditions."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True, slots=True)
class Match:
    """The first rule that applies to a failed pod."""

    action: str
    message: str


def match_failure(job: JsonObject, pod: JsonObject) -> Match | None:
    """Return the first rule of the Job's pod failure policy that the failed pod matches; None means: count it."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        cause = _exit_code_cause(rule.get("onExitCodes"), pod, name) or _condition_cause(
            rule.get("onPodConditions") or (), pod, name
        )
        if cause:
            return Match(rule["action"], f"{cause} matching {rule['action']} rule at index {number}")
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
