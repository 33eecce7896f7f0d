"""Flux: the user's command under the Flux resource manager, which has a broker on each node.

An init container copies Flux into a volume that the trainer container mounts; there a script starts the broker in place
of the user's command, and the leading broker runs the command on all nodes. The command is handed over word by word, as
arguments of the script, so nothing in it is quoted or split again. Without any command the instance waits for people.

Three variables of the trainer container, given by the runtime or the TrainJob, change how Flux is set up:
FLUX_VIEW_IMAGE (the image that Flux is copied from), FLUX_NETWORK_DEVICE (where brokers listen), FLUX_QUEUE_POLICY.

The brokers recognise each other by a CURVE certificate, which is made from fresh randomness once for each job.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Final

from trainmaster.plugins.util.owned_objects import (
    MAX_CONFIG_BYTES,
    WATCHES,
    Entropy,
    checked_entropy,
    config_map,
    curve_certificate,
    secret,
)
from trainmaster.runtime.api.constants import (
    FLUX_INSTALLER,
    FLUX_NETWORK_DEVICE,
    FLUX_QUEUE_POLICY,
    FLUX_VIEW_IMAGE,
    flux_config_map_name,
    flux_secret_name,
)
from trainmaster.runtime.api.trainingruntime import FluxPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework.interface import Desired, Rejected
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.podspec import upsert_volume_mounts, upsert_volumes
from trainmaster.runtime.rendezvous import check_process_count, set_node_count, unreachable

_DEFAULTS: Final = {
    FLUX_VIEW_IMAGE: "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy",
    FLUX_NETWORK_DEVICE: "eth0",
    FLUX_QUEUE_POLICY: "fcfs",
}

_FLUX: Final = "flux-install"
_SOFTWARE: Final = "spack-install"
_CERTIFICATE: Final = "flux-curve"
_MEMORY: Final = "shared-memory"

_SCRIPTS_DIRECTORY: Final = "/etc/flux-config"
_ENTRYPOINT: Final = "entrypoint.sh"
_INIT: Final = "init.sh"

_BROKER_PORT: Final = 8050

_RESERVED_MESSAGE: Final = f"InitContainer '{FLUX_INSTALLER}' is reserved"

# What the scripts do is the same for every job: each is preceded by a few lines that set its variables.
_INIT_BODY: Final = files(__package__).joinpath("flux_init.sh").read_text()
_ENTRYPOINT_BODY: Final = files(__package__).joinpath("flux_entrypoint.sh").read_text()


class Flux:
    """Serves `mlPolicy.flux`.

    Args:
        entropy: Where the randomness of certificates comes from.
    """

    name = "flux"
    policies = ("flux",)

    def __init__(self, *, entropy: Entropy = os.urandom) -> None:
        self._entropy = checked_entropy(entropy)

    def watch_extension(self) -> Iterable[Watch]:
        """The scripts and the certificates."""
        return WATCHES

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes, install Flux, and put the broker in place of the user's command."""
        policy = _policy(info)
        if policy is None:
            return
        check_process_count(job, policy.num_proc_per_node)
        set_node_count(info, job)
        nodes, container = info.trainer, info.trainer_container
        if nodes is None or container is None:
            return
        if _has_installer(nodes):
            raise Rejected(f"{_RESERVED_MESSAGE}: the runtime must not have one")
        _install(nodes, container, job)
        users = job.spec.trainer.command if job.spec.trainer else None
        # The arguments stay where they are, behind the command.
        command = ["/bin/bash", f"{_SCRIPTS_DIRECTORY}/{_ENTRYPOINT}", *(users or container.get("command") or [])]
        container["command"] = command
        info.trainer_command = command

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        """Return the scripts and the certificate."""
        policy, nodes, container = _policy(info), info.trainer, info.trainer_container
        if policy is None or nodes is None or container is None:
            return
        name = job.metadata.name
        scripts = {_ENTRYPOINT: _entrypoint(info, nodes, policy, job), _INIT: _init(info, nodes, container, job)}
        yield config_map(flux_config_map_name(name), scripts, job, listers)
        yield secret(flux_secret_name(name), lambda: self._make_certificate(name), job, listers, secret_type="Opaque")  # noqa: S106 - a type

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Forbid a runtime to have the installer already."""
        if _policy(info) is None:
            return
        if info.trainer is not None and _has_installer(info.trainer):
            yield FieldError("spec.trainer.initContainers", _RESERVED_MESSAGE, value=FLUX_INSTALLER)
        yield from unreachable(info, job)

    def _make_certificate(self, name: str) -> Mapping[str, bytes]:
        return {"curve.cert": curve_certificate(name, self._entropy).encode()}


def _policy(info: Info) -> FluxPolicy | None:
    return info.ml_policy.flux if info.ml_policy else None


def _has_installer(nodes: PodSet) -> bool:
    return any(container.get("name") == FLUX_INSTALLER for container in nodes.pod_spec.get("initContainers") or [])


def _settings(container: JsonObject, job: TrainJob) -> dict[str, str]:
    """Read how Flux is set up: the TrainJob's variables win over the runtime's."""
    variables = [*(container.get("env") or []), *(job.spec.trainer.env if job.spec.trainer else [])]
    given = {variable.get("name"): variable["value"] for variable in variables if variable.get("value")}
    return {name: given.get(name, default) for name, default in _DEFAULTS.items()}


def _install(nodes: PodSet, container: JsonObject, job: TrainJob) -> None:
    scripts = flux_config_map_name(job.metadata.name)
    upsert_volumes(
        nodes.pod_spec,
        [
            {"name": _SOFTWARE, "emptyDir": {}},
            {"name": _FLUX, "emptyDir": {}},
            {"name": scripts, "configMap": {"name": scripts, "defaultMode": 0o755}},
            {"name": _MEMORY, "emptyDir": {"medium": "Memory"}},
            {
                "name": _CERTIFICATE,
                "secret": {"secretName": flux_secret_name(job.metadata.name), "defaultMode": 0o400},
            },
        ],
    )
    flux = {"name": _FLUX, "mountPath": "/mnt/flux"}
    scripts_mount = {"name": scripts, "mountPath": _SCRIPTS_DIRECTORY, "readOnly": True}
    installer: JsonObject = {
        "name": FLUX_INSTALLER,
        "image": _settings(container, job)[FLUX_VIEW_IMAGE],
        "command": ["/bin/bash", f"{_SCRIPTS_DIRECTORY}/{_INIT}"],
    }
    upsert_volume_mounts(installer, [flux, scripts_mount])
    nodes.pod_spec.setdefault("initContainers", []).append(installer)
    upsert_volume_mounts(
        container,
        [
            flux,
            {"name": _SOFTWARE, "mountPath": "/opt/software"},
            scripts_mount,
            {"name": _CERTIFICATE, "mountPath": "/curve", "readOnly": True},
            {"name": _MEMORY, "mountPath": "/dev/shm"},  # noqa: S108 - shared memory is written by all processes
        ],
    )


def _entrypoint(info: Info, nodes: PodSet, policy: FluxPolicy, job: TrainJob) -> str:
    asked = job.spec.trainer.num_proc_per_node if job.spec.trainer else None
    tasks = policy.num_proc_per_node if asked is None else asked
    # What the container really gets counts, whether it comes from the runtime or the TrainJob.
    gpus = info.trainer_gpus
    resources = [f"--cores={_ids(tasks)}"]
    if gpus:
        resources.append(f"--gpus={_ids(gpus)}")
    flags = ["-N", str(nodes.size), "-n", str(nodes.size * tasks)]
    if gpus // tasks:
        # Flux counts the GPUs of a task, not of a node. Fewer than there are tasks cannot be dealt out: they share.
        flags += ["-g", str(gpus // tasks)]
    variables = {
        "lead_host": shlex.quote(f"{_host_prefix(nodes, job, 0)}0"),
        "run_flags": f"( {shlex.join(flags)} )",
        "resources": f"( {shlex.join(resources)} )",
    }
    return _script(variables, _ENTRYPOINT_BODY)


def _init(info: Info, nodes: PodSet, container: JsonObject, job: TrainJob) -> str:
    # The last is the longest, and all stand in the script twice.
    if 2 * nodes.replicas * len(f",{_hosts(nodes, job, nodes.replicas - 1)}") > MAX_CONFIG_BYTES:
        raise Rejected(f"the hosts of {nodes.replicas} slices do not fit into a ConfigMap; use fewer replicas")
    hosts = ",".join(_hosts(nodes, job, each) for each in range(nodes.replicas))
    variables = {
        "hosts": shlex.quote(hosts),
        "broker_configuration": shlex.quote(_broker_configuration(info, hosts, _settings(container, job), job)),
    }
    return _script(variables, _INIT_BODY)


def _broker_configuration(info: Info, hosts: str, settings: Mapping[str, str], job: TrainJob) -> str:
    name, namespace = job.metadata.name, job.metadata.namespace
    connect = f"tcp://%h.{info.subdomain(name)}.{namespace}.svc.cluster.local:%p"
    return f"""
