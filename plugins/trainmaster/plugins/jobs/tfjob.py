"""TFJob: `TF_CONFIG`, by which tf.distribute and estimators find each other.

As in the Training Operator V1 the cluster lists evaluators too (V1-B39): TensorFlow counts the others without them. A
job of a single replica gets none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

from trainmaster.runtime.api.decoding import parse_part
from trainmaster.runtime.api.meta import ApiModel, NullIsDefault, Schema
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.jobs.constants import FAILED, MASTER, NEVER, REPLICA_INDEX_LABEL, RESTARTING, WORKER
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job, JobKind
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jobs.types import ReplicaSpec, ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import append_env, env_value

CHIEF: Final = "Chief"
EVALUATOR: Final = "Evaluator"
PS: Final = "PS"

_DEFAULT: Final = ""
_ALL_WORKERS: Final = "AllWorkers"


class TFJobSpec(ApiModel):
    """What only the spec of a TFJob has."""

    success_policy: Annotated[str, NullIsDefault] = _DEFAULT
    """AllWorkers: the job succeeds when all workers have; if empty, when the chief or the first worker has."""

    enable_dynamic_worker: Annotated[bool, NullIsDefault, Schema(default=None)] = False
    """Whether workers may come and go, and fail, while the job runs.

    Each knows itself and the parameter servers only.
    """


class TFJob(JobKind):
    """Serves TFJobs."""

    kind = "TFJob"
    plural = "tfjobs"
    framework = "tensorflow"
    replica_specs_field = "tfReplicaSpecs"
    replica_types = (CHIEF, EVALUATOR, MASTER, PS, WORKER)
    leading_types = (CHIEF, MASTER, WORKER, EVALUATOR, PS)
    other_types = True
    container_name = "tensorflow"
    port_name = "tfjob-port"
    port = 2222

    def default(self, job: Job) -> None:
        """Fill in the policy of success."""
        job.spec["successPolicy"] = _spec(job).success_policy

    def validate(self, job: Job, old: Job | None) -> Iterator[FieldError | FieldWarning]:
        """Check that one type leads, and warn of a policy of success that is none (V1-B17)."""
        if CHIEF in job.replica_specs and MASTER in job.replica_specs:
            detail = "must not have more than 1 Chief or Master role"
            yield FieldError(f"spec.{self.replica_specs_field}", detail, "Forbidden")
        policy = _spec(job).success_policy
        if policy not in (_DEFAULT, _ALL_WORKERS):
            detail = f'"{policy}" is not {_ALL_WORKERS}, so the success of the first worker is that of the job'
            yield FieldWarning("spec.successPolicy", detail)

    def is_master_role(self, job: Job, replica_type: str, index: int) -> bool:
        """Tell whether a pod leads; of those that only lead because nobody else does (V1-B7), none has the role."""
        return replica_type not in (PS, EVALUATOR) and super().is_master_role(job, replica_type, index)

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Give the container that trains its `TF_CONFIG`."""
        if sum(map(job.replicas, self.replica_types)) == 1:
            return
        containers = pod["spec"].get("containers") or []
        trainer = next((each for each in containers if each.get("name") == self.container_name), None)
        if trainer is not None:
            config = self._tf_config(job, replica_type, index)
            append_env(trainer, [env_value("TF_CONFIG", json.dumps(config, separators=(",", ":")))])

    def _tf_config(self, job: Job, replica_type: str, index: int) -> JsonObject:
        task = {"type": replica_type.lower(), "index": index}
        if _spec(job).enable_dynamic_worker:
            worker, servers = {}, []
            if replica_type == WORKER:
                worker, servers = {str(index): self._address(job, WORKER, index)}, self._addresses(job, PS)
            elif replica_type == PS:
                servers = [self._address(job, PS, index)]
            return {"cluster": {"worker": worker, "ps": servers}, "task": task}
        cluster = {each.lower(): self._addresses(job, each) for each in sorted(job.replica_specs, key=str.lower)}
        return {"cluster": cluster, "task": task, "environment": "cloud"}

    def _addresses(self, job: Job, replica_type: str) -> list[str]:
        if not job.replicas(replica_type):
            return []
        # Once for all of them: each pod has this list.
        domain = self._domain(job, replica_type)
        return [f"{self.pod_name(job, replica_type, each)}{domain}" for each in range(job.replicas(replica_type))]

    def _address(self, job: Job, replica_type: str, index: int) -> str:
        return f"{self.pod_name(job, replica_type, index)}{self._domain(job, replica_type)}"

    def _domain(self, job: Job, replica_type: str) -> str:
        domain = f".{self.cluster_domain}" if self.cluster_domain else ""
        return f".{job.namespace}.svc{domain}:{training_port(job, replica_type)}"

    def has_succeeded(
        self, job: Job, replicas: Mapping[str, ReplicaStatus], pods: Mapping[str, Sequence[JsonObject]]
    ) -> bool:
        """Tell whether the chief is done; without one, all workers, or the first if that is enough."""
        if super().has_succeeded(job, replicas, pods):
            return True
        enough = self.leading_type(job) == WORKER and _spec(job).success_policy != _ALL_WORKERS
        return enough and any(map(_is_completed_first, pods[WORKER]))

    def update_job_status(
        self, job: Job, replicas: Mapping[str, ReplicaStatus], pods: Mapping[str, Sequence[JsonObject]]
    ) -> Iterator[ConditionUpdate]:
        """Return which conditions hold: one that has succeeded has not failed as well (V1-B7)."""
        workers = job.replica_specs.get(WORKER)
        if workers is not None and workers.restart_policy == NEVER and _spec(job).enable_dynamic_worker:
            replicas = {**replicas, WORKER: replace(replicas[WORKER], failed=0)}
        return super().update_job_status(job, replicas, pods)

    def failed_replicas(self, job: Job, replica_type: str, spec: ReplicaSpec, status: ReplicaStatus) -> ConditionUpdate:
        """Return what failed replicas mean, by their own restart policy: no other type's hides them (V1-B7)."""
        if spec.restart_policy == NEVER:
            why = f"because {status.failed} {replica_type} replica(s) failed."
            return ConditionUpdate(FAILED, f"{self.kind} {job.namespace}/{job.name} has failed {why}")
        return ConditionUpdate(RESTARTING, f"job {job.name} is restarting because {replica_type} replica(s) failed.")

    def running_message(self, job: Job) -> str:
        """Return the message of the condition Running; the original's always names the namespace."""
        return f"{self.kind} {job.namespace}/{job.name} is running."

    def succeeded_message(self, job: Job) -> str:
        """Return the message of the condition Succeeded."""
        return f"{self.kind} {job.namespace}/{job.name} successfully completed."


def _spec(job: Job) -> TFJobSpec:
    return parse_part(TFJobSpec, job.spec, "spec")


def _is_completed_first(pod: JsonObject) -> bool:
    is_first = (pod["metadata"].get("labels") or {}).get(REPLICA_INDEX_LABEL) == "0"
    return is_first and (pod.get("status") or {}).get("phase") == "Succeeded"
