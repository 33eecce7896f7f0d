"""Plugins whose workload is no JobSet: a plain Indexed Job, and a custom resource that is installed later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.framework.interface import ApplyWhen, Desired, StatusReport
from trainmaster.runtime.info import Endpoints, Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

JOBS: Final = Resource("batch", "v1", "Job", "jobs", namespaced=True)
WORKER_SETS: Final = Resource("workers.example", "v1", "WorkerSet", "workersets", namespaced=True)

CHOICE: Final = "example/workload"
"""The annotation of a runtime's template by which it chooses one of these plugins, by name."""


class _Workload:
    """What both have: they serve the runtimes that name them, in place of the JobSet."""

    name = ""
    priority = -1000
    replaces = ("jobset",)
    resource = JOBS

    def __init__(self, *, always: bool = False) -> None:
        self._always = always

    def applies_to(self, info: Info) -> bool:
        return self._always or info.annotations.get(CHOICE) == self.name

    def watch_extension(self) -> Iterable[Watch]:
        yield Watch(self.resource.api_version, self.resource.kind, self.resource.plural, writes=True, workload=True)

    def _desired(self, info: Info, job: TrainJob, spec: JsonObject) -> Desired:
        name = f"{job.metadata.name}-{info.pod_sets[0].name}-0"
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": {"name": name}}
        return Desired({**head, "spec": spec}, ApplyWhen.SUSPENDED)

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        own = (self.resource.api_version, self.resource.kind)
        found = (each for each in listers.workloads(job) if (each["apiVersion"], each["kind"]) == own)
        workload = next(found, None)
        if workload is None:
            return None
        status = workload.get("status") or {}
        conditions = [
            {"type": each["type"], "status": "True", "reason": each.get("reason") or "Ended", "message": ""}
            for each in status.get("conditions") or ()
            if each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        ]
        counts = {"active": int(status.get("active", 0) > 0), "suspended": int(workload["spec"].get("suspend", False))}
        return StatusReport(conditions, [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, **counts}])


class IndexedJob(_Workload):
    """Builds one batch/v1 Job whose pods have an index, and the Service by which they find each other."""

    name = "indexed-job"

    def watch_extension(self) -> Iterable[Watch]:
        yield from super().watch_extension()
        yield Watch("v1", "Service", "services", writes=True)

    def pre_build(self, info: Info, job: TrainJob) -> None:
        (pods,) = info.pod_sets
        pods.job_template["spec"] |= {"completions": pods.count, "parallelism": pods.count}
        pods.endpoints = Endpoints(f"{job.metadata.name}-{pods.name}", job.metadata.name, jobs=1, pods=pods.count)

    def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
        (pods,) = info.pod_sets
        if job.spec.trainer and job.spec.trainer.command:
            pods.pod_spec["containers"][0]["command"] = job.spec.trainer.command
        pods.pod_spec["subdomain"] = job.metadata.name
        selector = {"batch.kubernetes.io/job-name": f"{job.metadata.name}-{pods.name}-0"}
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
        yield Desired({"apiVersion": "v1", "kind": "Service", "metadata": {"name": job.metadata.name}, "spec": service})
        lifetime = info.template.get("ttlSecondsAfterFinished")
        more = {} if lifetime is None else {"ttlSecondsAfterFinished": lifetime}
        spec = {**pods.job_template["spec"], **more, "completionMode": "Indexed", "suspend": job.spec.suspend}
        yield self._desired(info, job, spec)


class WorkerSet(_Workload):
    """Builds a custom resource, alike to a LeaderWorkerSet, whose definition may be installed later."""

    name = "worker-set"
    resource = WORKER_SETS

    def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
        (pods,) = info.pod_sets
        yield self._desired(info, job, {"size": pods.count, "suspend": job.spec.suspend, "template": pods.pod_template})
