"""The transports of MPIJobs: how the launcher learns its hosts, and how mpirun starts ranks on them.

`ssh`: workers run sshd, and mpirun starts ranks by ssh, with a key pair made for the job. Nobody needs a right for it:
the launcher has no ServiceAccount of its own, and the manager no pods/exec. Images have to bring sshd, which the
workers run where they are given no command, and an ssh that takes the keys of hosts which it does not know. Each pod
has a Service, by whose name the others reach it.

`kubectl-exec`: mpirun starts ranks by a script that calls `kubectl exec`. The launcher has a ServiceAccount and a Role
by which it may do so in the workers of its job and nowhere else. Who creates that Role must have these rights itself,
in all namespaces: `grants`. Pods of other jobs may have the names of workers. The Role therefore names only pods that
exist and belong to the job, and is not created before the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from trainmaster.plugins.util.mpi_ssh import SECRET_TYPE, environment, host_line, key_mount, key_volume, make_keys
from trainmaster.plugins.util.owned_objects import MAX_CONFIG_BYTES, WATCHES, Entropy, secret_object
from trainmaster.runtime.api.constants import (
    INTEL_MPI,
    MPI_HOSTFILE_DIRECTORY,
    MPI_HOSTFILE_KEY,
    MPI_IMPLEMENTATIONS,
    OPEN_MPI,
)
from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jobs.interface import Grant, Job
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.podspec import env_value, upsert_env, upsert_volume_mounts, upsert_volumes

LAUNCHER: Final = "Launcher"
WORKER: Final = "Worker"

HOSTFILE: Final = MPI_HOSTFILE_KEY
DISCOVER_HOSTS: Final = "discover_hosts.sh"

_VOLUME: Final = "mpi-job-config"

SSH_AUTH_MOUNT_PATH: Final = "/root/.ssh"

_HYDRA_HOSTFILE: Final = "hydra_hostfile"
"""The hosts as Intel MPI and MPICH read them."""

_SSHD: Final = ("/usr/sbin/sshd", "-De")

_HAS_NAMES: Final = f"""\
command -v getent > /dev/null || exit 0
while read -r host slots; do
    until getent hosts "$host"; do echo "waiting for $host"; sleep 1; done
done < {MPI_HOSTFILE_DIRECTORY}/{HOSTFILE}"""
"""A name exists when its pod has an address. ssh waits for hosts that do not listen yet, and for no name."""

KUBECTL_DELIVERY_IMAGE: Final = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"

_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_RBAC: Final = f"{_RBAC_GROUP}/v1"

_KUBEXEC: Final = "kubexec.sh"
_KUBECTL_VOLUME: Final = "mpi-job-kubectl"
_KUBECTL_PATH: Final = "/opt/kube"
_KUBECTL_MOUNT: Final = {"name": _KUBECTL_VOLUME, "mountPath": _KUBECTL_PATH}
_DELIVERY_RESOURCES: Final = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}

_SCRIPT_MODE: Final = 0o555
_FILE_MODE: Final = 0o444

_ALIKE: Final = ("image", "imagePullPolicy", "resources", "securityContext")

_READ: Final = ("get", "list", "watch")


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
        upsert_env(container, (each for each in _ssh_environment(job) if each["name"] not in given))
        upsert_volume_mounts(container, [key_mount(self._mount_path), config_mount()])
        spec["initContainers"] = [*(spec.get("initContainers") or []), _wait_for_hosts(container)]

    def set_worker(self, job: Job, spec: JsonObject) -> None:
        """Give a worker keys, and let it run sshd if it is to run nothing else."""
        upsert_volumes(spec, [self._key_volume(job)])
        container = _main_container(job, spec)
        if not container.get("command") and not container.get("args"):
            container["command"] = list(_SSHD)
        upsert_volume_mounts(container, [key_mount(self._mount_path)])

    def _key_volume(self, job: Job) -> JsonObject:
        return key_volume(_secret_name(job), self._mount_path)


def _ssh_environment(job: Job) -> Iterator[JsonObject]:
    for implementation in MPI_IMPLEMENTATIONS:
        path = config_path(HOSTFILE if implementation == OPEN_MPI else _HYDRA_HOSTFILE)
        yield from environment(implementation, path, slots(job))
    if not launcher_has_gpu(job):
        yield from no_gpus()


def _wait_for_hosts(launcher: JsonObject) -> JsonObject:
    """Return an init container of the launcher's own image, which a namespace that takes the launcher takes as well."""
    alike: JsonObject = {key: copy_tree(launcher[key]) for key in _ALIKE if key in launcher}
    return {"name": "wait-for-workers", **alike, "command": ["sh", "-c", _HAS_NAMES], "volumeMounts": [config_mount()]}


def _main_container(job: Job, spec: JsonObject) -> JsonObject:
    """Return the container of a worker that ranks run in."""
    containers: list[JsonObject] = spec["containers"]
    return next((each for each in containers if each.get("name") == job.spec.get("mainContainer")), containers[0])


def _secret_name(job: Job) -> str:
    return f"{job.name}-ssh"


