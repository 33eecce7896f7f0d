"""MPI: a launcher that starts ranks on the nodes by SSH.

The pods of two ReplicatedJobs take part: `node` (which runs sshd) and `launcher` (which runs mpirun). Both mount one
SSH key pair, which is made once for the job; the launcher gets the hostfile and the variables by which its
implementation finds it.

- `numNodes` is the number of hosts that ranks run on. With `runLauncherAsNode` the launcher is one of them, so that a
  single node is the launcher alone, and there are no pods of `node`. There is always one launcher. A runtime that
  leaves `numNodes` at 1 may fix the pods of `node` by their `parallelism` instead. Replicas of `node` are slices, over
  which the hosts are spread, if it is the trainer; otherwise each of them has that many hosts.
- A host has as many slots as `numProcPerNode` says; where that is 1, one for each of its GPUs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trainmaster.plugins.util.mpi_ssh import SECRET_TYPE, environment, host_line, key_mount, key_volume, make_keys
from trainmaster.plugins.util.owned_objects import (
    MAX_CONFIG_BYTES,
    WATCHES,
    Entropy,
    checked_entropy,
    config_map,
    secret,
)
from trainmaster.runtime.api.constants import (
    LAUNCHER,
    MPI_HOSTFILE_DIRECTORY,
    MPI_HOSTFILE_KEY,
    MPI_HOSTFILE_PATH,
    MPI_IMPLEMENTATIONS,
    MPI_RESERVED_ENV,
    NODE,
    OPEN_MPI,
    TRAINER_ANCESTOR,
    mpi_config_map_name,
    mpi_secret_name,
)
from trainmaster.runtime.api.trainingruntime import MPIPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework.interface import Desired, Rejected
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.podspec import upsert_env, upsert_volume_mounts, upsert_volumes
from trainmaster.runtime.rendezvous import check_process_count, reserved_env, set_pods, unreachable

_HOSTFILE_VOLUME: Final = "mpi-hostfile"
_FORWARDED: Final = "OMPI_MCA_mca_base_env_list"
"""The variable that names, for Open MPI, those that ranks get; mpirun refuses `-x` beside it."""

_PASSED_ON: Final = re.compile(r"-x\s+(\w+)")
_SHOWN: Final = 10


class MPI:
    """Serves `mlPolicy.mpi`.

    Args:
        entropy: Where the randomness of SSH keys comes from.
    """

    name = "mpi"
    policies = ("mpi",)

    def __init__(self, *, entropy: Entropy = os.urandom) -> None:
        self._entropy = checked_entropy(entropy)

    def watch_extension(self) -> Iterable[Watch]:
        """The hostfiles and the SSH keys."""
        return WATCHES

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes, mount keys and hostfile, and tell the launcher where they are."""
        policy = _policy(info)
        if policy is None:
            return
        implementation = _implementation(policy)
        check_process_count(job, policy.num_proc_per_node)
        _set_counts(info, policy, job)
        for pods in info.pod_sets:
            if pods.name in (NODE, LAUNCHER):
                _mount_keys(pods, policy, job)
        launcher = info.pod_set(LAUNCHER)
        if launcher is not None:
            slots = _slots(info, policy, job)
            _mount_hostfile(launcher, environment(implementation, MPI_HOSTFILE_PATH, slots), job)

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        """Return the SSH keys and the hostfile."""
        policy = _policy(info)
        if policy is None:
            return
        name = job.metadata.name
        yield secret(mpi_secret_name(name), self._make_keys, job, listers, secret_type=SECRET_TYPE)
        hostfile = _hostfile(info, policy, job)
        yield config_map(mpi_config_map_name(name), {MPI_HOSTFILE_KEY: hostfile}, job, listers)

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Forbid what the policy sets, and numbers of nodes that the runtime cannot have."""
        policy = _policy(info)
        if policy is None:
            return
        nodes = job.spec.trainer.num_nodes if job.spec.trainer else None
        complete = info.pod_set(LAUNCHER) is not None and info.pod_set(NODE) is not None
        if policy.run_launcher_as_node and nodes is not None and nodes > 1 and not complete:
            detail = (
                "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode"
                " does not have either launcher and node"
            )
            yield FieldError("spec.trainer.numNodes", detail, value=nodes)
        yield from reserved_env(job, MPI_RESERVED_ENV.get(policy.mpi_implementation or OPEN_MPI, frozenset()))
        yield from _unforwarded(info, policy, job)
        yield from unreachable(info, job)

    def _make_keys(self) -> Mapping[str, bytes]:
        return make_keys(self._entropy)


def _policy(info: Info) -> MPIPolicy | None:
    return info.ml_policy.mpi if info.ml_policy else None


def _implementation(policy: MPIPolicy) -> str:
    # The schema lets the empty text pass, as the name of the default.
    implementation = policy.mpi_implementation or OPEN_MPI
    if implementation not in MPI_IMPLEMENTATIONS:
        raise Rejected(
            f"the runtime's mlPolicy.mpi.mpiImplementation {implementation!r} is not supported; "
            f"it can be {', '.join(MPI_IMPLEMENTATIONS)}"
        )
    return implementation


def _set_counts(info: Info, policy: MPIPolicy, job: TrainJob) -> None:
    launcher, nodes = info.pod_set(LAUNCHER), info.pod_set(NODE)
    if launcher is not None:
        launcher.count = 1
    asked = job.spec.trainer.num_nodes if job.spec.trainer else None
    if asked is None:
        asked = info.ml_policy.num_nodes if info.ml_policy else None
        if asked == 1 and nodes is not None and "parallelism" in nodes.job_template["spec"]:
            return
    if nodes is not None and asked is not None:
        launcher_is_node = launcher is not None and policy.run_launcher_as_node
        hosts = max(asked - 1, 0) if launcher_is_node else asked
        if nodes.ancestor == TRAINER_ANCESTOR:
            set_pods(nodes, hosts)
        else:
            nodes.count = hosts  # in each Job: only the replicas of a trainer are slices


def _hosts(info: Info, policy: MPIPolicy) -> list[PodSet]:
    """The pods that ranks run on, in the order of the template."""
    names = (NODE, LAUNCHER) if policy.run_launcher_as_node else (NODE,)
    return [pods for pods in info.pod_sets if pods.name in names]


def _slots(info: Info, policy: MPIPolicy, job: TrainJob) -> int:
    asked = job.spec.trainer.num_proc_per_node if job.spec.trainer else None
    if asked is not None:
        return asked
    if policy.num_proc_per_node != 1:
        return policy.num_proc_per_node
    # What the containers really get counts, whether it comes from the runtime or the TrainJob.
    return next((pods.gpus for pods in _hosts(info, policy) if pods.gpus), 1)


def _unforwarded(info: Info, policy: MPIPolicy, job: TrainJob) -> Iterator[FieldWarning]:
    """Warn of variables that ranks do not get: Open MPI starts them by ssh, and passes on what it is told to alone.

    Hydra, of Intel MPI and MPICH, passes on what mpirun has.
    """
    trainer = job.spec.trainer
    nodes = (trainer and trainer.num_nodes) or (info.ml_policy and info.ml_policy.num_nodes) or 1
    if trainer is None or nodes == 1 or (policy.mpi_implementation or OPEN_MPI) != OPEN_MPI:
        return
    names = [variable["name"] for variable in trainer.env]
    if _FORWARDED in names:
        return
    passed_on = set(_PASSED_ON.findall(" ".join([*(trainer.command or ()), *(trainer.args or ())])))
    missing = [name for name in names if not name.startswith("OMPI_") and name not in passed_on]
    if missing:
        flags = " ".join(f"-x {name}" for name in missing[:_SHOWN]) + (" ..." if len(missing) > _SHOWN else "")
        detail = (
            "does not reach the ranks of other nodes, which mpirun starts by ssh: name each variable there, as in "
            f"`mpirun {flags}`"
        )
        yield FieldWarning("spec.trainer.env", detail)


def _mount_keys(pods: PodSet, policy: MPIPolicy, job: TrainJob) -> None:
    path = policy.ssh_auth_mount_path
    upsert_volumes(pods.pod_spec, [key_volume(mpi_secret_name(job.metadata.name), path)])
    container = pods.container(NODE)
    if container is not None:
        upsert_volume_mounts(container, [key_mount(path)])


def _mount_hostfile(launcher: PodSet, environment: Iterable[JsonObject], job: TrainJob) -> None:
    items = [{"key": MPI_HOSTFILE_KEY, "path": MPI_HOSTFILE_KEY, "mode": 0o444}]
    source = {"name": mpi_config_map_name(job.metadata.name), "items": items}
    upsert_volumes(launcher.pod_spec, [{"name": _HOSTFILE_VOLUME, "configMap": source}])
    container = launcher.container(NODE)
    if container is not None:
        upsert_volume_mounts(container, [{"name": _HOSTFILE_VOLUME, "mountPath": MPI_HOSTFILE_DIRECTORY}])
        upsert_env(container, environment)


def _hostfile(info: Info, policy: MPIPolicy, job: TrainJob) -> str:
    """Write the hosts down in the words of the implementation."""
    slots = _slots(info, policy, job)
    implementation = _implementation(policy)
    # The last of each is the longest. Names are never written before their number is known to be bearable.
    listed = [pods.endpoints for pods in _hosts(info, policy) if pods.endpoints]
    size = sum(len(names) * len(host_line(implementation, names[-1], slots)) for names in listed)
    if size > MAX_CONFIG_BYTES:
        count = sum(len(names) for names in listed)
        raise Rejected(f"the hostfile of {count} nodes does not fit into a ConfigMap; use fewer nodes")
    return "".join(host_line(implementation, host, slots) for names in listed for host in names)
