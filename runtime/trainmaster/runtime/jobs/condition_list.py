"""Conditions of a job's status: an ordered list, of which the last one is what `kubectl get` shows as STATE.

Rules, as in the Training Operator V1:

- After Failed nothing is added or changed.
- A condition that is set again with the same status and reason stays as it is.
- Setting Running drops Restarting, and the other way round; Succeeded and Failed turn Running to False.
- A condition that is set is moved to the end; Created is the first one.

One rule is ours (V1-B28): what does not hold is never the last one. Between a resumption and the next condition,
Created is.
"""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.jobs.constants import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED
from trainmaster.runtime.jsontree import JsonObject

_EXCLUSIVE: Final = {RUNNING: RESTARTING, RESTARTING: RUNNING}


class Conditions:
    """The conditions of one job, to be changed.

    Args:
        stored: Those of its status; they are not changed.
        now: The time of what changes, RFC 3339.
    """

    def __init__(self, stored: list[JsonObject], now: str) -> None:
        created = [dict(each) for each in stored if each.get("type") == CREATED]
        self._conditions = created + [dict(each) for each in stored if each.get("type") != CREATED]
        self._now = now

    def get(self, condition_type: str) -> JsonObject | None:
        """Return the condition of a type."""
        return next((each for each in self._conditions if each.get("type") == condition_type), None)

    def is_true(self, condition_type: str) -> bool:
        """Tell whether a condition exists and holds."""
        found = self.get(condition_type)
        return found is not None and found.get("status") == "True"

    def set(self, condition_type: str, reason: str, message: str, *, status: str = "True") -> bool:
        """Set a condition; tells whether that changed anything."""
        if self.is_true(FAILED):
            return False
        old = self.get(condition_type)
        if old is not None and old.get("status") == status and old.get("reason") == reason:
            return False
        since = self._now
        if old is not None and old.get("status") == status:
            since = old.get("lastTransitionTime") or self._now
        dropped = {condition_type, _EXCLUSIVE.get(condition_type)}
        self._conditions = [each for each in self._conditions if each.get("type") not in dropped]
        if condition_type in (FAILED, SUCCEEDED) and (running := self.get(RUNNING)) is not None:
            running["status"] = "False"
        self._conditions.append(
            {
                "type": condition_type,
                "status": status,
                "reason": reason,
                "message": message,
                "lastUpdateTime": self._now,
                "lastTransitionTime": since,
            }
        )
        return True

    def put(self, condition_type: str, reason: str, message: str) -> None:
        """Set a condition that holds, in new words as well."""
        old = self.get(condition_type)
        if old is None or (old.get("reason"), old.get("message")) != (reason, message):
            self.remove(condition_type)
            self.set(condition_type, reason, message)

    def remove(self, condition_type: str) -> None:
        """Remove the condition of a type."""
        self._conditions = [each for each in self._conditions if each.get("type") != condition_type]

    def to_json(self) -> list[JsonObject]:
        """Return them as they are to be stored."""
        conditions = self._conditions
        if conditions and conditions[-1].get("status") != "True":
            holding = [each for each in conditions if each.get("status") == "True"]
            if holding:
                conditions = [each for each in conditions if each is not holding[-1]] + [holding[-1]]
        return conditions
