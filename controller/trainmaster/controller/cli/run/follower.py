"""Following: watching TrainJobs until all of them have ended, and telling about it as it happens.

- Conditions, phases of pods and warnings about them are told once each; the log of rank 0 is passed on as it is
  written, from every pod and every run of its container.
- Before the end of a job is told, its log is read to the end, also if the job was faster than we were.
- A job whose runtime does not exist has not ended, but is not waited for either: what is missing, and where it could
  come from, is told at once.
- Why a job failed is remembered when it happens: a pod that failed may be deleted a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from trainmaster.controller.cli.run.jobview import (
    JOBSET_LABEL,
    ContainerFailure,
    JobView,
    attempt,
    failures,
    is_first_rank,
    phase,
    true_conditions,
)
from trainmaster.controller.cli.run.podlogs import follow_log, last_lines
from trainmaster.controller.cli.run.reporter import Reporter
from trainmaster.controller.cli.run.runtime_reference import explain_missing
from trainmaster.controller.cli.run.submit import SubmittedJob
from trainmaster.controller.kube.cache.event_handler import (
    DeletedFinalStateUnknown,
    ResourceEventHandlerFuncs,
    final_state,
)
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

    def __init__(self, client: KubeClient, jobs: Sequence[SubmittedJob], reporter: Reporter) -> None:
        self._client = client
        self._reporter = reporter
        self._views = {job.key: JobView(job) for job in jobs}
        self._prefixed = len(jobs) > 1
        self._phases: dict[str, str] = {}
        self._logs: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._failures: dict[tuple[str, str, int], tuple[str, ContainerFailure, asyncio.Task[list[str]]]] = {}
        self._advice: dict[str, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._ended = asyncio.Event()

    @property
    def views(self) -> list[JobView]:
        """The jobs as far as they are known."""
        return list(self._views.values())

    @property
    def succeeded(self) -> bool:
        """Whether all jobs are complete."""
        return all(view.outcome == COMPLETE for view in self.views)

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
        """Tell how each job ended; of those that failed, why."""
        for view in self.views:
            end = view.outcome or view.state
            condition = view.conditions.get(end)
            text = f"TrainJob {view.job.key}: {end}"
            if condition and view.outcome != COMPLETE:
                text += f": {condition.get('reason')}: {condition.get('message')}"
            self._reporter.tell(text, bad=view.outcome != COMPLETE)
            if view.outcome == FAILED:
                self._explain_failure(view)

    # What the informers tell

    def _informers(self) -> list[Informer]:
        informers = []
        for namespace in sorted({view.job.namespace for view in self.views}):
            names = sorted(view.job.name for view in self.views if view.job.namespace == namespace)
            jobs = Informer(self._client, TRAINJOBS, namespace=namespace)
            jobs.add_event_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda job, _: self._on_job(job),
                    on_update=lambda _, job: self._on_job(job),
                    on_delete=self._on_job_deleted,
                )
            )
            selector = f"{JOBSET_LABEL} in ({','.join(names)})"
            pods = Informer(self._client, PODS, namespace=namespace, label_selector=selector)
            pods.add_event_handler(
                ResourceEventHandlerFuncs(
                    on_add=lambda pod, _: self._on_pod(pod),
                    on_update=lambda _, pod: self._on_pod(pod),
                    on_delete=self._on_pod_deleted,
                )
            )
            events = Informer(self._client, EVENTS, namespace=namespace)
            events.add_event_handler(ResourceEventHandlerFuncs(on_add=lambda event, _: self._on_event(event)))
            informers += [jobs, pods, events]
        return informers

    def _on_job(self, job: JsonObject) -> None:
        view = self._view(job["metadata"]["namespace"], job["metadata"]["name"])
        if view is None or view.outcome is not None:
            return
        if job["metadata"]["uid"] != view.job.uid:
            # Informers tell of what was deleted and created again as of a change.
            view.deleted = True
        else:
            before, view.conditions = view.conditions, true_conditions(job)
            for kind, condition in view.conditions.items():
                if kind not in {COMPLETE, FAILED} and condition.get("message") != before.get(kind, {}).get("message"):
                    self._tell(
                        f"TrainJob {view.job.key}: {kind}: {condition.get('message') or condition.get('reason')}"
                    )
            if view.lacks_runtime and view.job.key not in self._advice:
                self._advice[view.job.key] = self._start(self._advise(view.job))
        self._changed()

    def _on_job_deleted(self, job: JsonObject | DeletedFinalStateUnknown) -> None:
        metadata = final_state(job)["metadata"]
        view = self._view(metadata["namespace"], metadata["name"])
        if view is not None and metadata["uid"] == view.job.uid:
            view.deleted = True
            self._changed()

    def _on_pod(self, pod: JsonObject) -> None:
        view = self._view_of_pod(pod)
        if view is None:
            return
        metadata = pod["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        view.pods[uid] = pod
        if self._phases.get(uid) != phase(pod):
            self._phases[uid] = phase(pod)
            self._tell(f"pod {name}: {phase(pod)}")
        if is_first_rank(pod) and (number := attempt(pod, NODE)) is not None and (uid, number) not in self._logs:
            self._logs[uid, number] = self._start(self._follow_log(view, pod, number))
        for failure in failures(pod):
            key = (uid, failure.container, failure.restarts)
            if key not in self._failures:
                self._tell(failure.text)
                tail = last_lines(
                    self._client,
                    namespace=metadata["namespace"],
                    pod=name,
                    container=failure.container,
                    count=_LAST_LINES,
                )
                self._failures[key] = (view.job.key, failure, self._start(tail))
        self._changed()

    def _on_pod_deleted(self, pod: JsonObject | DeletedFinalStateUnknown) -> None:
        last = final_state(pod)
        view = self._view_of_pod(last)
        if view is not None:
            self._on_pod(last)  # the last state may be news: it may carry an exit code
            view.pods.pop(last["metadata"]["uid"], None)
            self._changed()

    def _on_event(self, event: JsonObject) -> None:
        if event.get("type") != "Warning":
            return
        regarding = event.get("regarding") or {}
        name = regarding.get("name") or ""
        for view in self.views:
            job = view.job
            concerned = name == job.name or name.startswith(f"{job.name}-")
            # Events of a namesake that was deleted before may still be there.
            if concerned and job.namespace == regarding.get("namespace"):
                if event["metadata"]["creationTimestamp"] >= job.created:
                    self._tell(f"warning: {regarding.get('kind')} {name}: {event.get('reason')}: {event.get('note')}")
                return

    # What follows from it

    async def _advise(self, job: SubmittedJob) -> None:
        if job.runtime is not None:
            for line in await explain_missing(self._client, job.runtime):
                self._reporter.tell(line, bad=True)
            self._reporter.tell(f"TrainJob {job.key} stays in the cluster, and starts once it has its runtime")

    async def _follow_log(self, view: JobView, pod: JsonObject, number: int) -> None:
        uid, prefix = pod["metadata"]["uid"], f"{view.job.name} | " if self._prefixed else ""

        def is_running() -> bool:
            current = view.pods.get(uid)
            return current is not None and attempt(current, NODE) == number and phase(current) == "Running"

        await follow_log(
            self._client,
            namespace=view.job.namespace,
            pod=pod["metadata"]["name"],
            container=NODE,
            is_running=is_running,
            deliver=lambda line: self._reporter.log(prefix + line),
        )

    async def _notice_absence(self, informers: Sequence[Informer]) -> None:
        """Notice jobs that were deleted before an informer saw them: nobody will tell of those."""
        for informer in informers:
            await informer.wait_synced()
        stores = [informer.store for informer in informers if informer.resource == TRAINJOBS]
        for view in self.views:
            view.deleted |= all(store.get(view.job.key) is None for store in stores)
        self._changed()

    async def _catch_up(self) -> None:
        """Look at the pods once more: their informer may be behind the one that told of the end."""
        for view in self.views:
            try:
                pods = await self._client.list(
                    PODS, view.job.namespace, label_selector=f"{JOBSET_LABEL}={view.job.name}"
                )
            except KubeError:
                continue
            for pod in pods["items"]:
                self._on_pod(pod)

    async def _drain(self) -> None:
        """Let logs come to their end, within reason: that of a deleted job may be open for as long as its pods take."""
        reading = [*self._logs.values(), *self._advice.values(), *(task for _, _, task in self._failures.values())]
        if reading:
            await asyncio.wait(reading, timeout=_DRAIN_TIMEOUT)

    def _explain_failure(self, view: JobView) -> None:
        found = [(failure, tail) for key, failure, tail in self._failures.values() if key == view.job.key]
        if not found:
            return
        # The first to fail is the cause more often than those that it took with it.
        failure, tail = min(found, key=lambda each: each[0].at)
        others = len({each.pod for each, _ in found}) - 1
        self._reporter.tell(failure.text + (f" (and {others} more pods failed)" if others else ""), bad=True)
        if tail.done() and not tail.cancelled() and (lines := tail.result()):
            self._reporter.tell("its last lines:")
            for line in lines:
                self._reporter.tell(f"  {line}")

    def _view(self, namespace: str, name: str) -> JobView | None:
        return self._views.get(f"{namespace}/{name}")

    def _view_of_pod(self, pod: JsonObject) -> JobView | None:
        metadata = pod["metadata"]
        view = self._view(metadata["namespace"], metadata["labels"][JOBSET_LABEL])
        return view if view is not None and metadata["creationTimestamp"] >= view.job.created else None

    def _tell(self, text: str) -> None:
        self._reporter.tell(text)

    def _changed(self) -> None:
        self._reporter.show(self.views)
        if all(view.outcome is not None or view.lacks_runtime for view in self.views):
            self._ended.set()

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._background.add(task)
        return task
