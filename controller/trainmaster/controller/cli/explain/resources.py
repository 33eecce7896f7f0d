"""The resources of others that tell why a job does not run."""

from __future__ import annotations

from typing import Final

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.constants import COSCHEDULING_API_VERSION, POD_GROUP_KIND, VOLCANO_API_VERSION


def _of(api_version: str, kind: str, plural: str, *, namespaced: bool = True) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, kind, plural, namespaced)


POD_LOGS: Final = _of("v1", "Pod", "pods/log")
"""As rights name them."""

BATCH_JOBS: Final = _of("batch/v1", "Job", "jobs")
RESOURCE_QUOTAS: Final = _of("v1", "ResourceQuota", "resourcequotas")
CLAIMS: Final = _of("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
NODES: Final = _of("v1", "Node", "nodes", namespaced=False)
STORAGE_CLASSES: Final = _of("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
ENDPOINT_SLICES: Final = _of("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
DEPLOYMENTS: Final = _of("apps/v1", "Deployment", "deployments")

POD_GROUPS: Final = (
    _of(VOLCANO_API_VERSION, POD_GROUP_KIND, "podgroups"),
    _of(COSCHEDULING_API_VERSION, POD_GROUP_KIND, "podgroups"),
)
VOLCANO_QUEUES: Final = _of(VOLCANO_API_VERSION, "Queue", "queues", namespaced=False)

_KUEUE: Final = "kueue.x-k8s.io/v1beta1"
WORKLOADS: Final = _of(_KUEUE, "Workload", "workloads")
LOCAL_QUEUES: Final = _of(_KUEUE, "LocalQueue", "localqueues")
CLUSTER_QUEUES: Final = _of(_KUEUE, "ClusterQueue", "clusterqueues", namespaced=False)
