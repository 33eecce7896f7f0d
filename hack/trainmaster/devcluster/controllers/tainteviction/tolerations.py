"""For how long a pod tolerates a taint. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.runtime.jsontree import JsonObject


def tolerated_for(tolerations: Iterable[JsonObject], taint: JsonObject) -> float | None:
    """Return for how many seconds a taint with the effect NoExecute is tolerated; 0: not at all, None: for ever."""
    matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
    if not matching:
        return 0.0
    limits = [each["tolerationSeconds"] for each in matching if each.get("tolerationSeconds") is not None]
    return max(0.0, float(min(limits))) if limits else None


def tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """Tell whether a toleration matches a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
