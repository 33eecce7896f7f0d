"""What is found in a view: causes, each with its evidence; and the events and times that evidence is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from trainmaster.controller.explain.cause import Cause
from trainmaster.runtime.jsontree import JsonObject


def parse_time(text: Any) -> datetime | None:
    """Return the moment that a timestamp of the API means (RFC 3339); None for anything else."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class Certainty(IntEnum):
    """How sure a finding is; larger is surer."""

    POSSIBLE = 1
    """A symptom that has other causes as well, for instance a line of a log or an exit code."""

    LIKELY = 2
    """Several facts point at it, and none says it."""

    CERTAIN = 3
    """Kubernetes, a controller or a scheduler says so: a condition, a state of a container, an event."""

    @property
    def word(self) -> str:
        """As it is written: `certain`, `likely`, `possible`."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """An object of the cluster; one that all namespaces share has an empty namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As people name it within its namespace."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something that an object tells."""

    object: ObjectReference
    text: str
    """One line, in the words of who wrote it where those matter; nothing secret, and no longer than needed."""

    at: datetime | None = None
    """When that was, if it is known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, and why it is thought to be the one."""

    cause: Cause
    certainty: Certainty
    evidence: Sequence[Evidence]
    """At least one, what tells most first. Of many objects that tell the same, one and how many they are."""

    since: datetime | None = None
    """Since when it holds, or when it happened; None if nobody knows."""

    advice: Sequence[str] = ()
    """What to do, a line each, commands written out; what the cause says in general, where it is empty."""

    @property
    def what_next(self) -> Sequence[str]:
        """What to do, in any case."""
        return self.advice or self.cause.advice


def reference_to(obj: JsonObject) -> ObjectReference:
    """Return the reference to an object, which has its kind."""
    metadata = obj["metadata"]
    return ObjectReference(str(obj.get("kind") or ""), metadata.get("namespace") or "", metadata["name"])


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


def parse_event(raw: JsonObject) -> Event:
    """Read an event; all of its fields may be missing."""
    regarding = raw.get("regarding") or raw.get("involvedObject") or {}
    series = raw.get("series") or {}
    created = (raw.get("metadata") or {}).get("creationTimestamp")
    first = raw.get("eventTime") or raw.get("deprecatedFirstTimestamp") or raw.get("firstTimestamp") or created
    last = series.get("lastObservedTime") or raw.get("deprecatedLastTimestamp") or raw.get("lastTimestamp") or first
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
    )
