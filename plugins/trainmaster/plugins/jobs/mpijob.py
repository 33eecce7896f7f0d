"""MPIJob: a launcher that runs mpirun, and workers that it starts ranks on.

- The launcher says how the job fares. Workers wait for it, with `sleep` or sshd, and never end by themselves: once it
  has finished they do not count any more.
- How the launcher reaches the workers is the transport, an option of the manager: as in the Training Operator V1 by
  `kubectl exec`, which needs nothing of the images but takes rights to pods/exec (V1-B35), or by SSH, which needs sshd
  in them and no rights at all.
- Nobody admits MPIJobs: what is wrong with one is told by a condition, in the words of the original (V1-B18).
- Containers have any name: the first one of the launcher runs mpirun. Variables that are set for it replace those of
  its author (V1-B38), but for the two by which the original lets Intel MPI be started otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from trainmaster.plugins.jobs.mpi_transports import (
    KUBECTL_DELIVERY_IMAGE,
    LAUNCHER,
    SSH_AUTH_MOUNT_PATH,
    WORKER,
    KubectlExec,
    OverSSH,
    most_workers,
)
from trainmaster.plugins.util.owned_objects import Entropy
from trainmaster.runtime.api.decoding import parse_part
from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.jobs.constants import FAILED, NEVER
from trainmaster.runtime.jobs.interface import ConditionUpdate, Grant, Job, JobKind, JobKindOptions
from trainmaster.runtime.jobs.types import ReplicaStatus, RunPolicy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

_EVICTED: Final = "Evicted"
_REFUSED: Final = ("MPIReplicaSpec", "MPIReplicaType")


class MPIJobOptions(JobKindOptions):
    """How launchers reach workers."""

    transport: Literal["kubectl-exec", "ssh"] = "kubectl-exec"
    """By what a launcher starts ranks on the workers."""

    kubectl_delivery_image: str = KUBECTL_DELIVERY_IMAGE
    """The image of the init container that brings kubectl to a launcher, for the transport `kubectl-exec`."""

    ssh_auth_mount_path: str = SSH_AUTH_MOUNT_PATH
    """Where the keys are mounted, the `.ssh` of the user of the images, for the transport `ssh`."""


class MPIJobSpec(ApiModel):
    """What only the spec of an MPIJob has."""

    slots_per_worker: int | None = None
    """How many processes run on each worker; 1 if absent."""

    clean_pod_policy: str | None = None
    """Which pods are deleted when the job has finished: All, Running or None (the default). That of runPolicy wins."""

    main_container: str | None = None
    """Container of the workers in which processes are started."""


class MPIJob(JobKind):
    """Serves MPIJobs.

    Args:
        options: From the configuration.
        entropy: Where the randomness of SSH keys comes from.
    """

    kind = "MPIJob"
    plural = "mpijobs"
    framework = "mpi"
    replica_specs_field = "mpiReplicaSpecs"
    replica_types = (LAUNCHER, WORKER)
    leading_types = (LAUNCHER,)
    single_types = (LAUNCHER,)
    container_name = "mpi"
    any_container = True
    own_rules = True
    keeps_objects = True
    options_model = MPIJobOptions

    def __init__(self, options: MPIJobOptions | None = None, *, entropy: Entropy = os.urandom, **kwargs: Any) -> None:
        super().__init__(options, **kwargs)
        chosen = options or MPIJobOptions()
        self._transport = (
            OverSSH(chosen.ssh_auth_mount_path, entropy)
            if chosen.transport == "ssh"
            else KubectlExec(chosen.kubectl_delivery_image)
        )
        self.has_services = self._transport.has_services

    def default_replicas(self, replica_type: str) -> int:
        """Return one launcher, and no worker."""
        return 1 if replica_type == LAUNCHER else 0

    def run_policy(self, given: RunPolicy, spec: JsonObject) -> RunPolicy:
        """Return the run policy with the cleanPodPolicy that stands beside it, if it has none itself."""
        older = parse_part(MPIJobSpec, spec, "spec").clean_pod_policy
        if not older or (spec.get("runPolicy") or {}).get("cleanPodPolicy") is not None:
            return given
        return given.model_copy(update={"clean_pod_policy": older})

    def validate(self, job: Job, old: Job | None) -> Iterator[FieldError | FieldWarning]:
        """Return what is wrong, in the words of the original, and how many workers are too many."""
        path = f"spec.{self.replica_specs_field}"
        given: Mapping[str, Any] | None = (job.raw.get("spec") or {}).get(self.replica_specs_field)
        if given is None:
            yield FieldError(path, "MPIReplicaSpecs is not valid", "Required")
            return
        for replica_type in sorted(given, key=lambda each: (each not in self.replica_types, each)):
            yield from self._wrong_replicas(f"{path}[{replica_type}]", replica_type, given[replica_type] or {})
        if LAUNCHER not in given:
            detail = "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"
            yield FieldError(f"{path}[{LAUNCHER}]", detail, "Required")
        most = most_workers(job, self._transport.files)
        if job.replicas(WORKER) > most:
            detail = f"the hostfile of more than {most} workers does not fit into a ConfigMap; use fewer workers"
            yield FieldError(f"{path}[{WORKER}].replicas", detail, value=job.replicas(WORKER))

    def _wrong_replicas(self, path: str, replica_type: str, given: JsonObject) -> Iterator[FieldError]:
        place = f"{path}.template.spec.containers"
        containers = ((given.get("template") or {}).get("spec") or {}).get("containers") or []
        if not containers:
            detail = f"MPIReplicaSpecs is not valid: containers definition expected in {replica_type}"
            yield FieldError(place, detail, "Required")
        if replica_type not in self.replica_types:
            detail = f"MPIReplicaType is {replica_type} but must be one of [{' '.join(self.replica_types)}]"
            yield FieldError(path, detail, value=replica_type)
        for index, container in enumerate(containers):
            for field, called in (("image", "Image"), ("name", "ImageName")):
                if not container.get(field):
                    detail = f"MPIReplicaSpec is not valid: {called} is undefined in the container of {replica_type}"
                    yield FieldError(f"{place}[{index}].{field}", detail, "Required")
        replicas = given.get("replicas")
        if replica_type == LAUNCHER and replicas not in (None, 1):
            detail = "MPIReplicaSpec is not valid: There must be only 1 launcher replica"
            yield FieldError(f"{path}.replicas", detail, value=replicas)

    def refusal(self, errors: Sequence[FieldError]) -> str:
        """Return the first of our errors, as the original does; others as for all kinds."""
        return next((each.detail for each in errors if each.detail.startswith(_REFUSED)), super().refusal(errors))

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Give a pod what the transport takes."""
        if replica_type == LAUNCHER:
            self._transport.set_launcher(job, pod["spec"])
        else:
            self._transport.set_worker(job, pod["spec"])

    def build(self, job: Job, pods: Sequence[JsonObject], listers: Listers) -> Iterable[JsonObject]:
        """Return what the transport takes."""
        return self._transport.build(job, pods, listers)

    def watches(self) -> Iterable[Watch]:
        """Return the kinds of that."""
        return self._transport.watches()

    def grants(self) -> Iterable[Grant]:
        """Return the rights of the launcher."""
        return self._transport.grants()

    def replica_statuses(self, job: Job, replicas: Mapping[str, ReplicaStatus]) -> Mapping[str, ReplicaStatus]:
        """Return the replicas by state; workers are none once the launcher has finished."""
        launcher = replicas.get(LAUNCHER) or ReplicaStatus()
        failed = launcher.failed and job.replica_specs[LAUNCHER].restart_policy == NEVER
        if not (launcher.succeeded or failed) or WORKER not in replicas:
            return replicas
        return {**replicas, WORKER: ReplicaStatus()}

    def update_job_status(
        self, job: Job, replicas: Mapping[str, ReplicaStatus], pods: Mapping[str, Sequence[JsonObject]]
    ) -> Iterator[ConditionUpdate]:
        """Return which conditions hold; a failure by eviction has a reason of its own."""
        for update in super().update_job_status(job, replicas, pods):
            if update.type == FAILED and any(map(_is_evicted, (pod for each in pods.values() for pod in each))):
                yield replace(update, reason=f"{self.kind}{_EVICTED}")
            else:
                yield update


def _is_evicted(pod: JsonObject) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Failed" and status.get("reason") == _EVICTED
