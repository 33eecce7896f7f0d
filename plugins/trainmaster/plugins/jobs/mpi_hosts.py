"""The hosts of an MPIJob: who they are, how many ranks each takes, and the files that tell the launcher."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from trainmaster.plugins.util.mpi_ssh import host_line
from trainmaster.plugins.util.owned_objects import MAX_CONFIG_BYTES
from trainmaster.runtime.api.constants import MPI_HOSTFILE_DIRECTORY, MPI_HOSTFILE_KEY
from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value

LAUNCHER: Final = "Launcher"
WORKER: Final = "Worker"

HOSTFILE: Final = MPI_HOSTFILE_KEY
DISCOVER_HOSTS: Final = "discover_hosts.sh"

_VOLUME: Final = "mpi-job-config"


def slots(job: Job) -> int:
    """Return how many ranks a host takes."""
    given = job.spec.get("slotsPerWorker")
    return 1 if given is None else int(given)


def launcher_has_gpu(job: Job) -> bool:
    """Tell whether the launcher may use GPUs, and so is a host as well."""
    containers = (job.replica_specs[LAUNCHER].template.get("spec") or {}).get("containers") or []
    limits: Iterable[str] = (name for each in containers for name in (each.get("resources") or {}).get("limits") or {})
    return any("gpu" in name for name in limits)


def workers(job: Job) -> list[str]:
    """Return the names of the workers that a job wants."""
    return [job.kind.pod_name(job, WORKER, index) for index in range(job.replicas(WORKER))]


def hostfile(job: Job, implementation: str) -> str:
    """Write down all hosts that a job wants, in the words of an implementation."""
    leading = [job.kind.pod_name(job, LAUNCHER, 0)] if launcher_has_gpu(job) else []
    return "".join(host_line(implementation, host, slots(job)) for host in [*leading, *workers(job)])


def discover_hosts(job: Job, pods: Sequence[JsonObject]) -> str:
    """Write the script by which elastic Horovod learns which hosts there are at the moment."""
    lines = ["#!/bin/sh"]
    if launcher_has_gpu(job):
        lines.append(f"echo {job.kind.pod_name(job, LAUNCHER, 0)}:{slots(job)}\n")
    lines += [f"echo {name}:{slots(job)}" for name in sorted(_running_workers(pods))]
    return "\n".join(lines)


def _running_workers(pods: Sequence[JsonObject]) -> Iterator[str]:
    for pod in pods:
        metadata = pod["metadata"]
        is_worker = (metadata.get("labels") or {}).get(REPLICA_TYPE_LABEL) == WORKER.lower()
        is_running = (pod.get("status") or {}).get("phase") == "Running" and not metadata.get("deletionTimestamp")
        if is_worker and is_running:
            yield metadata["name"]


def most_workers(job: Job, files: int) -> int:
    """Return how many workers fit into a ConfigMap in which so many files list each of them."""
    longest = len(f"\necho {job.kind.pod_name(job, WORKER, max(job.replicas(WORKER) - 1, 0))} slots={slots(job)}")
    return MAX_CONFIG_BYTES // (files * longest)


def config_map_name(job: Job) -> str:
    """Return the name of the ConfigMap with the files of a job."""
    return f"{job.name}-config"


def config_map(job: Job, data: Mapping[str, str]) -> JsonObject:
    """Build the ConfigMap with the files of a job."""
    metadata = {"name": config_map_name(job), "labels": app_label(job)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def config_volume(job: Job, modes: Mapping[str, int]) -> JsonObject:
    """Return the volume with some of those files, each with its mode."""
    items = [{"key": key, "path": key, "mode": mode} for key, mode in modes.items()]
    return {"name": _VOLUME, "configMap": {"name": config_map_name(job), "items": items}}


def config_mount() -> JsonObject:
    """Return the mount of that volume."""
    return {"name": _VOLUME, "mountPath": MPI_HOSTFILE_DIRECTORY}


def config_path(key: str) -> str:
    """Return where a file of a job is in its pods."""
    return f"{MPI_HOSTFILE_DIRECTORY}/{key}"


def app_label(job: Job) -> dict[str, Any]:
    """Return the label of what a job has besides pods."""
    return {"app": job.name}


def no_gpus() -> list[JsonObject]:
    """Return the variables that keep GPUs from a launcher that asked for none; images of NVIDIA ask for all."""
    return [env_value("NVIDIA_VISIBLE_DEVICES", ""), env_value("NVIDIA_DRIVER_CAPABILITIES", "")]
