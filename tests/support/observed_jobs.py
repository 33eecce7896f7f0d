"""TrainJobs and their JobSets in caches that a test fills, followed by an observer of the metrics."""

from datetime import timedelta
from typing import Any

from support.objects import replicated_job, trainjob_object
from support.series import series
from support.virtualtime import VirtualClock

from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.metrics.trainjobs import TrainJobsMetrics
from trainmaster.runtime.jsontree import JsonObject


class ObservedJobs:
    """The caches of a manager, and who follows them; the clock starts when jobs are created.

    Args:
        runtime: The runtime of all jobs, by which a test tells its series from those of others.
        leads: Whether the manager leads from the beginning.
    """

    def __init__(self, runtime: str, *, leads: bool = True) -> None:
        self.clock = VirtualClock()
        self.runtime = runtime
        self.trainjobs, self.jobsets = Store(), Store()
        self.metrics = TrainJobsMetrics()
        self.observer = TrainJobObserver(self.metrics, clock=self.clock, trace_id=lambda uid: f"trace-of-{uid}")
        if leads:
            self.observer.lead()

    def put_job(
        self, name: str = "demo", *conditions: JsonObject, initial: bool = False, uid: str = "uid-1", **more: Any
    ) -> None:
        """Show a TrainJob in a state; `status`, `generation` and `labels` are its own, the rest is of its spec."""
        status, generation, labels = more.pop("status", {}), more.pop("generation", 1), more.pop("labels", {})
        spec: JsonObject = {"runtimeRef": {"name": self.runtime}, **more}
        obj = trainjob_object(name, uid=uid, status={"conditions": list(conditions), **status}, **spec)
        obj["metadata"] |= {"generation": generation, "labels": labels}
        self.show_job(obj, initial=initial)

    def show_job(self, obj: JsonObject, *, initial: bool = False) -> None:
        """Show a TrainJob."""
        delta = self.trainjobs.put(obj)
        delta.initial = initial
        self.observer.on_trainjob_event(delta)

    def delete_job(self, name: str = "demo") -> None:
        """Show that a TrainJob is gone."""
        self.observer.on_trainjob_event(self.trainjobs.delete(f"team/{name}"))

    def put_jobset(
        self,
        name: str = "demo",
        *,
        namespace: str = "team",
        owner: str = "uid-1",
        uid: str = "",
        created: int = 0,
        restarts: int = 0,
        replicated_jobs: list[JsonObject] | None = None,
        initial: bool = False,
        **counts: int,
    ) -> None:
        """Show the JobSet of a TrainJob, of which so many Jobs of `node` are in a state."""
        jobs = replicated_jobs or [training_job()]
        reference = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "name": name,
            "uid": owner,
            "controller": True,
        }
        delta = self.jobsets.put(
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": uid or f"jobset-of-{owner}",
                    "generation": 1,
                    "creationTimestamp": self.at(created),
                    "ownerReferences": [reference],
                },
                "spec": {"replicatedJobs": jobs},
                "status": {"restarts": restarts, "replicatedJobsStatus": [{"name": "node", **counts}]},
            }
        )
        delta.initial = initial
        self.observer.on_workload_event(delta)

    def delete_jobset(self, name: str = "demo") -> None:
        """Show that a JobSet is gone."""
        self.observer.on_workload_event(self.jobsets.delete(f"team/{name}"))

    def vanish(self, name: str = "demo") -> None:
        """Find out by a new list that a TrainJob is gone."""
        for delta in self.trainjobs.replace([], resource_version="9"):
            delta.final_state_unknown = True
            self.observer.on_trainjob_event(delta)

    def resync(self, name: str = "demo") -> None:
        """Show everything once more."""
        for store, handle in (
            (self.trainjobs, self.observer.on_trainjob_event),
            (self.jobsets, self.observer.on_workload_event),
        ):
            delta: Delta | None = store.resync_delta(f"team/{name}")
            if delta is not None:
                handle(delta)

    def at(self, seconds: int) -> str:
        """Return a time as the API writes it, so many seconds after the creation of the jobs."""
        return (self.clock.now() - timedelta(seconds=self.clock.monotonic()) + timedelta(seconds=seconds)).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )

    def states(self) -> dict[tuple[str, str], int]:
        """Return how many jobs are in which state for which reason, without those that are none."""
        found: dict[tuple[str, str], int] = {}
        for (state, reason, _), number in self.metrics.jobs.items():
            found[str(state), reason] = found.get((str(state), reason), 0) + number
        return {labels: number for labels, number in found.items() if number}

    def nodes(self) -> dict[str, int]:
        """Return how many pods there are in which state."""
        return {str(state): number for (state, _), number in self.metrics.nodes.items() if number}

    def accelerators(self) -> dict[tuple[str, str], int]:
        """Return how many devices there are in which state, by resource."""
        return {
            (str(state), resource): number
            for (state, resource, _), number in self.metrics.accelerators.items()
            if number
        }

    def times(self, name: str, **labels: str) -> tuple[float, float]:
        """Return how often a time was observed, and the sum, of the runtime of this test."""
        wanted = {"runtime": self.runtime, **labels}
        return tuple(
            next((each.value for each in series(f"{name}_{part}") if wanted.items() <= each.labels.items()), 0.0)
            for part in ("count", "sum")
        )  # type: ignore[return-value] # there are two parts

    def counts(self, name: str) -> dict[tuple[str, str], float]:
        """Return a counter by cause and class of the exit code."""
        return {
            (each.labels["cause"], each.labels["exit_class"]): each.value
            for each in series(name)
            if each.labels["runtime"] == self.runtime
        }

    def seconds(self, queue: str = "") -> dict[str, float]:
        """Return what the time of jobs of a queue was spent on."""
        labels = {"runtime": self.runtime, "queue": queue}
        found = series("trainmaster_trainjob_seconds_total")
        return {
            each.labels["kind"]: each.value for each in found if each.value and labels.items() <= each.labels.items()
        }


def training_job(name: str = "node", *, replicas: int = 1, pods: int = 2, gpus: int = 0, **more: Any) -> JsonObject:
    """A ReplicatedJob of a JobSet."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    job = replicated_job(name, containers=[{"name": "node", "image": "train:1", **limits}], **more)
    job["template"]["spec"]["parallelism"] = pods
    return {**job, "replicas": replicas}


def condition(type_: str, reason: str = "", *, at: str = "", status: str = "True", message: str = "") -> JsonObject:
    """A condition of a TrainJob."""
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}
