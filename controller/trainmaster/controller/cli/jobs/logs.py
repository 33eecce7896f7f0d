"""`trainmaster logs`: what the containers of a job have printed; and `attach`, which follows all of a job.

Without options it is the log of rank 0, or of the launcher where there is one, up to now. Where there is no log, the
reason is told: pods that wait, or are gone, and how the job failed. Where another rank failed first, the command for
its log is told. An embedded cluster keeps the logs of all attempts until the job is deleted; of a log that was too long
for it, what is missing is told.

Exit codes: 0 there was a log, whatever became of the job; 1 there was none, or the cluster cannot be used; 2 there is
no such job or rank; 130 interrupted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from trainmaster.controller.cli.follow.follower import follow_jobs, make_reporter
from trainmaster.controller.cli.follow.job_logs import LogChoice
from trainmaster.controller.cli.follow.job_status import GOOD, JobStatus, followed_job, has_log
from trainmaster.controller.cli.follow.pod_logs import LogOptions
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.cli.follow.summary import Commands
from trainmaster.controller.cli.jobs.log_sources import (
    LogSource,
    Member,
    find_members,
    kept_logs,
    lines,
    log_source,
    merged,
    of_rank,
    read,
    why_no_log,
)
from trainmaster.controller.cli.jobs.lookup import Job, find_job
from trainmaster.controller.cli.jobs.options import (
    add_cluster_options,
    add_job,
    count,
    namespace_of,
    next_command,
    on_cluster,
)
from trainmaster.controller.cli.output import write_log_line
from trainmaster.controller.cli.printers import FAILURE, INTERRUPTED, report
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.explain.pods import last_failures
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.runtime.api.constants import FAILED

_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "logs",
        description="Print the log of rank 0 of a job (or its launcher), of another rank, or of all.",
    )
    add_job(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=count, metavar="N", help="the log of this rank; default: 0, or the launcher")
    which.add_argument(
        "--all", action="store_true", help="all ranks, launchers and initializers by time, with prefixes"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="continue until the job ends; wait for pending pods"
    )
    run = parser.add_mutually_exclusive_group()
    run.add_argument(
        "-p", "--previous", action="store_true", help="the previous run of the container, or of a pod that was replaced"
    )
    run.add_argument("--attempt", type=count, metavar="N", help="this attempt, counted from 0; default: the last")
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines; default: all")
    parser.add_argument(
        "--since", type=_seconds, metavar="DURATION", help="lines of this time, for instance 30s, 10m or 1h30m"
    )
    parser.add_argument("--timestamps", action="store_true", help="begin each line with its time")
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(_logs))


def _seconds(text: str) -> int:
    found = _DURATION.fullmatch(text)
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)) if found else 0
    )
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration above 0; write 30s, 10m or 1h30m")
    return seconds


async def _logs(client: KubeClient, arguments: argparse.Namespace) -> int:
    if arguments.follow and (arguments.previous or arguments.attempt is not None):
        raise Rejected(["-f follows the current run, and --previous and --attempt read another: leave -f out"])
    job = await find_job(client, namespace_of(client, arguments), arguments.job)
    options = LogOptions(arguments.tail, arguments.since, arguments.timestamps)
    if arguments.follow and job.outcome is None:
        return await _follow(client, job, arguments, options)
    readable = list[_Log]()
    found = await find_members(client, job, await kept_logs(client, job.uid))
    wanted = _wanted(client, job, found, arguments)
    for member in wanted:
        pod = member.pod["metadata"]["name"]
        source = log_source(member, previous=arguments.previous, attempt=arguments.attempt)
        if source is not None and source.dropped is not None:
            readable.append((member, source))
            _say_which(member, source, arguments, options)
        elif source is not None:
            report(f"{member.name}: the log of attempt {source.attempt} is gone: logs of later ones took its place")
        elif arguments.attempt is not None:
            there = sorted(run.attempt for run in member.runs if run.dropped is not None)
            known = f"there are logs of: {', '.join(map(str, there))}" if there else "there is no log yet"
            report(f"{member.name}: no attempt {arguments.attempt} is known; {known}")
        elif arguments.previous:
            report(f"{member.name}: pod {pod} has had no run before the current one")
        else:
            report(f"{member.name}: pod {pod} has no log yet: {why_no_log(member.pod)}")
    if readable:
        await _print(client, job, readable, options, prefixed=arguments.all)
        if arguments.rank is None and not arguments.all and (first := _failed_first(job, found)) is not None:
            command = next_command("logs", job, client, arguments)
            report(f"{first.name} failed first; its log: {command} --rank {(first.ranks or [first.node])[0]}")
        return 0
    if wanted and not arguments.previous and arguments.attempt is None:
        report(f"  what next: {next_command('logs', job, client, arguments)} -f waits for it")
    return FAILURE


class _LogReporter(Reporter):
    """Prints logs; of their job what keeps these from being written, and how it ended unless it completed."""

    pods_told = 0

    def __init__(self, commands: Commands, choice: LogChoice) -> None:
        super().__init__(commands)
        self._choice = choice
        self.has_log = False
        """Whether a container has started whose log is asked for."""

    def close(self, jobs: Iterable[JobStatus]) -> None:
        """Say how the job ended."""
        [status] = jobs
        self.has_log = any(map(has_log, self._choice.pods_of(status)))
        if status.outcome not in GOOD or not self.has_log:
            super().close([status])


async def _follow(client: KubeClient, job: Job, arguments: argparse.Namespace, options: LogOptions) -> int:
    """Follow the logs of a job over restarts and replaced pods, until it has ended."""
    choice = LogChoice(arguments.rank, arguments.all, options, tells_of_empty=True)
    commands = Commands(namespace=client.config.namespace, kubeconfig=arguments.kubeconfig)
    reporter = _LogReporter(commands, choice)
    code = await follow_jobs(client, [followed_job(job.object, job.resource)], reporter, choice=choice)
    return code if code == INTERRUPTED else 0 if reporter.has_log else FAILURE


def _say_which(member: Member, source: LogSource, arguments: argparse.Namespace, options: LogOptions) -> None:
    """Tell what is not to be seen of the log that is printed: of whom it is, and what it lacks."""
    if arguments.rank is not None and member.ranks != range(arguments.rank, arguments.rank + 1):
        ranks = f"ranks {member.ranks.start}-{member.ranks[-1]} print" if member.ranks else "all its ranks print"
        report(f"rank {arguments.rank} runs on node {member.node}, where {ranks} to this one log")
    if not arguments.previous and arguments.attempt is None and source is member.runs[0]:
        if source.pod_uid != member.pod["metadata"]["uid"]:
            waits = f"pod {member.pod['metadata']['name']} has no log yet: {why_no_log(member.pod)}"
            report(f"{member.name}: {waits}; this is the log of attempt {source.attempt}")
        elif source.previous:
            report(f"{member.name}: its container waits for its next start; this is the log of its last run")
    if source.dropped and options.is_whole:
        report(
            f"{member.name}: the first {source.dropped / 2**20:.1f} MiB of this log are missing: of long logs the "
            "cluster keeps the end"
        )


def _failed_first(job: Job, found: Sequence[Member]) -> Member | None:
    """Return the node that a job failed of, where it is not the one whose log is that of the job."""
    if job.outcome != FAILED:
        return None
    pods = [pod for member in found for pod in member.pods]
    failures = last_failures(JobView(job.object, now=datetime.now(UTC), pods=pods))
    if len(failures) > 1 and not failures[0].failure.message:
        return None  # only their logs tell who lost whom
    uids = {each.failure.pod_uid for each in failures[:1]}
    nodes = (each for each in found if each.node is not None and not each.leads)
    return next((each for each in nodes if uids & {pod["metadata"]["uid"] for pod in each.pods}), None)


_Log = tuple[Member, LogSource]
"""Whose log is printed, and which run of it."""


def _wanted(client: KubeClient, job: Job, found: list[Member], arguments: argparse.Namespace) -> list[Member]:
    """Return the members whose logs are asked for; says what there is if there are none.

    Raises:
        Rejected: There is no such rank.
    """
    if not found:
        for line in _explain_no_pods(job):
            report(line)
        if job.outcome is None:
            verb = "resume" if job.is_suspended else "explain"
            report(f"  what next: {next_command(verb, job, client, arguments)}")
        return []
    chosen = found if arguments.all else of_rank(found, arguments.rank)
    if not chosen:
        names = ", ".join(member.name for member in found)
        rank = arguments.rank or 0
        if job.outcome is not None and any(member.ranks and rank < member.ranks.start for member in found):
            lacking = f"has ended ({job.outcome}), and the pod of rank {rank} is deleted, and its log with it"
        else:
            lacking = f"has no {'pod that leads' if arguments.rank is None else f'rank {rank}'} at the moment"
        raise Rejected([f"{job.title} {lacking}; there are: {names} (--all prints them all)"])
    return chosen


def _explain_no_pods(job: Job) -> list[str]:
    """Say why a job has no pods, as far as it knows."""
    if job.outcome is not None:
        condition = job.conditions[job.outcome]
        told = f": {condition['message']}" if condition.get("message") else ""
        return [
            f"{job.title} has ended ({job.outcome}), and its pods are deleted, and their logs with them",
            f"  it says: {condition.get('reason')}{told}",
        ]
    if job.is_suspended:
        return [f"{job.title} is suspended, and has no pods"]
    reasons = [
        f"  {kind}: {condition.get('message') or condition.get('reason')}" for kind, condition in job.conditions.items()
    ]
    return [f"{job.title} has no pods yet", *(reasons or ["  it says nothing about that yet; logs -f waits for them"])]


async def _print(client: KubeClient, job: Job, logs: Sequence[_Log], options: LogOptions, *, prefixed: bool) -> None:
    """Print a log, or several by the times of their lines; a terminal gets them line by line."""
    if prefixed:
        stamped = replace(options, timestamps=True)
        streams = {log[0].name: _read_beside_others(client, job, log, stamped) for log in logs}
        width = max(map(len, streams))
        async with aclosing(merged(streams)) as found:
            async for name, line in found:
                shown = line if options.timestamps else line.partition(b" ")[2]
                write_log_line(shown, prefix=f"{name:<{width}} | ")
    else:
        async with aclosing(_read(client, job, logs[0], options)) as chunks:
            on_terminal = sys.stdout.isatty()
            async for part in lines(chunks) if on_terminal else chunks:
                write_log_line(part) if on_terminal else sys.stdout.buffer.write(part)
    sys.stdout.flush()


async def _read(client: KubeClient, job: Job, log: _Log, options: LogOptions) -> AsyncGenerator[bytes, None]:
    """Read a log; where the current run has written nothing yet, that of the run before tells more."""
    member, source = log
    is_empty = True
    async with aclosing(read(client, job.namespace, source, options)) as chunks:
        async for chunk in chunks:
            is_empty = False
            yield chunk
    if not is_empty or options.tail == 0:
        return
    if options.since_seconds is not None:
        report(f"{member.name}: its container has written nothing in that time")
        return
    before = log_source(member, previous=True)
    if source.is_over:
        report(f"{member.name}: its container ended, and wrote nothing")
    elif not options.is_whole or before is None or before == source:
        report(f"{member.name}: its container has written nothing yet")
    else:
        report(f"{member.name}: its current run has written nothing yet; this is the log of the run before")
        async with aclosing(read(client, job.namespace, before, options)) as chunks:
            async for chunk in chunks:
                yield chunk


async def _read_beside_others(
    client: KubeClient, job: Job, log: _Log, options: LogOptions
) -> AsyncGenerator[bytes, None]:
    """Read a log of several: if it cannot be read, that keeps nobody from the others."""
    try:
        async with aclosing(_read(client, job, log, options)) as chunks:
            async for chunk in chunks:
                yield chunk
    except KubeError as error:
        report(f"{log[0].name}: pod {log[1].pod}: its log cannot be read: {error}")


def attach(commands: Any) -> None:
    """Add `attach`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "attach",
        description="Follow a job like `trainmaster run`, with the same exit codes. Ctrl-C does not end the job.",
    )
    parser.add_argument("job", metavar="JOB", help="its name, as `trainmaster list` has it")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=count, metavar="N", help="the node of this rank; default: 0, or the launcher")
    which.add_argument("--all", action="store_true", help="all ranks, launchers and initializers, with prefixes")
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines of earlier output; default: all")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(_attach))


async def _attach(client: KubeClient, arguments: argparse.Namespace) -> int:
    job = await find_job(client, namespace_of(client, arguments), arguments.job)
    commands = Commands(namespace=client.config.namespace, kubeconfig=arguments.kubeconfig)
    followed = followed_job(job.object, job.resource)
    code = await follow_jobs(
        client,
        [followed],
        make_reporter(plain=arguments.plain, commands=commands),
        choice=LogChoice(arguments.rank, arguments.all, LogOptions(arguments.tail)),
    )
    if code == INTERRUPTED:
        report(f"detached; {commands.left([followed])}")
    return code
