"""XGBoostJob: what a program needs to start the tracker of XGBoost's collective on its master, or to run LightGBM.

The tracker itself is the program's: it starts it on rank 0 and connects to it from all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jobs.constants import MASTER, RUNNING, WORKER
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job, JobKind
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import append_env_of_all, env_value


class XGBoostJob(JobKind):
    """Serves XGBoostJobs."""

    kind = "XGBoostJob"
    plural = "xgboostjobs"
    framework = "xgboost"
    replica_specs_field = "xgbReplicaSpecs"
    replica_types = (MASTER, WORKER)
    leading_types = (MASTER,)
    container_name = "xgboost"
    port_name = "xgboostjob-port"
    port = 9999

    def validate(self, job: Job, old: Job | None) -> Iterator[FieldError]:
        """Check that there is one Master; it need not say that it is one (V1-B16)."""
        path = f"spec.{self.replica_specs_field}[{MASTER}]"
        if MASTER not in job.replica_specs:
            yield FieldError(path, "must be present", "Required")
        elif job.replicas(MASTER) != 1:
            yield FieldError(f"{path}.replicas", "must be 1", "Forbidden")

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Give all containers the environment."""
        append_env_of_all(pod["spec"], list(self._environment(job, replica_type, index)))

    def _environment(self, job: Job, replica_type: str, index: int) -> Iterator[JsonObject]:
        yield env_value("MASTER_PORT", training_port(job, MASTER))
        yield env_value("MASTER_ADDR", self.pod_name(job, MASTER, 0))
        yield env_value("WORLD_SIZE", job.total_replicas)
        yield env_value("RANK", index if replica_type == MASTER else index + job.replicas(MASTER))
        yield env_value("PYTHONUNBUFFERED", 1)
        if job.total_replicas > 1:
            workers = (self.pod_name(job, WORKER, each) for each in range(job.total_replicas - 1))
            yield env_value("WORKER_PORT", training_port(job, WORKER))
            yield env_value("WORKER_ADDRS", ",".join(workers))

    def update_job_status(
        self, job: Job, replicas: Mapping[str, ReplicaStatus], pods: Mapping[str, Sequence[JsonObject]]
    ) -> Iterator[ConditionUpdate]:
        """Return which conditions hold: whatever became of a job, it has been running before.

        Failed replicas that their restart policy replaces do not fail it, as those of other kinds (V1-B10).
        """
        for update in super().update_job_status(job, replicas, pods):
            if update.type != RUNNING:
                yield ConditionUpdate(RUNNING, self.running_message(job))
            yield update
