"""The events about a job and what belongs to it, of a namespace that may have very many.

Guarantees:
- It is bounded: `MOST` events of the namespace are read. If there are more, those about the job, its Jobs, some of its
  pods and its claims are asked for by name, and those of pods that were taken away by reason.
- Of each kind of object the newest are kept: what is said of many pods does not push out what is said of the job.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.explain.reader import Reader
from trainmaster.controller.cli.probes import CLAIMS
from trainmaster.controller.explain.causes.pods.disruptions import EVENT_REASONS
from trainmaster.controller.explain.causes.pods.scheduling import FAILED_SCHEDULING
from trainmaster.controller.explain.causes.pods.volumes import claim_names
from trainmaster.controller.explain.findings import Event, parse_event
from trainmaster.controller.explain.pods import current_pods, has_succeeded, is_running
from trainmaster.controller.explain.view import JobView, WhyUnread
from trainmaster.controller.kube.rest.resources import EVENTS, PODS
from trainmaster.runtime.api.constants import ANCESTORS, LAUNCHER, NODE
from trainmaster.runtime.jsontree import JsonObject

MOST: Final = 5000
_OF_A_KIND: Final = 500
_BY_NAME: Final = 100
_NAMED: Final = 10
"""Of each kind, how many are asked for by name."""

_PARTS: Final = (PODS.kind, "Job", "JobSet", "PodGroup", "Workload", "Service", CLAIMS.kind, "ConfigMap")
"""Kinds of what a job is made of: their names begin with its own."""

_OF_TRAINJOBS: Final = (NODE, LAUNCHER, *ANCESTORS)
_OF_V1_JOBS: Final = ("master", "worker", "launcher", "chief", "ps", "evaluator")
"""What the names of pods have behind that of a job, for jobs that are gone."""


async def read_events(reader: Reader, view: JobView) -> Sequence[Event] | None:
    """Return the events about a job and its parts, the oldest first; None if nobody says."""
    listed = await reader.read_first(EVENTS, MOST)
    if listed is None:
        return None
    raw, is_all = listed
    if not is_all:
        raw = [*raw, *await _asked_for(reader, view)]
        about = "those about the job and some of its pods were read"
        reader.note(EVENTS, WhyUnread.FAILED, f"there are more than {MOST} of them in the namespace; {about}")
    parts = [*(view.jobsets or ()), *(view.jobs or ()), *(view.pods or ()), view.object]
    uids = {str(each["metadata"].get("uid") or "") for each in parts} - {""}
    claims = {name for pod in view.pods or () for name in claim_names(pod)}
    found = [
        event
        for event in map(parse_event, {each["metadata"]["uid"]: each for each in raw}.values())
        if event.uid in uids
        or (_is_about(event, view) and not _is_older(event, view.created))
        or (event.about.kind == CLAIMS.kind and event.about.name in claims)
    ]
    found.sort(key=lambda event: (event.last is None, event.last))
    return newest_of_each_kind(found)


def newest_of_each_kind(events: Sequence[Event]) -> Sequence[Event]:
    """Return of each kind of object the last events, in the order in which they were."""
    kept: list[Event] = []
    numbers: Counter[str] = Counter()
    for event in reversed(events):
        numbers[event.about.kind] += 1
        if numbers[event.about.kind] <= _OF_A_KIND:
            kept.append(event)
    return kept[::-1]


async def _asked_for(reader: Reader, view: JobView) -> Iterable[JsonObject]:
    """Return the events about what matters most of a job."""
    waiting = [pod for pod in current_pods(view) if not is_running(pod) and not has_succeeded(pod)][:_NAMED]
    claims = dict.fromkeys(name for pod in waiting for name in claim_names(pod))
    jobs = [each["metadata"]["name"] for each in view.jobs or ()]
    names = [view.name, *jobs[:_NAMED], *(pod["metadata"]["name"] for pod in waiting), *list(claims)[:_NAMED]]
    asked = [(f"regarding.name={name}", _BY_NAME) for name in dict.fromkeys(names)]
    asked += [(f"reason={reason}", _OF_A_KIND) for reason in (*EVENT_REASONS, FAILED_SCHEDULING)]
    lists = await asyncio.gather(*(reader.read_first(EVENTS, most, fields=selector) for selector, most in asked))
    return [event for listed in lists if listed is not None for event in listed[0]]


def _is_older(event: Event, created: datetime | None) -> bool:
    """Tell whether an event is about a namesake that was there before."""
    return created is not None and event.last is not None and event.last < created


def _is_about(event: Event, view: JobView) -> bool:
    """Tell whether the name of its object says that it was a part of the job; the object may be gone."""
    if event.about.name == view.name:
        return event.about.kind in (view.kind, *_PARTS)
    of_job, _, rest = event.about.name.partition(f"{view.name}-")
    if event.about.kind not in _PARTS or of_job:
        return False
    return any(rest == each or rest.startswith(f"{each}-") for each in _groups(view))


def _groups(view: JobView) -> Iterable[str]:
    """Return the names of the groups of pods of a job."""
    if not view.is_trainjob:
        specs = [
            value for name, value in view.spec.items() if name.endswith("ReplicaSpecs") and isinstance(value, dict)
        ]
        return [replica_type.lower() for spec in specs for replica_type in spec] or _OF_V1_JOBS
    jobs = [each for jobset in view.jobsets or () for each in (jobset.get("spec") or {}).get("replicatedJobs") or ()]
    return [str(each["name"]) for each in jobs] or _OF_TRAINJOBS
