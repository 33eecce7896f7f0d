"""What followed jobs have come to, said once at the end: result, duration, cause, and what to do next; pure.

What went well comes first and what failed last, so that the cause is what one sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from trainmaster.controller.cli.follow.activity import signs
from trainmaster.controller.cli.follow.failures import Failure
from trainmaster.controller.cli.follow.job_status import GOOD, FollowedJob, JobStatus, pod_phase
from trainmaster.controller.cli.output import one_line, plain
from trainmaster.controller.cli.printers import invocation
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.advice import READ_ITS_LOG
from trainmaster.controller.explain.causes.failures.containers import ended_first, told_first
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.pods import current_pods, place_of
from trainmaster.controller.explain.state import words_of_end
from trainmaster.controller.kube.clock import seconds_between
from trainmaster.runtime.api.constants import COMPLETE, FAILED, NODE, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

_WORDS: Final = {"Running": "running", "Succeeded": "done", "Pending": "pending", "Failed": "failed"}
_PROMISING: Final = ("Running", "Succeeded")

Kind = Literal["plain", "good", "bad", "quiet"]

_LISTED: Final = 10
"""Jobs that did not fail; more are counted."""

_EXPLAINED: Final = 3
"""Jobs whose failures are told with their last lines; of more, one line each."""

_OTHERS: Final = 5
_LINE_LENGTH: Final = 500


def clock(seconds: float) -> str:
    """Write a duration: `0:42`, `1:02:03`, `2d 01:02`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minutes}:{second:02}"


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Pods that do the same, of a replicated job of the JobSet."""

    name: str
    total: int
    phases: Counter[str]
    """How many of them are in which phase, or kept by what."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come of them."""
        return self.phases["Succeeded"] >= self.total > 0

    @property
    def text(self) -> str:
        """For instance `2/4 running, 1 pending`."""
        if not self.phases:
            return f"0/{self.total} pods"
        first = next((each for each in _PROMISING if self.phases[each]), None) or self.phases.most_common(1)[0][0]
        parts = [f"{self.phases[first]}/{self.total} {_WORDS.get(first, first)}"]
        parts += [f"{self.phases[each]} {_WORDS.get(each, each)}" for each in sorted(self.phases) if each != first]
        return ", ".join(parts)


def rank_groups(status: JobStatus) -> list[RankGroup]:
    """Return the groups of a job in the order in which they start; of a rank that was replaced, its last pod counts."""
    pods: dict[str, list[JsonObject]] = {NODE: []} if status.nodes else {}
    for pod in current_pods(status.view):
        place = place_of(pod)
        pods.setdefault(NODE if place is None else place.group, []).append(pod)
    groups = []
    for name in sorted(pods, key=_order):
        phases = Counter(map(pod_phase, pods[name]))
        total = max(phases.total(), (status.nodes or 0) if name == NODE else 0)
        groups.append(RankGroup(name, total, phases))
    return groups


def _order(name: str) -> tuple[int, str]:
    return (0 if name.endswith("initializer") else 2 if name == NODE else 1), name


def summary(groups: Sequence[RankGroup]) -> str:
    """Say how those fare that are not done yet; of a job that is, its ranks."""
    told = [group for group in groups if not group.is_done] or groups[-1:]
    return "; ".join(
        group.text if told == [group] and group.name == NODE else f"{group.name} {group.text}" for group in told
    )


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """A line, and what it means."""

    text: str
    kind: Kind = "plain"


@dataclass(frozen=True, slots=True)
class Commands:
    """How commands for the followed jobs are to be written."""

    namespace: str = "default"
    """The one that they take if none is named."""

    kubeconfig: str | None = None
    """The one that they need to have named."""

    deletes: bool = False
    """Whether jobs are deleted when they have ended, and nothing can be done with them any more."""

    def line(self, verb: str, jobs: Sequence[FollowedJob], *options: str) -> str:
        """Return a command for one job, or for any one of several."""
        namespaces = {job.namespace for job in jobs}
        return invocation(
            verb,
            jobs[0].argument if len(jobs) == 1 else "JOB",
            *options,
            namespace=next(iter(namespaces)) if len(namespaces) == 1 else "NAMESPACE",
            default_namespace=self.namespace,
            kubeconfig=self.kubeconfig,
        )

    def left(self, jobs: Sequence[FollowedJob]) -> str:
        """Say that jobs go on by themselves, and what to do with them."""
        return (
            f"{', '.join(job.title for job in jobs)} goes on\n"
            f"  to follow it again: {self.line('attach', jobs)}\n"
            f"  to end it: {self.line('delete', jobs)}"
        )


