"""How large each ReplicaSet of a Deployment shall be at the moment. Pure.

Names and steps are those of kube-controller-manager: the new ReplicaSet grows as far as `maxSurge` allows; the old ones
shrink as far as `maxUnavailable` allows, those pods first that do not work anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.devcluster.apiserver.registry.intorpercent import scaled_value
from trainmaster.devcluster.controllers.deployment.replicasets import (
    DESIRED,
    MAXIMUM,
    annotations_of,
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


def is_scaling_event(deployment: JsonObject, replicasets: Sequence[JsonObject]) -> bool:
    """Tell whether the number of replicas changed since the ReplicaSets were scaled the last time."""
    wanted = str(deployment["spec"]["replicas"])
    return any(size_of(each) > 0 and annotations_of(each).get(DESIRED, wanted) != wanted for each in replicasets)


def scale_in_proportion(deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]) -> Sizes:
    """Return the sizes after a change of the number of replicas, which a rollout or a pause may be in the middle of."""
    wanted: int = deployment["spec"]["replicas"]
    active = [each for each in (*old, *([new] if new is not None else ())) if size_of(each) > 0]
    if len(active) <= 1:
        # Without a rollout there is one ReplicaSet to scale: the one that runs, else the newest there is.
        one = active[0] if active else new or (by_age(old)[-1] if old else None)
        return {} if one is None else {one["metadata"]["name"]: wanted}
    if new is not None and count([new], "availableReplicas") == size_of(new) == wanted:
        return {each["metadata"]["name"]: 0 for each in old if size_of(each)}
    if not is_rolling(deployment):
        return {}
    allowed = wanted + max_surge(deployment) if wanted else 0
    change = allowed - total_size(active)
    # The largest first, so that what rounding leaves over goes to it; of equals the newer when there are more pods.
    ordered = sorted(by_age(active), key=size_of, reverse=True)
    sizes: Sizes = {}
    added = 0
    for each in ordered:
        size = size_of(each)
        share = _share(deployment, each, allowed) - size if change else 0
        left = change - added
        share = min(share, left) if change > 0 else max(share, left)
        sizes[each["metadata"]["name"]] = size + share
        added += share
    first = ordered[0]["metadata"]["name"]
    sizes[first] = max(0, sizes[first] + change - added)
    return sizes


def _share(deployment: JsonObject, replicaset: JsonObject, allowed: int) -> int:
    text = annotations_of(replicaset).get(MAXIMUM, "")
    before = (
        int(text)
        if text.isascii() and text.isdigit() and int(text)
        else (deployment.get("status") or {}).get("replicas", 0)
    )
    return int(size_of(replicaset) * allowed / before + 0.5) if before else size_of(replicaset)
