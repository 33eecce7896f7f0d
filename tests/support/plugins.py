"""Plugins for tests: one that builds, one that notes that it ran, and those whose workload is no JobSet."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from support.distributions import EXAMPLES, module_of

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework.interface import ApplyWhen, Desired, StatusReport
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch


class Builder:
    """Builds one ConfigMap."""

    def __init__(self, name: str = "Builder", *, object_name: str = "made", error: Exception | None = None) -> None:
        self.name = name
        self._object_name = object_name
        self._error = error

    def build(self, info: Any, job: Any, listers: Any) -> Iterator[Desired]:
        if self._error:
            raise self._error
        yield Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._object_name}})


class Counting:
    """Counts how often it is called."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def enforce_ml_policy(self, info: Any) -> None:
        self.calls += 1


class Enforcer:
    """Notes that it ran."""

    def __init__(self, name: str, **place: Any) -> None:
        self.name = name
        for key, value in place.items():
            setattr(self, key, value)

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        info.labels[f"ran-{len(info.labels)}"] = self.name


WORKER_SETS: Final = Resource("workers.example", "v1", "WorkerSet", "workersets", namespaced=True)

CHOICE: Final = "example/workload"
"""The annotation of a runtime's template by which it chooses WorkerSets, by the name of their plugin."""

_EXAMPLE = module_of(EXAMPLES / "plugins" / "indexed-job" / "trainmaster_indexed_job.py")


def indexed_job(*, always: bool = False) -> Any:
    """Make the example of a plugin that builds a batch/v1 Job whose pods have an index, and a Service."""
    return _EXAMPLE.IndexedJob(_EXAMPLE.IndexedJobOptions(always=always))


def choosing(plugin: Any) -> dict[str, str]:
    """Return the annotations of a runtime's template that choose one of these plugins."""
    return {CHOICE: plugin.name} if isinstance(plugin, WorkerSet) else {_EXAMPLE.WORKLOAD: "Job"}


class WorkerSet:
    """Builds a custom resource, alike to a LeaderWorkerSet, whose definition may be installed later."""

    name = "worker-set"
    priority = -1000
    replaces = ("jobset",)

    def applies_to(self, info: Info) -> bool:
        return info.annotations.get(CHOICE) == self.name

    def watch_extension(self) -> Iterable[Watch]:
        yield Watch(WORKER_SETS.api_version, WORKER_SETS.kind, WORKER_SETS.plural, writes=True, workload=True)

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        (pods,) = info.pod_sets
        metadata = {"name": f"{job.metadata.name}-{pods.name}-0"}
        spec = {"size": pods.count, "suspend": job.spec.suspend, "template": pods.pod_template}
        head = {"apiVersion": WORKER_SETS.api_version, "kind": WORKER_SETS.kind, "metadata": metadata}
        yield Desired({**head, "spec": spec}, ApplyWhen.SUSPENDED)

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        workload = next((each for each in listers.workloads(job) if each["kind"] == WORKER_SETS.kind), None)
        if workload is None:
            return None
        status = workload.get("status") or {}
        conditions: list[JsonObject] = [
            {"type": each["type"], "status": "True", "reason": each.get("reason") or "Ended", "message": ""}
            for each in status.get("conditions") or ()
            if each.get("type") in ("Complete", "Failed") and each.get("status") == "True"
        ]
        counts = {"active": int(status.get("active", 0) > 0), "suspended": int(workload["spec"].get("suspend", False))}
        return StatusReport(conditions, [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, **counts}])