[access]
allow-guest-user = true
allow-root-owner = true

[resource]
path = "/mnt/flux/config/etc/flux/system/R"

[bootstrap]
curve_cert = "/mnt/flux/config/etc/curve/curve.cert"
default_port = {_BROKER_PORT}
default_bind = {_toml(f"tcp://{settings[FLUX_NETWORK_DEVICE]}:%p")}
default_connect = {_toml(connect)}
hosts = [ {{ host = {_toml(hosts)} }} ]

[archive]
dbpath = "/mnt/flux/config/var/lib/flux/job-archive.sqlite"
period = "1m"
busytimeout = "50s"

[sched-fluxion-qmanager]
queue-policy = {_toml(settings[FLUX_QUEUE_POLICY])}
"""


def _script(variables: Mapping[str, str], body: str) -> str:
    lines = [f"{name}={value}" for name, value in variables.items()]
    return "\n".join(["#!/bin/bash", *lines, "", body])


def _host_prefix(nodes: PodSet, job: TrainJob, index: int) -> str:
    """The host names of the nodes of one slice, up to their number in it."""
    return f"{job.metadata.name}-{nodes.name}-{index}-"


def _hosts(nodes: PodSet, job: TrainJob, index: int) -> str:
    """Write the host names of one slice as Flux does."""
    return f"{_host_prefix(nodes, job, index)}[{_ids(nodes.count)}]"


def _ids(count: int) -> str:
    """Write the numbers below `count` as Flux does: 0, or 0-3."""
    return f"0-{count - 1}" if count > 1 else "0"


def _toml(text: str) -> str:
    """Quote a text for TOML, whose basic strings are those of JSON."""
    return json.dumps(text)
