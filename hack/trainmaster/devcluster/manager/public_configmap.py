"""The public ConfigMap of the control plane, which everybody may read: clients learn from it what version they talk to.

The Kubeflow SDK looks for it first of all, and warns where it is missing.
"""

from __future__ import annotations

from typing import Final

import structlog

from trainmaster.devcluster.apiserver.auth.authorizer import AUTHENTICATED
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, ROLE_BINDINGS, ROLES, GroupResource
from trainmaster.runtime.jsontree import JsonObject

TRAINER_VERSION: Final = "v2.3.0"
"""The release of Kubeflow Trainer whose API Trainmaster serves."""

_NAMESPACE = "kubeflow-system"
_NAME = "kubeflow-trainer-public"
_OPTIONS = WriteOptions(field_manager="trainmaster-cluster", force=True)

_log = structlog.get_logger(__name__)


def _objects() -> list[tuple[GroupResource, JsonObject]]:
    metadata = {"name": _NAME, "namespace": _NAMESPACE}
    rbac = f"{ROLES.group}/v1"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [_NAME], "verbs": ["get", "list", "watch"]}
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": _NAME}
    everybody = {"apiGroup": ROLES.group, "kind": "Group", "name": AUTHENTICATED}
    data = {"kubeflow_trainer_version": TRAINER_VERSION}
    return [
        (CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}),
        (ROLES, {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": [rule]}),
        (
            ROLE_BINDINGS,
            {"apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [everybody]},
        ),
    ]


async def publish_configmap(api: Api) -> None:
    """Write the ConfigMap and its roles, or bring them up to date; a namespace that is being deleted goes without."""
    try:
        for resource, obj in _objects():
            await api.patch(resource, _NAMESPACE, _NAME, obj, patch_type=PatchType.APPLY, options=_OPTIONS)
    except StatusError as error:
        if error.reason != "Forbidden":
            raise
        _log.warning("the version of the control plane is not published", reason=error.message)
