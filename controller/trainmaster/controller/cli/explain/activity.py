"""Whether a job that runs is seen to go on: by what it reports of itself, or by what its pods have written lately.

That processes are there says nothing of that: a job hangs with all its pods running. The last line of a few pods is
looked at, those of the first nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

from trainmaster.controller.cli.explain.reader import Reader
from trainmaster.controller.cli.jobs.rows import human_duration
from trainmaster.controller.container_failures import rank_of
from trainmaster.controller.explain.causes.pods.evidence import spec_of, who
from trainmaster.controller.explain.causes.pods.sidecars import training_container
from trainmaster.controller.explain.findings import parse_time
from trainmaster.controller.explain.pods import current_pods, has_succeeded, started_at
from trainmaster.controller.explain.state import PATIENCE
from trainmaster.controller.explain.view import JobView, role_of, trainmaster
from trainmaster.runtime.jsontree import JsonObject

LATELY: Final = timedelta(minutes=2)
"""How old a line or a report may be that shows that a job goes on."""

_MOST: Final = 8
"""Pods whose last line is looked at."""


async def read_last_output(reader: Reader, view: JobView) -> dict[str, Any]:
    """Return the field `last_output` of a view."""
    pods = [pod for pod in current_pods(view) if not has_succeeded(pod)][:_MOST]
    times = await asyncio.gather(*(_last_line(reader, view, pod) for pod in pods))
    known = [(pod, at) for pod, at in zip(pods, times, strict=True) if at is not None]
    return {"last_output": {pod["metadata"]["uid"]: parse_time(at) for pod, at in known}}


async def _last_line(reader: Reader, view: JobView, pod: JsonObject) -> str | None:
    """Return when the container that trains wrote its last line; empty: it has written none; None: nobody says."""
    container = training_container(view, pod) or str(next(iter(spec_of(pod)["containers"]))["name"])
    log = await reader.read_log(pod, container, tail=1)
    return None if log is None else log.since or ""


def activity(view: JobView) -> Iterator[str]:
    """Yield the lines that say whether a job that runs is seen to go on."""
    done = _ended_early(view)
    signs = list(_signs(view))
    newest = min(signs)
    if newest.age <= LATELY and not done:
        yield f"all is well: {newest.text}"
        others = [each.text for each in signs if each.age > LATELY]
        yield from (f"- {text}" for text in others)
        if others or newest.age > PATIENCE:
            yield f"- if it hangs, this shows where each of its Python processes is: {trainmaster(view, 'stack')}"
        return
    yield "nothing is known to be wrong; whether it makes progress is not known:"
    if done:
        yield f"- {who(done)} ended first, with exit code 0, and the others go on"
    yield from (f"- {each.text}" for each in signs)
    yield "what to do:"
    yield f"- see what it does: {trainmaster(view, 'logs', '--all')}"
    yield f"- see where each of its Python processes is: {trainmaster(view, 'stack')}"


class _Sign(NamedTuple):
    """Something that is to be seen of the work of a job."""

    age: timedelta
    """How old it is; for ever if it is none of progress."""

    text: str


def _signs(view: JobView) -> Iterator[_Sign]:
    """Yield what there is to see of the work of a job."""
    reported = view.progress
    if reported is not None and (at := parse_time(reported.time)) is not None:
        yield _Sign(view.now - at, f"it reported its progress {_ago(view.now - at)}")
    pods = {pod["metadata"]["uid"]: pod for pod in current_pods(view)}
    wrote = sorted(((view.now - at, uid) for uid, at in view.last_output.items() if at is not None))
    if not wrote:
        text = "its pods have written nothing so far" if view.last_output else "the logs of its pods were not read"
        yield _Sign(timedelta.max, text)
    silent = [(age, uid) for age, uid in wrote[1:] if age - wrote[0][0] > LATELY]
    mute = [pods[uid] for uid, at in view.last_output.items() if at is None and _age(view, pods[uid]) > LATELY]
    # That others write is no sign of progress where the first node, which mostly is the one that does, is silent.
    is_first_silent = next(iter(pods)) in {pod["metadata"]["uid"] for pod in mute} | {uid for _, uid in silent}
    for age, uid in wrote[:1]:
        yield _Sign(timedelta.max if is_first_silent else age, f"{role_of(pods[uid])} wrote its last line {_ago(age)}")
    if wrote and mute:
        yield _Sign(timedelta.max, f"{who(mute)} wrote nothing so far, in {_words(_age(view, mute[0]))}")
    if silent:
        of_silent = who([pods[uid] for _, uid in silent])
        yield _Sign(timedelta.max, f"{of_silent} wrote nothing since: the last line is from {_ago(silent[0][0])}")


def _ended_early(view: JobView) -> list[JsonObject]:
    """Return the nodes that have ended while others go on."""
    nodes = [pod for pod in current_pods(view) if rank_of(pod) is not None]
    done = [pod for pod in nodes if has_succeeded(pod)]
    return done if len(done) < len(nodes) else []


def _age(view: JobView, pod: JsonObject) -> timedelta:
    return view.now - (started_at(pod) or view.now)


def _ago(age: timedelta) -> str:
    return f"{_words(age)} ago"


def _words(age: timedelta) -> str:
    return human_duration(max(age, timedelta()).total_seconds())
