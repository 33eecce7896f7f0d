"""How large each ReplicaSet of a Deployment shall be at the moment. Pure.

Names and steps are those of kube-controller-manager: the new ReplicaSet grows as far as `maxSurge` allows; the old ones
shrink as far as `maxUnavailable` allows, those pods first that do not work anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.devcluster.apiserver.registry.intorpercent import scaled_value
from trainmaster.devcluster.controllers.deployment.replicasets import (
    by_age,
    count,
    size_of,
    total_size,
)
from trainmaster.runtime.jsontree import JsonObject

Sizes = dict[str, int]
"""New sizes of ReplicaSets, by name."""


def is_rolling(deployment: JsonObject) -> bool:
    """Tell whether pods are replaced a few at a time."""
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def max_surge(deployment: JsonObject) -> int:
    """Return how many pods more than wanted there may be."""
    return _fenceposts(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: JsonObject) -> int:
    """Return how many pods of those wanted may be missing."""
    wanted: int = deployment["spec"]["replicas"]
    return min(_fenceposts(deployment)[1], wanted) if is_rolling(deployment) and wanted else 0


def _fenceposts(deployment: JsonObject) -> tuple[int, int]:
    rolling, wanted = deployment["spec"]["strategy"]["rollingUpdate"], deployment["spec"]["replicas"]
    surge = scaled_value(rolling["maxSurge"], wanted, round_up=True)
    unavailable = scaled_value(rolling["maxUnavailable"], wanted, round_up=False)
    # Shares of few pods can both be rounded to nothing, and then nothing could ever be replaced.
    return (surge, unavailable) if surge or unavailable else (0, 1)


def size_of_new(deployment: JsonObject, replicasets: Sequence[JsonObject], present: int) -> int:
    """Return the next size of the new ReplicaSet, whose size is `present`, among all of them."""
    wanted: int = deployment["spec"]["replicas"]
    if present >= wanted or not is_rolling(deployment):
        return wanted
    room = wanted + max_surge(deployment) - total_size(replicasets)
    return present + min(max(room, 0), wanted - present)


def shrink_old(deployment: JsonObject, new: JsonObject, old: Sequence[JsonObject]) -> Sizes:
    """Return the next sizes of the old ReplicaSets, as far as they change."""
    everything = [*old, new]
    least = deployment["spec"]["replicas"] - max_unavailable(deployment)
    missing = size_of(new) - count([new], "availableReplicas")
    surplus = total_size(everything) - least - missing
    if not total_size(old) or surplus <= 0:
        return {}
    sizes = {each["metadata"]["name"]: size_of(each) for each in by_age(old)}
    before = dict(sizes)
    for each in by_age(old):  # those that do not work cost nothing
        name = each["metadata"]["name"]
        broken = min(surplus, max(0, sizes[name] - count([each], "availableReplicas")))
        sizes[name] -= broken
        surplus -= broken
    spare = count(everything, "availableReplicas") - least
    for each in by_age(old):
        name = each["metadata"]["name"]
        fewer = min(max(spare, 0), sizes[name])
        sizes[name] -= fewer
        spare -= fewer
    return {name: size for name, size in sizes.items() if size != before[name]}


def scale_paused(deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]) -> Sizes:
    """Return the size of the newest ReplicaSet that has pods, by which a paused Deployment is scaled."""
    every = [*by_age(old), *([new] if new is not None else ())]
    scaled = next((each for each in reversed(every) if size_of(each)), every[-1] if every else None)
    if scaled is None:
        return {}
    others = total_size([each for each in every if each is not scaled])
    return {scaled["metadata"]["name"]: max(0, deployment["spec"]["replicas"] - others)}
