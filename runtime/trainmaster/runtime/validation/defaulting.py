"""Defaulting of TrainJobs: the time of each runtime patch, and amounts in canonical form.

All other defaults are those of the schema.

- A new patch without a time gets the present one; a time that the user gives to a new patch stays.
- An unchanged patch keeps the time that it had, a changed one gets the present time, whatever the user says: the time
  is that of the last change.
- Amounts of resources are spelled as the API server would: `1.5` CPUs are `1500m`. A number with a fraction is thus
  admitted, which the schema would refuse. Those that mean what is stored stay as they are stored, perhaps from before
  there was a webhook: another spelling would be a change of an immutable field.
- The objects that are given are not changed. What cannot be understood is left as it is, for the schema to refuse.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from trainmaster.runtime.canonical import TemplateInvalid, canonicalize_resources, without_blanks
from trainmaster.runtime.jsontree import JsonObject

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def default_trainjob(obj: JsonObject, old: JsonObject | None, *, now: datetime) -> JsonObject:
    """Return a TrainJob with its defaults; the very same object if it has them all.

    Args:
        old: The one that is stored, when it is an update.
    """
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    defaulted = _with_times(_with_amounts(spec, _spec(old)), _spec(old), now)
    return obj if defaulted == spec else {**obj, "spec": defaulted}


def _spec(obj: JsonObject | None) -> JsonObject:
    spec = (obj or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _with_amounts(spec: JsonObject, old: JsonObject) -> JsonObject:
    spelled = _spelled(spec)
    if spelled is None:
        return spec
    resources = old["trainer"]["resourcesPerNode"] if _spelled(old) == spelled else spelled
    return {**spec, "trainer": {**spec["trainer"], "resourcesPerNode": resources}}


def _spelled(spec: JsonObject) -> JsonObject | None:
    """Return the resources of the trainer in canonical form; None if there are none that could be understood."""
    trainer = spec.get("trainer")
    resources = trainer.get("resourcesPerNode") if isinstance(trainer, dict) else None
    if not isinstance(resources, dict):
        return None
    spelled = dict(resources)
    try:
        canonicalize_resources(spelled)
    except (AttributeError, TemplateInvalid):
        return None
    return spelled


def _with_times(spec: JsonObject, old: JsonObject, now: datetime) -> JsonObject:
    patches = spec.get("runtimePatches")
    if not isinstance(patches, list):
        return spec
    before = {patch.get("manager"): patch for patch in _patches(old) if isinstance(patch.get("manager"), str)}
    stamped = [
        _stamped(patch, before.get(patch["manager"]), now)
        if isinstance(patch, dict) and isinstance(patch.get("manager"), str)
        else patch
        for patch in patches
    ]
    return {**spec, "runtimePatches": stamped}


def _patches(spec: JsonObject) -> list[JsonObject]:
    patches = spec.get("runtimePatches")
    return [patch for patch in patches if isinstance(patch, dict)] if isinstance(patches, list) else []


def _stamped(patch: JsonObject, old: JsonObject | None, now: datetime) -> JsonObject:
    present = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if old is None:
        time = _normalised(patch["time"]) if patch.get("time") is not None else present
    elif _without_time(patch) == _without_time(old):
        time = old.get("time")
    else:
        time = present
    if time == patch.get("time"):
        return patch
    rest = {key: value for key, value in patch.items() if key != "time"}
    return rest if time is None else {**rest, "time": time}


def _without_time(patch: JsonObject) -> JsonObject:
    stripped: JsonObject = without_blanks({key: value for key, value in patch.items() if key != "time"})
    return stripped


def _normalised(time: Any) -> Any:
    """Write a time as the API does: in UTC, with whole seconds."""
    if not isinstance(time, str) or not _RFC_3339.fullmatch(time):
        return time
    try:
        return datetime.fromisoformat(time.upper()).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        return time
