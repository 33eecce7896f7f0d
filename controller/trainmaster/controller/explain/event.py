"""Events, as they are read: of `events.k8s.io/v1` or `v1`, with the fields that recorders of either fill."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainmaster.controller.explain.findings import ObjectReference
from trainmaster.controller.explain.times import parse_time
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True, slots=True)
class Event:
    """Something that somebody said about an object, perhaps several times."""

    about: ObjectReference
    uid: str
    """Of the object; empty if the event does not tell."""

    reason: str
    """CamelCase, for instance `FailedScheduling`."""

    note: str
    is_warning: bool
    first: datetime | None
    last: datetime | None
    count: int
    reporter: str
    """Which controller said it, for instance `default-scheduler`, `kubelet`, `jobset`."""


def parse_event(raw: JsonObject) -> Event:
    """Read an event; all of its fields may be missing."""
    regarding = raw.get("regarding") or raw.get("involvedObject") or {}
    series = raw.get("series") or {}
    created = (raw.get("metadata") or {}).get("creationTimestamp")
    first = raw.get("eventTime") or raw.get("deprecatedFirstTimestamp") or raw.get("firstTimestamp") or created
    last = series.get("lastObservedTime") or raw.get("deprecatedLastTimestamp") or raw.get("lastTimestamp") or first
    source: dict[str, Any] = raw.get("deprecatedSource") or raw.get("source") or {}
    return Event(
        about=ObjectReference(
            str(regarding.get("kind") or ""), str(regarding.get("namespace") or ""), str(regarding.get("name") or "")
        ),
        uid=str(regarding.get("uid") or ""),
        reason=str(raw.get("reason") or ""),
        note=str(raw.get("note") or raw.get("message") or ""),
        is_warning=raw.get("type") == "Warning",
        first=parse_time(first),
        last=parse_time(last),
        count=int(series.get("count") or raw.get("deprecatedCount") or raw.get("count") or 1),
        reporter=str(raw.get("reportingController") or raw.get("reportingComponent") or source.get("component") or ""),
    )
