"""The status writer: the one status patch of a reconcile, if there is something to write.

Guarantees:
- C-11, C-12: the status goes through the status subresource, and an equal status means no request.
- C-9, C-10: the patch carries UID and resource version of what was read; after a conflict everything is read again.
- A change that concerns nothing but counters waits up to `COUNTERS_INTERVAL`, so that a job whose pods come up one by
  one costs one write and not one for each pod. Whatever else changes is written at once, together with the newest
  counters. What waits is never lost: the caller looks again when it is due.
- A field that the installed definition lacks is written once by a process, and not again.
- A status that somebody keeps undoing is written less often (see `write_backoff`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, final

import structlog

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.expectations import Expectations
from trainmaster.controller.reconciling.problems import ProblemReporter
from trainmaster.controller.reconciling.write_backoff import WriteBackoff, find_field_conflict
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

COUNTERS_INTERVAL: Final = 1.0

_STATUS: Final = "the status"
_TIMES: Final = frozenset({"lastTransitionTime", "lastUpdateTime"})


@final
@dataclass(slots=True, kw_only=True, eq=False)
class StatusWriter:
    """Writes the statuses of the jobs of one kind, which `resource` names."""

    client: KubeClient
    resource: Resource
    jobs: Store
    only_counters: Callable[[JsonObject, JsonObject], bool]
    """Tells of two statuses whether they differ in nothing but counters."""

    expectations: Expectations
    write_backoff: WriteBackoff
    problem_reporter: ProblemReporter
    clock: Clock
    _log: Any = field(default_factory=log.bind)
    """Bound once: each call of one that is not bound binds it."""

    _unknown: set[str] = field(default_factory=set)
    """Fields that the server dropped: the installed definition, the original's for instance, does not have them."""

    _due: dict[str, float] = field(default_factory=dict)
    """When counters that are not written yet have to be, by key."""

    async def write(self, key: str, raw: JsonObject, new: JsonObject) -> float | None:
        """Bring the status of the object `raw` to `new`; if that has to wait, return the seconds until it is due."""
        new = {field: value for field, value in new.items() if field not in self._unknown}
        stored = raw.get("status")
        old = stored if isinstance(stored, dict) else {}
        patch = status_patch(old, new)
        if patch is None:
            self._due.pop(key, None)
            return None
        if self.only_counters(old, new) and (seconds := self.schedule_counters(key)):
            return seconds
        content = without_times(new)
        metadata = raw["metadata"]
        delay = self.write_backoff.delay(metadata["uid"], _STATUS, content)
        if delay is not None:
            if delay.first:
                wanted = {"metadata": {name: metadata[name] for name in ("namespace", "name")}, "status": content}
                ours: JsonObject = {"f:status": {f"f:{field}": {} for field in content}}
                conflict = await find_field_conflict(self.client, self.resource, wanted, owned_fields=ours)
                self.problem_reporter.report_conflict(raw, _STATUS, conflict)
            return delay.seconds
        patch["metadata"] = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            status, version = await self.client.patch_status(
                self.resource, metadata["namespace"], metadata["name"], patch, field_manager=FIELD_MANAGER
            )
        except NotFound:
            return None
        self._due.pop(key, None)
        if unknown := new.keys() - (status or {}).keys():
            self._unknown |= unknown
            self._log.warning("the installed definition lacks fields of the status", fields=sorted(unknown))
        holding = [c["type"] for c in new.get("conditions") or [] if c.get("status") == "True"]
        self._log.debug("status changed", conditions=holding)
        written = {**raw, "metadata": {**metadata, "resourceVersion": version}}
        self.expectations.expect_write(key, written, self.jobs, own=True, foreseen=status == new)
        self.write_backoff.record_write(metadata["uid"], _STATUS, content)
        return None

    def schedule_counters(self, key: str) -> float:
        """Have counters of a key written when it is their time; return the seconds until then."""
        now = self.clock.monotonic()
        return max(self._due.setdefault(key, now + COUNTERS_INTERVAL) - now, 0.0)

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._due.pop(key, None)


def status_patch(old: JsonObject, new: JsonObject) -> JsonObject | None:
    """Build the JSON merge patch that turns one status into another; None when there is nothing to change.

    An empty status is removed as a whole: the schema demands at least one property in a status that is present.
    """
    if old == new:
        return None
    if not new:
        return {"status": None}
    return {"status": _merge_patch(old, new)}


def _merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    patch: JsonObject = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if value != before:
                patch[key] = _merge_patch(before, value)
        elif key not in old or value != before:
            patch[key] = value
    return patch


def without_times(status: JsonObject) -> JsonObject:
    """Return a status without the times of its conditions: what it says, not since when."""
    conditions = [
        {name: value for name, value in condition.items() if name not in _TIMES}
        for condition in status.get("conditions") or []
    ]
    return {**status, "conditions": conditions}