class KubectlExec:
    """Reaches workers by the API server.

    Args:
        delivery_image: The image that copies a kubectl to where `TARGET_DIR` says.
    """

    has_services = False
    files = 2
    """How many files list the hosts."""

    def __init__(self, delivery_image: str = KUBECTL_DELIVERY_IMAGE) -> None:
        self._delivery_image = delivery_image

    def watches(self) -> Iterable[Watch]:
        """Return the kinds of what `build` returns."""
        return [
            Watch("v1", "ServiceAccount", "serviceaccounts", writes=True, creates_only=True, metadata_only=True),
            Watch("v1", "ConfigMap", "configmaps", writes=True),
            Watch(_RBAC, "Role", "roles", writes=True),
            Watch(_RBAC, "RoleBinding", "rolebindings", writes=True),
        ]

    def grants(self) -> Iterable[Grant]:
        """Return the rights of the launcher."""
        return [Grant("v1", "Pod", "pods", _READ), Grant("v1", "Pod", "pods", ("create",), subresource="exec")]

    def build(self, job: Job, pods: Sequence[JsonObject], listers: Listers) -> Iterator[JsonObject]:
        """Return the rights of the launcher, its account and its files."""
        if pods or listers.get(_RBAC, "Role", job.namespace, _launcher(job)) is not None:
            # First: whatever becomes of the rest, rights to pods that are gone have to be withdrawn.
            yield _role(job, pods)
            yield _role_binding(job)
        yield _service_account(job, listers)
        files = {
            HOSTFILE: hostfile(job, OPEN_MPI),
            _KUBEXEC: _kubexec(job.spec.get("mainContainer")),
            DISCOVER_HOSTS: discover_hosts(job, pods),
        }
        yield config_map(job, files)

    def set_launcher(self, job: Job, spec: JsonObject) -> None:
        """Give the launcher kubectl, its files, and the variables by which Open MPI and Intel MPI use them."""
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = _launcher(job)
        spec["initContainers"] = [*(spec.get("initContainers") or []), self._delivery(job)]
        modes = {_KUBEXEC: _SCRIPT_MODE, HOSTFILE: _FILE_MODE, DISCOVER_HOSTS: _SCRIPT_MODE}
        upsert_volumes(spec, [{"name": _KUBECTL_VOLUME, "emptyDir": {}}, config_volume(job, modes)])
        container = spec["containers"][0]
        upsert_env(container, _kubectl_environment(job, container))
        upsert_volume_mounts(container, [_KUBECTL_MOUNT, config_mount()])

    def set_worker(self, job: Job, spec: JsonObject) -> None:
        """Let a worker wait; Open MPI looks for the script on every host."""
        container = spec["containers"][0]
        if not container.get("command"):
            container["command"], container["args"] = ["sleep"], ["365d"]
        upsert_volumes(spec, [config_volume(job, {_KUBEXEC: _SCRIPT_MODE})])
        upsert_volume_mounts(container, [config_mount()])

    def _delivery(self, job: Job) -> JsonObject:
        return {
            "name": "kubectl-delivery",
            "image": self._delivery_image,
            "imagePullPolicy": "IfNotPresent",
            "env": [env_value("TARGET_DIR", _KUBECTL_PATH), env_value("NAMESPACE", job.namespace)],
            "volumeMounts": [_KUBECTL_MOUNT, config_mount()],
            "resources": {"limits": dict(_DELIVERY_RESOURCES), "requests": dict(_DELIVERY_RESOURCES)},
        }


def _kubectl_environment(job: Job, container: JsonObject) -> Iterator[JsonObject]:
    yield env_value("OMPI_MCA_plm_rsh_agent", config_path(_KUBEXEC))
    yield env_value("OMPI_MCA_orte_default_hostfile", config_path(HOSTFILE))
    if not launcher_has_gpu(job):
        yield from no_gpus()
    given = {each.get("name") for each in container.get("env") or []}
    intel = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": config_path(_KUBEXEC)}
    for name, value in intel.items():
        if name not in given:
            yield env_value(name, value)
    # Open MPI 5 takes no notice of those of Open MPI 4.
    yield env_value("PRTE_MCA_plm_ssh_agent", config_path(_KUBEXEC))
    yield env_value("PRTE_MCA_prte_default_hostfile", config_path(HOSTFILE))


def _kubexec(container: str | None) -> str:
    choice = f" --container {container}" if container else ""
    kubectl_exec = f'{_KUBECTL_PATH}/kubectl exec ${{POD_NAME}}{choice} -- /bin/sh -c "$*"'
    return f"#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n{kubectl_exec}"


def _launcher(job: Job) -> str:
    return job.kind.pod_name(job, LAUNCHER, 0)


def _chosen_account(job: Job) -> str:
    """Return the ServiceAccount that the author of a job names; empty if there is none."""
    return str((job.replica_specs[LAUNCHER].template.get("spec") or {}).get("serviceAccountName") or "")


def _service_account(job: Job, listers: Listers) -> JsonObject:
    chosen = _chosen_account(job)
    name = chosen or _launcher(job)
    metadata: JsonObject = {"name": name, "labels": app_label(job)}
    if chosen or _is_nobodys(listers.get("v1", "ServiceAccount", job.namespace, name)):
        # Other pods may use it too, and then it must not go with this job (V1-B19). As the original does, one that
        # somebody made beforehand is taken as it is, with its secrets for pulling images for instance.
        metadata["ownerReferences"] = []
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _is_nobodys(account: JsonObject | None) -> bool:
    return account is not None and not any(
        each.get("controller") for each in account["metadata"].get("ownerReferences") or []
    )


def _role(job: Job, pods: Sequence[JsonObject]) -> JsonObject:
    rules: list[JsonObject] = [{"apiGroups": [""], "resources": ["pods"], "verbs": list(_READ)}]
    existing = {pod["metadata"]["name"] for pod in pods}
    names = [name for name in workers(job) if name in existing]
    if names:
        # Without names the rule would be about all pods of the namespace.
        rules.append({"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": names, "verbs": ["create"]})
    metadata = {"name": _launcher(job), "labels": app_label(job)}
    return {"apiVersion": _RBAC, "kind": "Role", "metadata": metadata, "rules": rules}


def _role_binding(job: Job) -> JsonObject:
    account = _chosen_account(job) or _launcher(job)
    return {
        "apiVersion": _RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": _launcher(job), "labels": app_label(job)},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": job.namespace}],
        "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": _launcher(job)},
    }
