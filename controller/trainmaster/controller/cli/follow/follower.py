"""Follows TrainJobs until all of them have ended, and reports what happens.

- Conditions, phases of pods and warnings about them are reported once each; the log of rank 0 is passed on as it is
  written, from every pod and every run of its container.
- Before the end of a job is reported, its log is read to the end, also if the job was faster than we were.
- A job whose runtime does not exist has not ended, but is not waited for either: what is missing, and where it could
  come from, is reported at once.
- Why a job failed is recorded when it happens: a pod that failed may be deleted a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from trainmaster.controller.cli.follow.failures import Failure, describe
from trainmaster.controller.cli.follow.job_status import (
    FollowedJob,
    JobStatus,
    container_attempt,
    is_rank_zero,
    pod_phase,
    progress_of,
    true_conditions,
)
from trainmaster.controller.cli.follow.pod_logs import follow_log, last_lines
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.cli.follow.runtime_reference import explain_missing
from trainmaster.controller.container_failures import JOBSET_LABEL, ContainerFailure, container_failures
from trainmaster.controller.kube.cache.delta import DeletedFinalStateUnknown, ResourceEventHandlerFuncs, final_state
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import EVENTS, PODS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.api.constants import COMPLETE, FAILED, NODE
from trainmaster.runtime.jsontree import JsonObject

_DRAIN_TIMEOUT = 10.0
_LAST_LINES = 20


class Follower:
    """Follows some TrainJobs."""

    def __init__(self, client: KubeClient, jobs: Sequence[FollowedJob], reporter: Reporter) -> None:
        self._client = client
        self._reporter = reporter
        self._jobs = {job.key: JobStatus(job) for job in jobs}
        self._prefixed = len(jobs) > 1
        self._phases: dict[str, str] = {}
        self._logs: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._failures: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._advice: dict[str, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()

    @property
    def jobs(self) -> list[JobStatus]:
        """The jobs as far as they are known."""
        return list(self._jobs.values())

    @property
    def succeeded(self) -> bool:
        """Whether all jobs are complete."""
        return all(status.outcome == COMPLETE for status in self.jobs)

    async def run(self) -> None:
        """Follow until all jobs have ended, or wait in vain."""
        informers = self._informers()
        try:
            running = [self._start(informer.run()) for informer in informers]
            self._start(self._notice_absence(informers))
            ended = self._start(self._ended.wait())
            done, _ = await asyncio.wait([ended, *running], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await self._catch_up()
            await self._drain()
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)

    def explain(self) -> None:
        """Report how each job ended; of those that failed, why."""
        for status in self.jobs:
            end = status.outcome or status.state
            condition = status.conditions.get(end)
            text = f"TrainJob {status.job.key}: {end}"
            if condition and status.outcome != COMPLETE:
                text += f": {condition.get('reason')}: {condition.get('message')}"
            self._reporter.report(text, bad=status.outcome != COMPLETE)
            if status.outcome == FAILED:
                self._explain_failure(status)
        self._reporter.close(self.jobs)

    # Event handlers

    def _informers(self) -> list[Informer]:
        informers = []
        for namespace in sorted({status.job.namespace for status in self.jobs}):
            names = sorted(status.job.name for status in self.jobs if status.job.namespace == namespace)
            jobs = Informer(self._client, TRAINJOBS, namespaces=[namespace])
            jobs.add_event_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda job, _: self._on_job(job),
                    on_update=lambda _, job: self._on_job(job),
                    on_delete=self._on_job_deleted,
                )
            )
            selector = f"{JOBSET_LABEL} in ({','.join(names)})"
            pods = Informer(self._client, PODS, namespaces=[namespace], label_selector=selector)
            pods.add_event_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda pod, _: self._on_pod(pod),
                    on_update=lambda _, pod: self._on_pod(pod),
                    on_delete=self._on_pod_deleted,
                )
            )
            events = Informer(self._client, EVENTS, namespaces=[namespace])
            events.add_event_handler(ResourceEventHandlerFuncs(on_add=lambda event, _: self._on_event(event)))
            informers += [jobs, pods, events]
        return informers

    def _on_job(self, job: JsonObject) -> None:
        status = self._job(job["metadata"]["namespace"], job["metadata"]["name"])
        if status is None or status.outcome is not None:
            return
        if job["metadata"]["uid"] != status.job.uid:
            # What was deleted and created again may arrive as one update.
            status.deleted = True
        else:
            before, status.conditions = status.conditions, true_conditions(job)
            status.progress = progress_of(job)
            status.nodes = job["spec"].get("trainer", {}).get("numNodes", status.nodes)
            for kind, condition in status.conditions.items():
                if kind not in {COMPLETE, FAILED} and condition.get("message") != before.get(kind, {}).get("message"):
                    self._report(
                        f"TrainJob {status.job.key}: {kind}: {condition.get('message') or condition.get('reason')}"
                    )
            if status.lacks_runtime and status.job.key not in self._advice:
                self._advice[status.job.key] = self._start(self._advise(status.job))
        self._changed()

    def _on_job_deleted(self, job: JsonObject | DeletedFinalStateUnknown) -> None:
        metadata = final_state(job)["metadata"]
        status = self._job(metadata["namespace"], metadata["name"])
        if status is not None and metadata["uid"] == status.job.uid:
            status.deleted = True
            self._changed()

    def _on_pod(self, pod: JsonObject) -> None:
        status = self._job_of_pod(pod)
        if status is None:
            return
        metadata = pod["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        status.observe_pod(pod)
        if self._phases.get(uid) != pod_phase(pod):
            self._phases[uid] = pod_phase(pod)
            self._report(f"pod {name}: {pod_phase(pod)}")
        if (
            is_rank_zero(pod)
            and (number := container_attempt(pod, NODE)) is not None
            and (uid, number) not in self._logs
        ):
            self._logs[uid, number] = self._start(self._follow_log(status, pod, number))
        for failure in container_failures(pod):
            key = (uid, failure.container, failure.run)
            if key not in self._failures:
                self._report(describe(failure))
                self._failures[key] = self._start(self._keep_failure(status, failure))
        self._changed()

    def _on_pod_deleted(self, pod: JsonObject | DeletedFinalStateUnknown) -> None:
        last = final_state(pod)
        status = self._job_of_pod(last)
        if status is not None:
            self._on_pod(last)  # the last state may be news: it may carry an exit code
            status.pods.pop(last["metadata"]["uid"], None)
            self._changed()

    def _on_event(self, event: JsonObject) -> None:
        if event.get("type") != "Warning":
            return
        regarding = event.get("regarding") or {}
        name = regarding.get("name") or ""
        for status in self.jobs:
            job = status.job
            concerned = name == job.name or name.startswith(f"{job.name}-")
            # Events of a namesake that was deleted before may still be there.
            if concerned and job.namespace == regarding.get("namespace"):
                if event["metadata"]["creationTimestamp"] >= job.created:
                    self._report(f"warning: {regarding.get('kind')} {name}: {event.get('reason')}: {event.get('note')}")
                return

    # What follows from it

    async def _advise(self, job: FollowedJob) -> None:
        if job.runtime is not None:
            for line in await explain_missing(self._client, job.runtime):
                self._reporter.report(line, bad=True)
            self._reporter.report(f"TrainJob {job.key} stays in the cluster, and starts once it has its runtime")

    async def _follow_log(self, status: JobStatus, pod: JsonObject, number: int) -> None:
        uid, prefix = pod["metadata"]["uid"], f"{status.job.name} | " if self._prefixed else ""

        def is_running() -> bool:
            current = status.pods.get(uid)
            return (
                current is not None and container_attempt(current, NODE) == number and pod_phase(current) == "Running"
            )

        await follow_log(
            self._client,
            namespace=status.job.namespace,
            pod=pod["metadata"]["name"],
            container=NODE,
            is_running=is_running,
            deliver=lambda line: self._reporter.log([prefix + line], job=status.job.key),
        )

    async def _keep_failure(self, status: JobStatus, failure: ContainerFailure) -> None:
        lines = await last_lines(
            self._client,
            namespace=status.job.namespace,
            pod=failure.pod,
            container=failure.container,
            count=_LAST_LINES,
        )
        status.failures.append(Failure(failure, lines))
        status.failures.sort(key=lambda each: each.failure.order)
        self._changed()

    async def _notice_absence(self, informers: Sequence[Informer]) -> None:
        """Notice jobs that were deleted before an informer saw them: no event will come of those."""
        for informer in informers:
            await informer.wait_synced()
        stores = [informer.store for informer in informers if informer.resource == TRAINJOBS]
        for status in self.jobs:
            status.deleted |= all(store.get(status.job.key) is None for store in stores)
        self._changed()

    async def _catch_up(self) -> None:
        """Read the pods once more: their informer may be behind that of the end."""
        for status in self.jobs:
            try:
                pods = await self._client.list(
                    PODS, status.job.namespace, label_selector=f"{JOBSET_LABEL}={status.job.name}"
                )
            except KubeError:
                continue
            for pod in pods["items"]:
                self._on_pod(pod)

    async def _drain(self) -> None:
        """Let logs come to their end, within reason: that of a deleted job may be open for as long as its pods take."""
        reading = [*self._logs.values(), *self._advice.values(), *self._failures.values()]
        if reading:
            await asyncio.wait(reading, timeout=_DRAIN_TIMEOUT)

    def _explain_failure(self, status: JobStatus) -> None:
        first = status.first_failure
        if first is None:
            return
        others = len({each.failure.pod_uid for each in status.failures}) - 1
        self._reporter.report(first.text + (f" (and {others} more pods failed)" if others else ""), bad=True)
        if first.lines:
            self._reporter.report("its last lines:")
            for line in first.lines:
                self._reporter.report(f"  {line}")

    def _job(self, namespace: str, name: str) -> JobStatus | None:
        return self._jobs.get(f"{namespace}/{name}")

    def _job_of_pod(self, pod: JsonObject) -> JobStatus | None:
        metadata = pod["metadata"]
        status = self._job(metadata["namespace"], metadata["labels"][JOBSET_LABEL])
        return status if status is not None and metadata["creationTimestamp"] >= status.job.created else None

    def _report(self, text: str) -> None:
        self._reporter.report(text)

    def _changed(self) -> None:
        self._reporter.show(self.jobs)
        if all(status.outcome is not None or status.lacks_runtime for status in self.jobs):
            self._ended.set()

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._background.add(task)
        return task
