"""PaddleJob: what `paddle.distributed.launch` needs, which finds out the ranks by itself.

Workers alone train collectively and meet at the first of them. With a Master they use parameter servers, which the
masters are, and meet at the first master.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.plugins.jobs.elastic import ElasticLimits
from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.field_errors import FieldWarning
from trainmaster.runtime.jobs.constants import MASTER, ON_FAILURE, WORKER
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import append_env_of_all, env_field, env_value


class PaddleJobSpec(ApiModel):
    """What only the spec of a PaddleJob has; nothing comes of it."""

    elastic_policy: ElasticLimits | None = None
    """How many workers there may be."""


class PaddleJob(JobKind):
    """Serves PaddleJobs."""

    kind = "PaddleJob"
    plural = "paddlejobs"
    framework = "paddle"
    replica_specs_field = "paddleReplicaSpecs"
    replica_types = (MASTER, WORKER)
    leading_types = (MASTER, WORKER)
    container_name = "paddle"
    port_name = "master"
    port = 36543
    default_restart_policy = ON_FAILURE
    scale_type = WORKER

    def validate(self, job: Job, old: Job | None) -> Iterator[FieldWarning]:
        """Warn of an elastic policy: nothing ever came of it (V1-B23), and an empty one does no harm (V1-B13)."""
        if job.spec.get("elasticPolicy") is not None:
            detail = "is ignored: a PaddleJob has as many workers as its replicas say; leave it out"
            yield FieldWarning("spec.elasticPolicy", detail)

    def lacks_container(self) -> str:
        """Return what is said of replicas without the container that trains; the original quotes its name."""
        return f'must have at least one container with name "{self.container_name}"'

    def is_master_role(self, job: Job, replica_type: str, index: int) -> bool:
        """Tell whether a pod is a master; workers alone have none."""
        return replica_type == MASTER

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Give all containers the environment."""
        append_env_of_all(pod["spec"], list(self._environment(job, replica_type, index)))

    def _environment(self, job: Job, replica_type: str, index: int) -> Iterator[JsonObject]:
        has_servers = MASTER in job.replica_specs
        meeting = MASTER if has_servers else WORKER
        host = self.pod_name(job, meeting, 0)
        yield env_value("PYTHONUNBUFFERED", 1)
        yield env_value("PADDLE_JOB_ID", job.name)
        yield env_value("PADDLE_NNODES", job.total_replicas)
        if replica_type == meeting and index == 0:
            # It listens on the address that it is given here, which has to be its own.
            yield env_field("POD_IP_DUMMY", "status.podIP")
            host = "$(POD_IP_DUMMY)"
        yield env_value("PADDLE_MASTER", f"{host}:{training_port(job, meeting)}")
        if has_servers:
            yield env_value("PADDLE_SERVER_NUM" if replica_type == MASTER else "PADDLE_TRAINER_NUM", 1)
