"""The transport `kubectl-exec` of MPIJobs: mpirun starts ranks by a script that calls `kubectl exec`.

The launcher has a ServiceAccount and a Role by which it may do so in the workers of its job and nowhere else. Who
creates that Role must have these rights itself, in all namespaces: `grants`.

Pods of other jobs may have the names of workers. The Role therefore names only pods that exist and belong to the job,
and is not created before the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from trainmaster.plugins.jobs.mpi_hosts import (
    DISCOVER_HOSTS,
    HOSTFILE,
    LAUNCHER,
    app_label,
    config_map,
    config_mount,
    config_path,
    config_volume,
    discover_hosts,
    hostfile,
    launcher_has_gpu,
    no_gpus,
    workers,
)
from trainmaster.runtime.api.constants import OPEN_MPI
from trainmaster.runtime.jobs.interface import Grant, Job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.podspec import env_value, upsert_env, upsert_volume_mounts, upsert_volumes

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

_READ: Final = ("get", "list", "watch")


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
        upsert_env(container, _environment(job, container))
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


def _environment(job: Job, container: JsonObject) -> Iterator[JsonObject]:
    yield env_value("OMPI_MCA_plm_rsh_agent", config_path(_KUBEXEC))
    yield env_value("OMPI_MCA_orte_default_hostfile", config_path(HOSTFILE))
    if not launcher_has_gpu(job):
        yield from no_gpus()
    given = {each.get("name") for each in container.get("env") or []}
    intel = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": config_path(_KUBEXEC)}
    for name, value in intel.items():
        if name not in given:
            yield env_value(name, value)


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
