"""Write backoff: noticing that somebody keeps undoing what we write, and writing less often then.

Two controllers that want different things of one object, or an admission webhook that changes what we send, make
a reconciler that only compares and writes run as fast as the server answers. So writes are counted for each object of
a TrainJob, which is known by its UID: the successor of a name starts afresh, however often the name is used again.

Guarantees:
- `FREE_WRITES` writes of the same content go through at once; each further one waits twice as long as the one before,
  from a second to five minutes. A change of what we desire starts over.
- After `FREE_CHANGES` such changes in a row there is `CHANGE_WAIT` between two writes: a plugin that never wants the
  same twice does not run as fast as the server answers either.
- It ends by itself: when nothing had to be written for twice the last wait (at least `QUIET`), the object is forgotten.
- Nothing of this is needed for correctness; memory holds what was written in the last minutes, and what is contested.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import structlog

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.drift import (
    Path,
    as_object,
    differences,
    managed_entries,
    owned_fields_of,
    parse_element,
)
from trainmaster.controller.reconciling.problems import EVENT_ACTION
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

FREE_WRITES: Final = 5
"""More than any honest sequence of events makes us repeat ourselves, few enough not to be felt by the server."""

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 300.0
QUIET: Final = 60.0

FREE_CHANGES: Final = 50
CHANGE_WAIT: Final = 2.0
"""Seconds; short, because the status of a large job that comes up changes as often, and for a good reason."""

_FIELDS_SHOWN: Final = 5


class WriteDelay(NamedTuple):
    """A write has to wait because the object is contested."""

    seconds: float
    first: bool
    """Whether writes of this content are delayed for the first time: the moment to report it."""


_RepeatedWrites: TypeAlias = tuple[int, int, float, int, bool]
"""Writes of the same content to one object: its digest; how many; when the last one was; how many other contents were
written right before, one after the other; whether that was reported.

A plain tuple, because the collector stops tracking one of plain values.
"""


def _wait(count: int) -> float:
    """Return the seconds from the last of so many writes to the next."""
    if count < FREE_WRITES:
        return 0.0
    return min(FIRST_WAIT * 2.0 ** min(count - FREE_WRITES, 16), LONGEST_WAIT)


def _is_over(writes: _RepeatedWrites, now: float) -> bool:
    _, count, last, _, _ = writes
    return now - last > max(2 * _wait(count), QUIET)


class WriteBackoff:
    """What was written when, by TrainJob and object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: OrderedDict[tuple[str, str], _RepeatedWrites] = OrderedDict()
        """The one written last is at the end."""

    def __len__(self) -> int:
        return len(self._written)

    def delay(self, trainjob: str, what: str, desired: Any) -> WriteDelay | None:
        """Tell for how long `desired` has to wait; the TrainJob is given by its UID, the object by kind and name."""
        writes = self._written.get((trainjob, what))
        now = self._clock.monotonic()
        if writes is None or _is_over(writes, now):
            return None
        content, count, last, changes, reported = writes
        if content != digest(desired):
            seconds = last + CHANGE_WAIT - now
            return WriteDelay(seconds, first=False) if changes >= FREE_CHANGES and seconds > 0 else None
        seconds = last + _wait(count) - now
        if seconds <= 0:
            return None
        self._written[trainjob, what] = content, count, last, changes, True
        return WriteDelay(seconds, first=not reported)

    def wrote_recently(self, trainjob: str, what: str, desired: Any) -> bool:
        """Tell whether `desired` was written in the last minutes."""
        writes = self._written.get((trainjob, what))
        return writes is not None and writes[0] == digest(desired)

    def record_write(self, trainjob: str, what: str, desired: Any) -> int:
        """Record a write that the server accepted, and return the digest of what was written."""
        now, content = self._clock.monotonic(), digest(desired)
        writes = self._written.get((trainjob, what))
        count, changes, reported = 0, 0, False
        if writes is not None and not _is_over(writes, now):
            before, count, _, changes, reported = writes
            if before != content:
                count, changes, reported = 0, changes + 1, False
        self._written[trainjob, what] = content, count + 1, now, changes, reported
        self._written.move_to_end((trainjob, what))
        while self._written and _is_over(next(iter(self._written.values())), now):
            self._written.popitem(last=False)
        return content


