"""The transport `ssh` of MPIJobs: workers run sshd, and mpirun starts ranks by ssh, with a key pair made for the job.

Nobody needs a right for it: the launcher has no ServiceAccount of its own, and the manager no pods/exec. Images have to
bring sshd, which the workers run where they are given no command, and an ssh that takes the keys of hosts which it does
not know. Each pod has a Service, by whose name the others reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from trainmaster.plugins.jobs.mpi_hosts import (
    DISCOVER_HOSTS,
    HOSTFILE,
    app_label,
    config_map,
    config_mount,
    config_path,
    config_volume,
    discover_hosts,
    hostfile,
    launcher_has_gpu,
    no_gpus,
    slots,
)
from trainmaster.plugins.util.mpi_ssh import SECRET_TYPE, environment, key_mount, key_volume, make_keys
from trainmaster.plugins.util.owned_objects import WATCHES, Entropy, secret_object
from trainmaster.runtime.api.constants import INTEL_MPI, MPI_IMPLEMENTATIONS, OPEN_MPI
from trainmaster.runtime.jobs.interface import Grant, Job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.podspec import upsert_env, upsert_volume_mounts, upsert_volumes

SSH_AUTH_MOUNT_PATH: Final = "/root/.ssh"

_HYDRA_HOSTFILE: Final = "hydra_hostfile"
"""The hosts as Intel MPI and MPICH read them."""

_SSHD: Final = ("/usr/sbin/sshd", "-De")


class OverSSH:
    """Reaches workers by their Services.

    Args:
        mount_path: Where the keys are mounted, the `.ssh` of the user of the images.
        entropy: Where the randomness of keys comes from.
    """

    has_services = True
    files = 3
    """How many files list the hosts."""

    def __init__(self, mount_path: str, entropy: Entropy) -> None:
        self._mount_path = mount_path
        self._entropy = entropy

    def watches(self) -> Iterable[Watch]:
        """Return the kinds of what `build` returns."""
        return WATCHES

    def grants(self) -> Iterable[Grant]:
        """Return nothing: the launcher needs no right."""
        return ()

    def build(self, job: Job, pods: Sequence[JsonObject], listers: Listers) -> Iterator[JsonObject]:
        """Return the keys and the files of the launcher."""
        secret = secret_object(
            _secret_name(job), lambda: make_keys(self._entropy), job.namespace, listers, secret_type=SECRET_TYPE
        )
        secret["metadata"]["labels"] = app_label(job)
        yield secret
        files = {
            HOSTFILE: hostfile(job, OPEN_MPI),
            _HYDRA_HOSTFILE: hostfile(job, INTEL_MPI),
            DISCOVER_HOSTS: discover_hosts(job, pods),
        }
        yield config_map(job, files)

    def set_launcher(self, job: Job, spec: JsonObject) -> None:
        """Give the launcher keys and files, and the variables by which each implementation uses them."""
        modes = {HOSTFILE: 0o444, _HYDRA_HOSTFILE: 0o444, DISCOVER_HOSTS: 0o555}
        upsert_volumes(spec, [self._key_volume(job), config_volume(job, modes)])
        container = spec["containers"][0]
        given = {each.get("name") for each in container.get("env") or []}
        upsert_env(container, (each for each in _environment(job) if each["name"] not in given))
        upsert_volume_mounts(container, [key_mount(self._mount_path), config_mount()])

    def set_worker(self, job: Job, spec: JsonObject) -> None:
        """Give a worker keys, and let it run sshd if it is to run nothing else."""
        upsert_volumes(spec, [self._key_volume(job)])
        container = _main_container(job, spec)
        if not container.get("command") and not container.get("args"):
            container["command"] = list(_SSHD)
        upsert_volume_mounts(container, [key_mount(self._mount_path)])

    def _key_volume(self, job: Job) -> JsonObject:
        return key_volume(_secret_name(job), self._mount_path)


def _environment(job: Job) -> Iterator[JsonObject]:
    for implementation in MPI_IMPLEMENTATIONS:
        path = config_path(HOSTFILE if implementation == OPEN_MPI else _HYDRA_HOSTFILE)
        yield from environment(implementation, path, slots(job))
    if not launcher_has_gpu(job):
        yield from no_gpus()


def _main_container(job: Job, spec: JsonObject) -> JsonObject:
    """Return the container of a worker that ranks run in."""
    containers: list[JsonObject] = spec["containers"]
    return next((each for each in containers if each.get("name") == job.spec.get("mainContainer")), containers[0])


def _secret_name(job: Job) -> str:
    return f"{job.name}-ssh"
