"""The status of a Deployment: counts, and the conditions that `kubectl rollout status` waits for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.deployment.replicasets import count, total_size
from trainmaster.devcluster.controllers.deployment.rolling import max_unavailable
from trainmaster.devcluster.controllers.objects import condition_of, find_condition, parse_time
from trainmaster.runtime.jsontree import JsonObject

AVAILABLE, PROGRESSING, REPLICA_FAILURE = "Available", "Progressing", "ReplicaFailure"
_NO_DEADLINE = 2**31 - 1


def deployment_status(deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]) -> JsonObject:
    """Return the counts; conditions are those of before, but for availability, which `set_conditions` judges."""
    replicasets = [*old, *([new] if new is not None else ())]
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": count(replicasets, "replicas"),
        "updatedReplicas": 0 if new is None else count([new], "replicas"),
        "readyReplicas": count(replicasets, "readyReplicas"),
        "availableReplicas": count(replicasets, "availableReplicas"),
        "unavailableReplicas": max(0, total_size(replicasets) - count(replicasets, "availableReplicas")),
    }
    status = {field: value for field, value in status.items() if value}
    before = deployment.get("status") or {}
    if before.get("collisionCount"):
        status["collisionCount"] = before["collisionCount"]
    status["terminatingReplicas"] = count(replicasets, "terminatingReplicas")
    if before.get("conditions"):
        status["conditions"] = list(before["conditions"])
    return status


def set_availability(deployment: JsonObject, status: JsonObject, *, now: datetime) -> None:
    """Judge whether enough pods are available."""
    enough = status.get("availableReplicas", 0) >= deployment["spec"]["replicas"] - max_unavailable(deployment)
    if enough:
        reason, message = "MinimumReplicasAvailable", "Deployment has minimum availability."
    else:
        reason, message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    set_condition(status, AVAILABLE, "True" if enough else "False", reason=reason, message=message, now=now)


def set_progress(deployment: JsonObject, status: JsonObject, new: JsonObject | None, *, now: datetime) -> None:
    """Judge how far the rollout is."""
    known = find_condition(deployment, PROGRESSING)
    done = known is not None and known.get("reason") == "NewReplicaSetAvailable"
    if not has_deadline(deployment):
        _remove_condition(status, PROGRESSING)
        return
    if done and status.get("replicas", 0) == status.get("updatedReplicas", 0):
        return  # a rollout that is over stays over, whatever happens to single pods
    name = f'ReplicaSet "{new["metadata"]["name"]}"' if new is not None else "Deployment " + _quoted(deployment)
    if is_complete(deployment, status):
        message = f"{name} has successfully progressed."
        set_condition(status, PROGRESSING, "True", reason="NewReplicaSetAvailable", message=message, now=now)
    elif _has_progressed(deployment.get("status") or {}, status):
        message = f"{name} is progressing."
        since = known["lastTransitionTime"] if known is not None and known["status"] == "True" else None
        _remove_condition(status, PROGRESSING)
        set_condition(status, PROGRESSING, "True", reason="ReplicaSetUpdated", message=message, now=now, since=since)
    elif is_late(deployment, status, now=now):
        message = f"{name} has timed out progressing."
        set_condition(status, PROGRESSING, "False", reason="ProgressDeadlineExceeded", message=message, now=now)


def set_failure(status: JsonObject, replicasets: Sequence[JsonObject]) -> None:
    """Pass on what keeps ReplicaSets from making pods, of the newest that has something to tell."""
    _remove_condition(status, REPLICA_FAILURE)
    for each in reversed(replicasets):
        failure = find_condition(each, REPLICA_FAILURE)
        if failure is not None:
            own = {**failure, "lastUpdateTime": failure["lastTransitionTime"]}
            status["conditions"] = [*(status.get("conditions") or ()), own]
            return


def _quoted(deployment: JsonObject) -> str:
    return f'"{deployment["metadata"]["name"]}"'


def has_deadline(deployment: JsonObject) -> bool:
    """Tell whether a rollout may take only so long."""
    return bool(deployment["spec"].get("progressDeadlineSeconds", _NO_DEADLINE) != _NO_DEADLINE)


def is_complete(deployment: JsonObject, status: JsonObject) -> bool:
    """Tell whether all pods that are wanted, and no others, are there, new and available."""
    wanted = deployment["spec"]["replicas"]
    return (
        all(status.get(field, 0) == wanted for field in ("updatedReplicas", "replicas", "availableReplicas"))
        and status["observedGeneration"] >= deployment["metadata"]["generation"]
    )


def _has_progressed(before: JsonObject, status: JsonObject) -> bool:
    def old(counts: JsonObject) -> int:
        return int(counts.get("replicas", 0) - counts.get("updatedReplicas", 0))

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old(status) < old(before) or any(status.get(field, 0) > before.get(field, 0) for field in grown)


def is_late(deployment: JsonObject, status: JsonObject, *, now: datetime) -> bool:
    """Tell whether nothing has happened in a rollout for too long."""
    condition = condition_of(status.get("conditions") or (), PROGRESSING)
    if condition is None or condition.get("reason") == "NewReplicaSetAvailable" or _is_paused(condition):
        return False
    return condition.get("reason") == "ProgressDeadlineExceeded" or now >= deadline_of(deployment, condition)


def _is_paused(condition: JsonObject) -> bool:
    """Tell whether a condition says that the Deployment is paused."""
    return bool(condition.get("reason") == "DeploymentPaused")


def deadline_of(deployment: JsonObject, condition: JsonObject) -> datetime:
    """Return the moment at which a rollout that makes no progress counts as failed."""
    since = parse_time(condition.get("lastUpdateTime") or condition["lastTransitionTime"])
    return since + timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])


def next_check(deployment: JsonObject, status: JsonObject, *, now: datetime) -> float | None:
    """Return the seconds after which a rollout that makes no progress has to be judged again."""
    condition = condition_of(status.get("conditions") or (), PROGRESSING)
    settled = {"NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"}
    if condition is None or condition.get("reason") in settled or not has_deadline(deployment):
        return None
    if is_complete(deployment, status):
        return None
    return max((deadline_of(deployment, condition) - now).total_seconds(), 0.0)


def set_condition(
    status: JsonObject,
    kind: str,
    value: str,
    *,
    reason: str,
    message: str,
    now: datetime,
    since: str | None = None,
) -> None:
    """Set a condition in a private status; one that says the same with the same reason stays as it is."""
    conditions = status.setdefault("conditions", [])
    known = condition_of(conditions, kind)
    if known is not None and known.get("status") == value and known.get("reason") == reason:
        return
    moment = timestamp(now)
    if known is not None and known.get("status") == value:
        since = known["lastTransitionTime"]
    new = {
        "type": kind,
        "status": value,
        "lastUpdateTime": moment,
        "lastTransitionTime": since or moment,
        "reason": reason,
        "message": message,
    }
    status["conditions"] = [each for each in conditions if each["type"] != kind] + [new]


def _remove_condition(status: JsonObject, kind: str) -> None:
    kept = [each for each in status.get("conditions") or () if each["type"] != kind]
    if kept:
        status["conditions"] = kept
    else:
        status.pop("conditions", None)