class FieldConflict(NamedTuple):
    """The fields of a contested object, and who else sets them."""

    fields: list[str]
    managers: list[str]

    def __str__(self) -> str:
        if not self.fields:
            return "nothing at this moment"
        fields = ", ".join(self.fields[:_FIELDS_SHOWN]) + (", ..." if len(self.fields) > _FIELDS_SHOWN else "")
        others = [manager for manager in self.managers if manager != FIELD_MANAGER]
        if others:
            return f"{fields} (set by {', '.join(others)})"
        return f"{fields} (changed by an admission webhook, or by another controller that calls itself {FIELD_MANAGER})"


async def find_field_conflict(
    client: KubeClient, resource: Resource, desired: JsonObject, *, owned_fields: JsonObject | None = None
) -> FieldConflict:
    """Read what the others made of an object, since the caches do not keep who set what.

    What of it we own (FieldsV1) is by default what we have applied.
    """
    metadata = desired["metadata"]
    try:
        live = await client.get(resource, metadata["namespace"], metadata["name"])
    except NotFound:
        return FieldConflict(["the whole object, which is deleted"], [])
    except KubeError as error:
        return FieldConflict([f"unknown, because it cannot be read: {error}"], [])
    if owned_fields is None:
        owned_fields = owned_fields_of(live, FIELD_MANAGER) or {}
    paths = [difference.path for difference in differences(desired, live, owned_fields)]
    managers = [manager for path in paths for manager in managers_of(live, path)]
    return FieldConflict([format_path(path) for path in paths], list(dict.fromkeys(managers)))


def report_conflict(conflict: FieldConflict, recorder: Recorder, job: JsonObject, kind: str, what: str) -> None:
    """Report that somebody keeps undoing what we write for a job of this kind."""
    log.warning(
        "our writes are undone again and again, writing less often from now on",
        object=what,
        fields=conflict.fields,
        managers=conflict.managers,
    )
    note = f"{what} does not stay as Trainmaster writes it, so it is written less often now; in dispute: {conflict}"
    recorder.event(job, type="Warning", reason=f"{kind}ResourceContested", action=EVENT_ACTION, note=note)


def managers_of(obj: JsonObject, path: Path) -> list[str]:
    """Name the field managers of a path in an object; one that owns all of what is around it counts."""
    found: dict[str, None] = {}
    for entry in managed_entries(obj):
        fields: JsonObject | None = as_object(entry.get("fieldsV1")) or None
        for element in path:
            if not fields:
                break
            fields = as_object(fields[element]) if element in fields else _similar_item(fields, element)
        if fields is not None:
            found[str(entry.get("manager"))] = None
    return list(found)


def format_path(path: Path) -> str:
    """Write a path as people do: `spec.replicatedJobs[name=node].replicas`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "".join(f"[{key}={value}]" for key, value in as_object(parse_element(element)).items())
        else:
            text += f"[{rest}]"
    return text.removeprefix(".")


def _similar_item(fields: JsonObject, element: str) -> JsonObject | None:
    """Find an item of a list by the part of its key that we know; the server adds the rest (a port's protocol)."""
    if not element.startswith("k:"):
        return None
    wanted = as_object(parse_element(element))
    for name, below in fields.items():
        if not name.startswith("k:"):
            continue
        keys = as_object(parse_element(name))
        if all(key in keys and keys[key] == value for key, value in wanted.items()):
            return as_object(below)
    return None


def digest(content: Any) -> int:
    """Return what stands for a content, in this process, where only its equality counts.

    The order of keys is not evened out, which takes as long as the rest: the same is built in the same order, and a
    content that is taken for another one costs a write more, no less.
    """
    return hash(orjson.dumps(content))
