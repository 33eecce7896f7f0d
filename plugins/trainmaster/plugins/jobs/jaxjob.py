"""JAXJob: what a program passes to `jax.distributed.initialize()`. Its first worker is the coordinator."""

from __future__ import annotations

from trainmaster.runtime.jobs.constants import WORKER
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import append_env_of_all, env_value


class JAXJob(JobKind):
    """Serves JAXJobs."""

    kind = "JAXJob"
    plural = "jaxjobs"
    framework = "jax"
    replica_specs_field = "jaxReplicaSpecs"
    replica_types = (WORKER,)
    leading_types = (WORKER,)
    container_name = "jax"
    port_name = "jaxjob-port"
    port = 6666
    scale_type = WORKER

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Give all containers the environment."""
        environment = [
            env_value("PYTHONUNBUFFERED", 1),
            env_value("COORDINATOR_PORT", training_port(job, WORKER)),
            env_value("COORDINATOR_ADDRESS", self.pod_name(job, WORKER, 0)),
            env_value("NUM_PROCESSES", job.total_replicas),
            env_value("PROCESS_ID", index),
        ]
        append_env_of_all(pod["spec"], environment)
