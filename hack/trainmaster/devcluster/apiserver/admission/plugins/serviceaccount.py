"""Accounts of pods: that the service account of a new pod exists, and how the pod gets its token.

Like the admission plugin of the API server:
- a pod whose account does not exist is refused;
- unless pod or account say otherwise, all containers find token, authority and namespace where clients look for them;
- a pod without image pull secrets takes those of its account.
"""

from __future__ import annotations

import asyncio
import random

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.registry.objectmeta import generated_name
from trainmaster.devcluster.apiserver.resources import PODS, SERVICE_ACCOUNTS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject, copy_tree

TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where client libraries look for it
TOKEN_SECONDS = 3607
"""The odd number by which Kubernetes marks tokens that nobody asked for."""

_VOLUME_PREFIX = "kube-api-access-"

# A namespace gets its account a moment after it was created; pods may follow at once.
_ATTEMPTS, _PAUSE = 20, 0.05


def admission_of(api: Api, *, root_ca: str) -> AdmissionHook:
    """Return the hook for pods; `root_ca` names the ConfigMap by which pods verify the API server."""
    chooser = random.Random()  # noqa: S311 - suffixes of names need no secrecy

    async def admit(operation: Operation, pod: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation != "CREATE":
            return pod
        spec = pod["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = "default"
        account = await _account(api, pod["metadata"], spec["serviceAccountName"])
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = copy_tree(account["imagePullSecrets"])
        wanted = spec.get("automountServiceAccountToken")
        if wanted is None:
            wanted = account.get("automountServiceAccountToken")
        if wanted is not False:
            _mount_token(spec, generated_name(_VOLUME_PREFIX, chooser), root_ca)
        return pod

    return admit


async def _account(api: Api, metadata: JsonObject, name: str) -> JsonObject:
    namespace = metadata["namespace"]
    for _ in range(_ATTEMPTS):
        if (record := api.store.get(ObjectKey(SERVICE_ACCOUNTS, namespace, name))) is not None:
            return record.object
        await asyncio.sleep(_PAUSE)
    raise errors.forbidden(
        f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
        resource=PODS,
        name=metadata.get("name", ""),
    )


def _mount_token(spec: JsonObject, volume: str, root_ca: str) -> None:
    """Add the volume, and a mount of it to each container that has nothing in its place."""
    mount = {"name": volume, "readOnly": True, "mountPath": TOKEN_DIRECTORY}
    mounted = False
    for container in (*(spec.get("initContainers") or ()), *spec.get("containers", ())):
        mounts = container.get("volumeMounts") or []
        if all(each.get("mountPath") != TOKEN_DIRECTORY for each in mounts):
            container["volumeMounts"] = [*mounts, dict(mount)]
            mounted = True
    if mounted:
        spec["volumes"] = [*(spec.get("volumes") or ()), _volume(volume, root_ca)]


def _volume(name: str, root_ca: str) -> JsonObject:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": root_ca, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"defaultMode": 0o644, "sources": sources}}
