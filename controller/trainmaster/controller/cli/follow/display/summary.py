"""What followed jobs have come to, said once at the end: result, duration, cause, and what to do next; pure.

What went well comes first and what failed last, so that the cause is what one sees.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from trainmaster.controller.cli.follow.display.durations import clock, seconds_between
from trainmaster.controller.cli.follow.display.rank_groups import rank_groups, summary
from trainmaster.controller.cli.follow.failures import Failure
from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.invocation import invocation
from trainmaster.controller.cli.terminal_text import plain
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED

Kind = Literal["plain", "good", "bad", "quiet"]

_CAUSE: Final = re.compile(r"; attempt \d+(?:, restart \d+)?: ")
"""Behind it the message of a condition tells of the first failure."""

_LISTED: Final = 10
"""Jobs that did not fail; more are counted."""

_EXPLAINED: Final = 3
"""Jobs whose failures are told with their last lines; of more, one line each."""

_OTHERS: Final = 5
_LINE_LENGTH: Final = 500


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

    def line(self, verb: str, jobs: Sequence[JobStatus], *options: str) -> str:
        """Return a command for one job, or for any one of several."""
        namespaces = {status.job.namespace for status in jobs}
        return invocation(
            verb,
            jobs[0].job.name if len(jobs) == 1 else "JOB",
            *options,
            namespace=next(iter(namespaces)) if len(namespaces) == 1 else "NAMESPACE",
            default_namespace=self.namespace,
            kubeconfig=self.kubeconfig,
        )


def closing_summary(jobs: Sequence[JobStatus], commands: Commands) -> list[SummaryLine]:
    """Say what jobs have come to, and what to do next."""
    complete = [status for status in jobs if status.outcome == COMPLETE]
    others = [status for status in jobs if status.outcome not in {COMPLETE, FAILED}]
    failed = [status for status in jobs if status.outcome == FAILED]
    if len(complete) > _LISTED:
        lines = [SummaryLine(f"{len(complete)} of {len(jobs)} TrainJobs: {COMPLETE}", "good")]
    else:
        lines = [SummaryLine(_result(status), "good") for status in complete]
    lines += [SummaryLine(_result(status), "bad") for status in others[:_LISTED]]
    if len(others) > _LISTED:
        counts = Counter(status.state for status in others[_LISTED:])
        listed = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        lines.append(SummaryLine(f"and {len(others) - _LISTED} more TrainJobs: {listed}", "bad"))
    for index, status in enumerate(failed):
        lines.append(SummaryLine(_result(status), "bad"))
        lines += _cause(status, explained=index < _EXPLAINED)
    return [*lines, *_next_steps(jobs, commands)]


def _result(status: JobStatus) -> str:
    end = status.outcome
    text = f"TrainJob {status.job.key}: {end or f'still {status.state}'}"
    took = seconds_between(status.started or status.job.created, status.ended)
    if took is not None:
        text += f" after {clock(took)}"
    if status.restarts:
        text += f", {status.restarts} restart{'s' if status.restarts > 1 else ''}"
    condition = status.conditions.get(status.state)
    if condition is not None and end != COMPLETE:
        message = condition.get("message") or ""
        if status.first_failure is not None:
            message = _CAUSE.split(message)[0]  # more of it follows
        text += "".join(f": {told}" for told in (condition.get("reason"), message) if told)
    elif end is None and (groups := summary(rank_groups(status))):
        text += f", {groups}"
    return text


def _cause(status: JobStatus, *, explained: bool) -> list[SummaryLine]:
    first = status.first_failure
    if first is None:
        return []
    lines = [SummaryLine(f"  {first.text}", "bad")]
    if explained and first.lines:
        lines.append(SummaryLine("  its last lines:"))
        lines += [SummaryLine(f"  | {plain(line)[:_LINE_LENGTH]}") for line in first.excerpt]
    if others := _others(status, first):
        lines.append(SummaryLine(f"  after it failed: {others}"))
    return lines


def _others(status: JobStatus, first: Failure) -> str:
    """Name those that failed in the same attempt."""
    named: dict[str, int] = {}
    for each in status.failures:
        failure = each.failure
        if failure.attempt == first.failure.attempt and failure.pod_uid != first.failure.pod_uid:
            who = f"rank {failure.rank}" if failure.rank is not None else f"container {failure.container}"
            named.setdefault(who, failure.exit_code)
    listed = [f"{who} (exit code {code})" for who, code in list(named.items())[:_OTHERS]]
    more = f" and {len(named) - _OTHERS} more" if len(named) > _OTHERS else ""
    return ", ".join(listed) + more


def _next_steps(jobs: Sequence[JobStatus], commands: Commands) -> list[SummaryLine]:
    there = [status for status in jobs if not status.deleted and not (commands.deletes and status.outcome)]
    if not there:
        return []
    steps: list[tuple[str, str, tuple[str, ...]]] = [("logs", "logs", ("--all",))]
    if any(status.outcome is None for status in there):
        steps.append(("follow", "attach", ()))
    if any(status.state == SUSPENDED for status in there):
        steps.append(("resume", "resume", ()))
    if any(status.outcome == FAILED for status in there):
        steps.append(("again", "restart", ()))
    steps.append(("delete", "delete", ()))
    return [
        SummaryLine(f"  {f'{what}:':8}{commands.line(verb, there, *options)}", "quiet") for what, verb, options in steps
    ]
