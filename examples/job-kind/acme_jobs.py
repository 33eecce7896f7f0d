"""RayTrainJob: a Ray cluster for the time of one training, as an example of a kind of jobs of one's own.

The Head starts Ray and runs the program; Workers join it. The program begins with `minWorkers` of them, and goes on as
long as so many are left. When it ends, so does the job; `cleanPodPolicy: Running` sends the workers home.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trainmaster.runtime.api.decoding import parse_part
from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jobs.constants import NEVER, WORKER
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job, JobKind, JobKindOptions
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import append_env_of_all, env_value

HEAD = "Head"


class RayTrainJobOptions(JobKindOptions):
    """What a cluster may have otherwise: `trainingOperator.options.raytrainjob` of the configuration."""

    worker_command: list[str] = ["sh", "-c", "exec ray start --address=$RAY_ADDRESS --block"]  # noqa: RUF012 - pydantic copies it
    """What workers run whose template does not say."""


class RayTrainJobSpec(ApiModel):
    """What only the spec of a RayTrainJob has."""

    min_workers: int | None = None


class RayTrainJob(JobKind):
    """Serves RayTrainJobs."""

    kind = "RayTrainJob"
    plural = "raytrainjobs"
    group = "acme.example"
    framework = "ray"
    replica_specs_field = "rayReplicaSpecs"
    replica_types = (HEAD, WORKER)
    leading_types = (HEAD,)
    container_name = "ray"
    port_name = "gcs"
    port = 6379
    options_model = RayTrainJobOptions
    options: RayTrainJobOptions

    def default(self, job: Job) -> None:
        """Begin with all workers, unless the job can do with fewer."""
        if _spec(job).min_workers is None:
            job.spec["minWorkers"] = job.replicas(WORKER)

    def validate(self, job: Job, old: Job | None) -> Iterator[FieldError]:
        """Check that there is one head, and that it does not wait for workers that never come."""
        path = f"spec.{self.replica_specs_field}[{HEAD}]"
        if HEAD not in job.replica_specs:
            yield FieldError(path, "must be present", "Required")
        elif job.replicas(HEAD) != 1:
            yield FieldError(f"{path}.replicas", "must be 1", "Forbidden")
        fewest, workers = _min_workers(job), job.replicas(WORKER)
        if not 0 <= fewest <= workers:
            detail = f"must be between 0 and the number of workers, which is {workers}"
            yield FieldError("spec.minWorkers", detail, value=fewest)

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Tell all where the head is, and the head for how many workers to wait."""
        address = f"{self.pod_name(job, HEAD, 0)}:{training_port(job, HEAD)}"
        environment = [env_value("RAY_ADDRESS", address)]
        if replica_type == HEAD:
            environment = [env_value("RAY_MIN_WORKERS", _min_workers(job))]
        append_env_of_all(pod["spec"], environment)
        for container in pod["spec"]["containers"]:
            if replica_type == WORKER and container["name"] == self.container_name and not container.get("command"):
                container["command"] = list(self.options.worker_command)

    def update_job_status(
        self, job: Job, replicas: Mapping[str, ReplicaStatus], pods: Mapping[str, Sequence[JsonObject]]
    ) -> Iterator[ConditionUpdate]:
        """Return which conditions hold: workers may be lost for good, as long as enough of them are left."""
        workers = job.replica_specs.get(WORKER)
        if workers is not None and workers.restart_policy == NEVER:
            lost = replicas[WORKER].failed
            if workers.replicas - lost >= _min_workers(job):
                replicas = {**replicas, WORKER: replace(replicas[WORKER], failed=0)}
        return super().update_job_status(job, replicas, pods)


def _spec(job: Job) -> RayTrainJobSpec:
    return parse_part(RayTrainJobSpec, job.spec, "spec")


def _min_workers(job: Job) -> int:
    return _spec(job).min_workers or 0
