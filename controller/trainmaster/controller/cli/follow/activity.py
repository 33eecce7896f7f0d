"""Whether a job that runs is seen to go on: by what it reports of itself, or by what its pods have written. Pure.

That processes are there says nothing of that: a job hangs with all its pods running.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from trainmaster.controller.cli.printers import human_duration
from trainmaster.controller.container_failures import rank_of
from trainmaster.controller.explain.causes.failures.containers import told_first
from trainmaster.controller.explain.causes.pods.evidence import who
from trainmaster.controller.explain.findings import parse_time
from trainmaster.controller.explain.pods import current_pods, has_succeeded, started_at
from trainmaster.controller.explain.state import PATIENCE
from trainmaster.controller.explain.view import JobView, role_of, trainmaster
from trainmaster.runtime.jsontree import JsonObject


def activity(view: JobView) -> Iterator[str]:
    """Yield the lines that say whether a job that runs is seen to go on."""
    seen = signs(view)
    newest = min(seen)
    if newest.age <= PATIENCE and not _ended_early(view):
        others = [each.text for each in seen if each.age > PATIENCE]
        yield newest.text if others else f"all is well: {newest.text}"
        yield from (f"- {text}" for text in others)
        if others:
            yield f"- if it hangs, this shows where each of its Python processes is: {trainmaster(view, 'stack')}"
        return
    yield "nothing is known to be wrong; whether it makes progress is not known:"
    yield from (f"- {each.text}" for each in seen)
    yield "what to do:"
    yield f"- see what it does: {trainmaster(view, 'logs', '--all')}"
    yield f"- see where each of its Python processes is: {trainmaster(view, 'stack')}"


class Sign(NamedTuple):
    """Something that is to be seen of the work of a job."""

    age: timedelta
    """How old it is; for ever if it is none of progress."""

    text: str


def signs(view: JobView) -> list[Sign]:
    """Return what there is to see of the work of a job, of its logs by `last_output`."""
    return list(_signs(view))


def _signs(view: JobView) -> Iterator[Sign]:
    if done := _ended_early(view):
        yield Sign(timedelta.max, f"{told_first(done)}, and the others go on")
    reported = view.progress
    if reported is not None and (at := parse_time(reported.time)) is not None:
        yield Sign(view.now - at, f"it reported its progress {_ago(view.now - at)}")
    pods = {pod["metadata"]["uid"]: pod for pod in current_pods(view) if not has_succeeded(pod)}
    output = {uid: at for uid, at in view.last_output.items() if uid in pods}
    wrote = sorted((view.now - at, uid) for uid, at in output.items() if at is not None)
    if not pods:
        yield Sign(timedelta.max, "all of its pods have ended")
    elif not wrote:
        text = "its pods have written nothing so far" if output else "the logs of its pods were not read"
        yield Sign(timedelta.max, text)
    silent = [(age, uid) for age, uid in wrote[1:] if age - wrote[0][0] > PATIENCE]
    mute = [pods[uid] for uid, at in output.items() if at is None and _age(view, pods[uid]) > PATIENCE]
    # That others write is no sign of progress where the first node, which mostly is the one that does, is silent.
    is_first_silent = next(iter(pods), None) in {pod["metadata"]["uid"] for pod in mute} | {uid for _, uid in silent}
    for age, uid in wrote[:1]:
        yield Sign(timedelta.max if is_first_silent else age, f"{role_of(pods[uid])} wrote its last line {_ago(age)}")
    if wrote and mute:
        yield Sign(timedelta.max, f"{who(mute)} wrote nothing so far, in {_words(_age(view, mute[0]))}")
    if silent:
        of_silent = who([pods[uid] for _, uid in silent])
        yield Sign(timedelta.max, f"{of_silent} wrote nothing since: the last line is from {_ago(silent[0][0])}")


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