def closing_summary(jobs: Sequence[JobStatus], commands: Commands) -> list[SummaryLine]:
    """Say what jobs have come to, and what to do next."""
    complete = [status for status in jobs if status.outcome in GOOD]
    others = [status for status in jobs if status.outcome not in {*GOOD, FAILED}]
    failed = [status for status in jobs if status.outcome == FAILED]
    if len(complete) > _LISTED:
        lines = [SummaryLine(f"{len(complete)} of {len(jobs)} jobs: {COMPLETE}", "good")]
    else:
        lines = [SummaryLine(_result(status), "good") for status in complete]
    for index, status in enumerate(others[:_LISTED]):
        lines.append(SummaryLine(_result(status), "bad"))
        if status.outcome is None and index < _EXPLAINED:
            lines += [SummaryLine(f"  {why}", "bad") for why in _why(status)]
    if len(others) > _LISTED:
        counts = Counter(status.state for status in others[_LISTED:])
        listed = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        lines.append(SummaryLine(f"and {len(others) - _LISTED} more jobs: {listed}", "bad"))
    for index, status in enumerate(failed):
        lines.append(SummaryLine(_result(status), "bad"))
        lines += _cause(status, explained=index < _EXPLAINED)
    return [*lines, *_next_steps(jobs, commands)]


def _result(status: JobStatus) -> str:
    end = status.outcome
    text = f"{status.job.title}: {end or f'still {status.state}'}"
    took = seconds_between(status.began, status.ended)
    if took is not None:
        text += f" after {clock(took)}"
    if status.restarts:
        text += f", {status.restarts} restart{'s' if status.restarts > 1 else ''}"
    condition = status.conditions.get(status.state)
    if condition is not None and end not in GOOD:
        reason, message = condition.get("reason"), condition.get("message") or ""
        said, failure = words_of_end(status.view, condition)
        if not said:
            reason, message = "", failure
        if status.last_failures:
            message = message.partition("; attempt ")[0] if said else ""  # more of it follows
        text += "".join(f": {told}" for told in (reason, message) if told)
    elif end is None and (groups := summary(rank_groups(status))):
        text += f", {groups}"
    return text


def _why(status: JobStatus) -> list[str]:
    """Say what keeps a job from ending, or what was seen of its work, as far as it and its pods tell."""
    if status.state in status.conditions:
        return []
    view = status.view
    if known := next((each for each in explain(view).findings if each.cause != Cause.UNKNOWN), None):
        return [one_line(f"{known.cause}: {known.evidence[0].text}")[:_LINE_LENGTH]]
    return [each.text for each in signs(view)] if status.last_output else []


def _cause(status: JobStatus, *, explained: bool) -> list[SummaryLine]:
    failures = status.last_failures
    if not failures:
        return []
    first = failures[0]
    done = ended_first(status.view, first.failure)
    lines = [SummaryLine(f"  {f'{told_first(done)}; ' if done else ''}{first.text}", "bad")]
    if explained and first.lines and not first.seen:
        lines.append(SummaryLine("  its last lines:"))
        lines += [SummaryLine(f"  | {plain(line)[:_LINE_LENGTH]}") for line in first.excerpt]
    if others := _others(failures):
        lines.append(SummaryLine(f"  after it failed: {others}"))
    return lines


def _others(failures: Sequence[Failure]) -> str:
    """Name those that failed beside the first in other pods."""
    uid = failures[0].failure.pod_uid
    named = {each.who: each.failure.exit_code for each in failures if each.failure.pod_uid != uid}
    listed = [f"{who} (exit code {code})" for who, code in list(named.items())[:_OTHERS]]
    more = f" and {len(named) - _OTHERS} more" if len(named) > _OTHERS else ""
    return ", ".join(listed) + more


def _next_steps(jobs: Sequence[JobStatus], commands: Commands) -> list[SummaryLine]:
    there = [status for status in jobs if not status.deleted and not (commands.deletes and status.outcome)]
    going_on = [status for status in there if status.outcome is None]
    failed = [status for status in there if status.outcome == FAILED]
    steps: list[tuple[str, str, list[JobStatus], tuple[str, ...]]] = [
        ("logs", "logs", [status for status in there if status.has_log], ("--all",)),
        ("follow", "attach", going_on, ()),
        ("why", "explain", [*going_on, *filter(_is_explained_further, failed)], ()),
        ("resume", "resume", [status for status in there if status.state == SUSPENDED], ()),
        ("again", "restart", failed, ()),
        ("delete", "delete", there, ()),
    ]
    return [
        SummaryLine(f"  {f'{what}:':8}{commands.line(verb, [status.job for status in of], *options)}", "quiet")
        for what, verb, of, options in steps
        if of
    ]


def _is_explained_further(status: JobStatus) -> bool:
    """Whether `trainmaster explain` says more of a job that failed than which program failed, and what it said last."""
    first = next(iter(explain(status.view).findings))
    told = all(line.startswith(READ_ITS_LOG) for line in first.advice)
    return not status.last_failures or first.cause is not Cause.CONTAINER_FAILED or not told
