"""Follows jobs until all have ended, time is up, or Ctrl-C, and reports what happens: `run`, `attach`, `logs -f`.

- Conditions, phases of pods and warnings about them are reported once each; logs are passed on as they are written.
- Before the end of a job is reported, its log is read to the end, also if the job was faster than we were.
- Only what belongs to these jobs counts: nothing of others that had their names before.
- A job whose runtime does not exist has not ended, but is not waited for either: what is missing, and where it could
  come from, is reported at once.
- Why a job failed is recorded when it happens: a pod that failed may be deleted a moment later.
- While the cluster cannot be reached, that is what the jobs show, and it is waited for.

Exit codes: 0 all jobs are complete; 1 a job failed, was deleted or lacks its runtime; 3 time is up; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

from trainmaster.controller.cli.cluster import watch_manager
from trainmaster.controller.cli.follow.failure_recorder import FailureRecorder
from trainmaster.controller.cli.follow.failures import Failure
from trainmaster.controller.cli.follow.job_informers import JobInformers, Observation, Ownership
from trainmaster.controller.cli.follow.job_logs import FIRST_NODE, JobLogs, LogChoice
from trainmaster.controller.cli.follow.job_status import (
    DELETED,
    GOOD,
    FollowedJob,
    JobStatus,
    job_name_of,
    pod_phase,
    why_failed,
)
from trainmaster.controller.cli.follow.reporter import Reporter, shows_displays
from trainmaster.controller.cli.follow.runtime_reference import explain_missing
from trainmaster.controller.cli.follow.summary import Commands
from trainmaster.controller.cli.printers import FAILURE, INTERRUPTED
from trainmaster.controller.cli.responses import fault_of
from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, WAITING
from trainmaster.controller.explain.pods import has_ended
from trainmaster.controller.job_fields import JobFields
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, NotFound, TransportError
from trainmaster.controller.kube.rest.resources import EVENTS, PODS
from trainmaster.runtime.api.constants import FAILED, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

UNATTENDED_AFTER: Final = 5.0
"""Seconds; a controller that is well takes less than one."""

_DRAIN_TIMEOUT: Final = 10.0
_RETRY_AFTER: Final = 1.0
_USUAL_PHASES: Final = frozenset(
    {"Pending", "ContainerCreating", "PodInitializing", "Running", "Succeeded", "Terminating"}
)

_TOLD_AS_FAILURES: Final = frozenset({"BackOff", CONTAINER_FAILED, "BackoffLimitExceeded", "FailedJobs"})
"""Events about failures of containers, of which pods and their logs tell more, and about what is given up for them,
which the job says when it ends.
"""

_ENDS_WITHIN: Final = 1.0
"""Seconds from the failure of a container to the end of its job, if it is to end by that."""

_NOT_STARTED: Final = "unable to start container process"
"""What container runtimes say in events of a failure that is told as well."""

_NEVER_FITS: Final = "it can never run here"
"""What the embedded cluster says of a pod that asks for more than its node has."""

_NEXT: Final = {SUSPENDED: "resume", BLOCKED: "explain", WAITING: "explain"}
"""The command for what keeps a job from running."""

_UNSCHEDULED: Final = "FailedScheduling"

TIMED_OUT: Final = 3


class Follower:
    """Follows some jobs, which may have ended already."""

    def __init__(
        self,
        client: KubeClient,
        jobs: Sequence[FollowedJob],
        reporter: Reporter,
        *,
        choice: LogChoice = FIRST_NODE,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._clock = clock or SystemClock()
        self._jobs = {job.key: JobStatus(job) for job in jobs}
        self._phases: dict[str, str] = {}
        self._restarts: dict[str, int] = {}
        self._warned: set[tuple[str, str, str]] = set()
        """Jobs, reasons and what was said of their objects: what keeps one pod waiting keeps all that are alike."""

        self._advice: dict[str, asyncio.Task[None]] = {}
        self._failures: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The first error in what runs in the background: nothing may end there without a word."""

        self._informers = JobInformers(client, jobs, on_outage=self._on_outage, on_refusal=self._on_refusal)
        self._ownership = Ownership(client)
        self._logs = JobLogs(client, reporter, choice, is_prefixed=len(jobs) > 1, start=self._start)
        self._recorder = FailureRecorder(client, reporter, self._logs)

    @property
    def jobs(self) -> list[JobStatus]:
        """The jobs as far as they are known."""
        return list(self._jobs.values())

    @property
    def succeeded(self) -> bool:
        """Whether all jobs are complete."""
        return all(status.outcome in GOOD for status in self.jobs)

    def note_last_output(self) -> None:
        """Record in the jobs when their pods wrote last."""
        for status in self.jobs:
            status.last_output = self._logs.last_output

    async def run(self) -> None:
        """Follow until all jobs have ended, or wait in vain."""
        try:
            self._start(self._informers.run())
            self._start(self._take_note())
            self._start(self._notice_absence())
            ended = self._start(self._wait_for_end())
            await asyncio.wait([ended, self._failed], return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)

    # What is observed

    async def _take_note(self) -> None:
        while True:
            observation = await self._informers.next()
            while True:
                try:
                    await self._observe(observation)
                    break
                except TransportError:
                    await self._clock.sleep(_RETRY_AFTER)  # what belongs to whom can be asked when the cluster is back
            self._informers.done()

    async def _observe(self, observation: Observation) -> None:
        if observation.resource == EVENTS:
            await self._on_event(observation.object)
        elif observation.resource == PODS:
            await self._on_pod(observation.object, is_deleted=observation.is_deleted)
        else:
            self._on_job(observation.object, is_deleted=observation.is_deleted)

    def _on_job(self, job: JsonObject, *, is_deleted: bool) -> None:
        metadata = job["metadata"]
        status = self._jobs.get(f"{metadata['namespace']}/{metadata['name']}")
        if status is None or status.outcome is not None:
            return
        if is_deleted or metadata["uid"] != status.job.uid:
            # What was deleted and created again may arrive as one update.
            status.deleted |= not is_deleted or metadata["uid"] == status.job.uid
        else:
            fields = JobFields(job)
            before = status.conditions
            status.object = job
            status.progress = fields.progress
            status.is_attended |= bool(job.get("status"))
            status.nodes = (job["spec"].get("trainer") or {}).get("numNodes") or status.nodes
            for kind, condition in status.conditions.items():
                # Of failures that were seen in the pods more is told.
                is_told = kind in {*GOOD, FAILED} or (kind == CONTAINER_FAILED and status.failures)
                if not is_told and condition.get("message") != before.get(kind, {}).get("message"):
                    self._reporter.report(
                        f"{status.job.title}: {kind}: {condition.get('message') or condition.get('reason')}"
                    )
                    if kind in _NEXT and not status.lacks_runtime:
                        self._what_next(status, _NEXT[kind])
            if status.lacks_runtime and status.job.key not in self._advice:
                self._advice[status.job.key] = self._start(self._advise(status.job))
        self._changed()
        if status.may_leave_pods and not self._ended.is_set():
            self._start(self._close([status]))

    async def _close(self, jobs: Iterable[JobStatus]) -> None:
        """Take note of all pods as they are now, and no more of those that ended jobs have left."""
        with contextlib.suppress(TimeoutError):  # the cluster went away as well
            async with asyncio.timeout(_DRAIN_TIMEOUT):
                await self._informers.catch_up()
        for status in jobs:
            if status.may_leave_pods and not all(map(has_ended, status.pods.values())):
                status.is_closed = True
                self._logs.close(status.pods)

    async def _on_pod(self, pod: JsonObject, *, is_deleted: bool) -> None:
        metadata = pod["metadata"]
        status = self._jobs.get(f"{metadata['namespace']}/{job_name_of(pod)}")
        if status is None or status.is_closed or not await self._ownership.of_pod(pod, status):
            return
        status.observe_pod(pod)
        self._report_phase(status, pod)
        # Also the last state may be news: it may carry an exit code.
        self._logs.observe_pod(status, pod)
        for kept in self._recorder.observe_pod(status, pod):
            self._failures.append(self._start(self._tell_failure(status, kept)))
        if is_deleted:
            status.forget_pod(metadata["uid"])
            self._logs.forget_pod(metadata["uid"])
        self._changed()

    def _report_phase(self, status: JobStatus, pod: JsonObject) -> None:
        uid, phase = pod["metadata"]["uid"], pod_phase(pod)
        if self._phases.get(uid) != phase:
            self._phases[uid] = phase
            if phase not in _USUAL_PHASES or len(status.pods) <= self._reporter.pods_told:
                self._reporter.report(f"pod {pod['metadata']['name']}: {phase}{why_failed(pod)}")
        if status.restarts > self._restarts.setdefault(status.job.key, status.restarts):
            self._restarts[status.job.key] = status.restarts
            self._reporter.report(f"{status.job.title}: started again (restart {status.restarts})")

    async def _on_event(self, event: JsonObject) -> None:
        regarding = event.get("regarding") or {}
        named = self._named(regarding.get("namespace") or "", regarding.get("name") or "")
        reason, note = event.get("reason"), event.get("note") or ""
        if event.get("type") != "Warning" or named is None or reason in _TOLD_AS_FAILURES or _NOT_STARTED in note:
            return
        blocked = named.conditions.get(BLOCKED, {}).get("message")
        warning = named.job.key, str(reason), note
        if (blocked and blocked in note) or warning in self._warned or not await self._ownership.of_event(event, named):
            return
        if reason == _UNSCHEDULED and await self._is_past(regarding):
            return
        self._warned.add(warning)
        never = _NEVER_FITS in note
        what = f"{'problem' if never else 'warning'}: {regarding.get('kind')} {regarding.get('name')}"
        self._reporter.report(f"{what}: {reason}: {note}", bad=never)
        if never:
            self._what_next(named, "explain")

    def _what_next(self, status: JobStatus, verb: str) -> None:
        self._reporter.report(
            f"  what next: {self._reporter.commands.line(verb, [status.job])}; Ctrl-C ends the waiting"
        )

    async def _is_past(self, pod: JsonObject) -> bool:
        """Whether a pod that could not be scheduled has a node by now, or is gone: events stay for an hour."""
        try:
            found = await self._client.get(PODS, pod["namespace"], pod["name"])
        except NotFound:
            return True
        except ApiError:
            return False
        return bool(found["spec"].get("nodeName"))

    async def _tell_failure(self, status: JobStatus, kept: Failure) -> None:
        """Read what failed, and report it unless everything ends with it, which the summary tells."""
        await self._recorder.read(status, kept)
        self._reporter.show(self.jobs)
        waiting = {self._start(self._clock.sleep(_ENDS_WITHIN)), self._start(self._wait_ended())}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if not self._ended.is_set() or kept.failure.attempt < max(each.failure.attempt for each in status.failures):
            self._recorder.report(status, kept)

    async def _wait_ended(self) -> None:
        await self._ended.wait()

    def _on_outage(self, reason: str | None) -> None:
        for status in self.jobs:
            status.unreachable = reason is not None
        if reason is None:
            self._reporter.report("the cluster can be reached again")
        else:
            self._reporter.report(f"the cluster cannot be reached: {fault_of(reason)}; waiting for it", bad=True)
        self._reporter.show(self.jobs)

    def _on_refusal(self, text: str) -> None:
        for status in self.jobs:
            status.is_attended = True  # who may not look cannot say that there is nothing
        self._reporter.report(text, bad=True)

    # What follows from it

    async def _advise(self, job: FollowedJob) -> None:
        if job.runtime is not None:
            try:
                lines = await explain_missing(self._client, job.runtime)
            except TransportError:
                return  # its condition is told, and the cluster is away
            for line in lines:
                self._reporter.report(line, bad=True)
            self._reporter.report(f"{job.title} stays in the cluster, and starts once it has its runtime")

    async def _notice_absence(self) -> None:
        """Notice jobs that were deleted before an informer saw them."""
        absent = {job.key for job in await self._informers.absent()}
        self._logs.is_up_to_date()
        for status in self.jobs:
            status.deleted |= status.job.key in absent
        self._changed()
        for status in self.jobs:
            self._start(self._notice_inattention(status))

    async def _notice_inattention(self, status: JobStatus) -> None:
        """Notice that no controller looks at a job."""
        await self._clock.sleep(UNATTENDED_AFTER)
        while status.unreachable:
            await self._clock.sleep(UNATTENDED_AFTER)
        if status.outcome is None and not status.is_attended:
            why = self._reporter.commands.line("explain", [status.job])
            self._reporter.report(
                f"{status.job.title} has no status and no pods after {UNATTENDED_AFTER:g} s; `{why}` says why", bad=True
            )

    async def _wait_for_end(self) -> None:
        """Wait until all jobs have ended, and until everything was read that they have left.

        Logs are read as long as anything comes of them. The pods of a deleted job may take long to end, and those of a
        job of v1 may go on for ever, which is not waited for.
        """
        await self._ended.wait()
        await self._close(self.jobs)
        pods_go_on = any(status.outcome == DELETED or status.is_closed for status in self.jobs)
        while reading := [task for task in self._reading() if not task.done()]:
            before = self._logs.received
            await asyncio.wait(reading, timeout=_DRAIN_TIMEOUT)
            if pods_go_on or self._logs.received == before:
                return

    def _reading(self) -> list[asyncio.Task[None]]:
        return [*self._logs.reading, *self._advice.values(), *self._failures]

    def _named(self, namespace: str, name: str) -> JobStatus | None:
        """Return the job whose name an object has, or whose name its name begins with."""
        found = [
            status
            for status in self.jobs
            if status.job.namespace == namespace and (name == status.job.name or name.startswith(f"{status.job.name}-"))
        ]
        return max(found, key=lambda status: len(status.job.name), default=None)

    def _changed(self) -> None:
        self._reporter.show(self.jobs)
        if all(status.outcome is not None or status.lacks_runtime for status in self.jobs):
            self._ended.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        def finished(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and not self._failed.done():
                self._failed.set_exception(error)

        task = asyncio.create_task(work)
        task.add_done_callback(finished)
        self._background.add(task)
        return task


def make_reporter(*, plain: bool, commands: Commands) -> Reporter:
    """Choose the reporter that suits where the output goes."""
    if plain or not shows_displays():
        return Reporter(commands)
    from trainmaster.controller.cli.follow.live_reporter import LiveReporter  # noqa: PLC0415 - may not be there

    return LiveReporter(commands)


async def follow_jobs(
    client: KubeClient,
    jobs: Sequence[FollowedJob],
    reporter: Reporter,
    *,
    choice: LogChoice = FIRST_NODE,
    timeout: float | None = None,  # noqa: ASYNC109 - running out of time is an outcome here, not an error
) -> int:
    """Follow jobs; returns the exit code. Ctrl-C ends the following, and nothing else.

    Raises:
        KubeError: The cluster cannot be used.
    """
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    try:
        with reporter:
            follower = Follower(client, jobs, reporter, choice=choice)
            following = asyncio.create_task(follower.run())
            watching = asyncio.create_task(watch_manager(client, report=reporter.report))
            interruption = asyncio.create_task(interrupted.wait())
            await asyncio.wait([following, interruption], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            interruption.cancel()
            watching.cancel()
            if not following.done():
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                if interrupted.is_set():
                    return INTERRUPTED
                follower.note_last_output()
                reporter.report(
                    f"gave up waiting after {timeout:g} s (--timeout); what has not ended goes on", bad=True
                )
                reporter.close(follower.jobs)
                return TIMED_OUT
            following.result()
            if choice.rank is not None and not any(map(choice.pods_of, follower.jobs)):
                reporter.report(f"no pod of rank {choice.rank} was seen", bad=True)
            reporter.close(follower.jobs)
            return 0 if follower.succeeded else FAILURE
    finally:
        loop.remove_signal_handler(signal.SIGINT)
