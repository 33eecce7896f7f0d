"""MPI over SSH, for jobs of all kinds: the key pair that the hosts share, and the variables of each implementation.

The private key is readable by its owner alone where ssh insists on that: where the user is root, whose the file is.
Others read it as members of the pod's group, and ssh lets them because the file is not theirs. All hosts need it: Open
MPI starts ranks from one host to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from trainmaster.plugins.util.owned_objects import Entropy, ssh_key_pair
from trainmaster.runtime.api.constants import INTEL_MPI, MPICH, OPEN_MPI
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value

SECRET_TYPE: Final = "kubernetes.io/ssh-auth"  # noqa: S105 - a type

_VOLUME: Final = "mpi-ssh-auth"
_PRIVATE_KEY: Final = "ssh-privatekey"
_PUBLIC_KEY: Final = "ssh-publickey"

_SSH_ARGUMENTS: Final = "-o ConnectionAttempts=10"
"""Pods come up in any order: a host may not listen yet."""

_INTERFACE: Final = "eth0"
"""Where Hydra, the process manager of Intel MPI and MPICH, listens. Without it the nodes would look for the launcher
under its short name, which no DNS knows. Not reserved: a cluster may name it otherwise.
"""


def make_keys(entropy: Entropy) -> Mapping[str, bytes]:
    """Make the data of the Secret."""
    pair = ssh_key_pair(entropy)
    return {_PRIVATE_KEY: pair.private, _PUBLIC_KEY: pair.public}


def key_volume(secret_name: str, path: str) -> JsonObject:
    """Return the volume with the keys of a Secret, as it is to be mounted at `path`, the `.ssh` of a user."""
    is_roots = PurePosixPath(path).is_relative_to("/root")
    items = [
        {"key": _PRIVATE_KEY, "path": "id_rsa", "mode": 0o400 if is_roots else 0o640},
        {"key": _PUBLIC_KEY, "path": "id_rsa.pub", "mode": 0o644},
        {"key": _PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
    ]
    return {"name": _VOLUME, "secret": {"secretName": secret_name, "defaultMode": 0o400, "items": items}}


def key_mount(path: str) -> JsonObject:
    """Return the mount of that volume."""
    return {"name": _VOLUME, "mountPath": path}


def environment(implementation: str, hostfile: str, slots: int) -> list[JsonObject]:
    """Return the variables by which an implementation finds the hostfile, a path, and reaches the hosts."""
    variables: Mapping[str, Mapping[str, object]] = {
        OPEN_MPI: {
            "OMPI_MCA_orte_default_hostfile": hostfile,
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": slots,
            "OMPI_MCA_plm_rsh_args": _SSH_ARGUMENTS,
            # Of Open MPI 5, which takes no notice of those, and compares hosts with its own name, without a domain.
            "PRTE_MCA_prte_default_hostfile": hostfile,
            "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
            "PRTE_MCA_plm_ssh_args": _SSH_ARGUMENTS,
        },
        INTEL_MPI: {
            "I_MPI_HYDRA_HOST_FILE": hostfile,
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _SSH_ARGUMENTS,
            "I_MPI_HYDRA_IFACE": _INTERFACE,
            "I_MPI_PERHOST": slots,
        },
        MPICH: {
            "HYDRA_HOST_FILE": hostfile,
            "HYDRA_IFACE": _INTERFACE,
            "HYDRA_LAUNCHER_EXTRA_ARGS": _SSH_ARGUMENTS,
            "HYDRA_LAUNCH_EXTRA_ARGS": _SSH_ARGUMENTS,  # what older versions read
        },
    }
    return [env_value(name, value) for name, value in variables[implementation].items()]


def host_line(implementation: str, host: str, slots: int) -> str:
    """Return the line of a host in the hostfile of an implementation."""
    return f"{host}{' slots=' if implementation == OPEN_MPI else ':'}{slots}\n"
