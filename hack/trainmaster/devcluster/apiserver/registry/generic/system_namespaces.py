"""System namespaces: those that every cluster has, and those in which Kubeflow expects to live."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic.api import Api
from trainmaster.devcluster.apiserver.resources import NAMESPACES

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "kubeflow-system", "kubeflow")


async def create_system_namespaces(api: Api) -> None:
    """Create the namespaces that are missing; a restarted cluster keeps what it has."""
    for name in SYSTEM_NAMESPACES:
        try:
            await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
