"""Where `explain`, `doctor`, `support-bundle` and `top` look: the resources of others, how installations are known, and
lists that may be long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import from_response
from trainmaster.controller.kube.rest.resources import FORWARDED_AUTHORIZATION, PODS, Resource
from trainmaster.runtime.api.constants import (
    COSCHEDULING_API_VERSION,
    POD_GROUP_KIND,
    SCHEDULING_API_VERSION,
    VOLCANO_API_VERSION,
)
from trainmaster.runtime.jsontree import JsonObject

MANAGER_LABELS: Final = (
    "app.kubernetes.io/part-of=kubeflow,app.kubernetes.io/component=manager,"
    "app.kubernetes.io/name in (trainer, kubeflow-trainer)"
)
"""The labels of Trainer's managers and of their pods, by our manifests, the original's and its chart."""

TRAINING_OPERATOR_LABELS: Final = "control-plane=kubeflow-training-operator"
"""Those of the Training Operator V1, by its manifests; of ours as well, which serves its kinds."""

JOBSET_DEPLOYMENTS: Final = ("jobset-controller-manager", "jobset-controller")
"""The names of JobSet's controller, by its manifests and its chart."""

_PAGE: Final = 500
_LOCAL_TIMEOUT: Final = 10.0

_KUEUE: Final = "kueue.x-k8s.io/v1beta1"


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
SCHEDULING_POD_GROUPS: Final = _of(SCHEDULING_API_VERSION, POD_GROUP_KIND, "podgroups")
"""Those of Kubernetes itself."""

VOLCANO_QUEUES: Final = _of(VOLCANO_API_VERSION, "Queue", "queues", namespaced=False)

WORKLOADS: Final = _of(_KUEUE, "Workload", "workloads")
LOCAL_QUEUES: Final = _of(_KUEUE, "LocalQueue", "localqueues")
CLUSTER_QUEUES: Final = _of(_KUEUE, "ClusterQueue", "clusterqueues", namespaced=False)

DEFINITIONS: Final = _of(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
SERVICE_ACCOUNTS: Final = _of("v1", "ServiceAccount", "serviceaccounts")


@dataclass(frozen=True, slots=True)
class Listed:
    """The first objects of a collection."""

    items: list[JsonObject]
    """With their kinds, which lists leave out."""

    is_all: bool
    left: int | None = None
    """How many more there are, if the server says."""


async def list_first(
    client: KubeClient,
    resource: Resource,
    namespace: str | None,
    *,
    most: int,
    labels: str | None = None,
    fields: str | None = None,
) -> Listed:
    """List the first objects of a namespace, or of all, in pages; a page more than `most` needs is not read.

    Raises:
        KubeError: They cannot be read, or not all of these.
    """
    found: list[JsonObject] = []
    token: str | None = None
    while True:
        page = await client.list(
            resource,
            namespace if resource.namespaced else None,
            label_selector=labels,
            field_selector=fields,
            limit=min(_PAGE, most - len(found)),
            continue_token=token,
        )
        found += [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in page["items"]]
        metadata = page.get("metadata") or {}
        token = metadata.get("continue")
        if not token or len(found) >= most:
            return Listed(found[:most], not token and len(found) <= most, metadata.get("remainingItemCount"))


async def read_page(client: KubeClient, pod: JsonObject, path: str, *, scheme: str, port: int, token: str = "") -> str:
    """Return what a manager serves, through the API server's proxy to its pod.

    The API server passes `token` on to the manager.

    Raises:
        KubeError: It cannot be read.
    """
    metadata = pod["metadata"]
    request = f"{PODS.path(metadata['namespace'])}/{scheme}:{metadata['name']}:{port}/proxy/{path}"
    shown = {FORWARDED_AUTHORIZATION: f"Bearer {token}"} if token else None
    status, headers, body = await client.raw("GET", request, accept="*/*", headers=shown)
    if status >= 300:
        raise from_response(status, headers, body, request=f"GET {request}", source=client.config.source)
    return body.decode(errors="replace")


async def read_local(url: str) -> str:
    """Return what is served on this machine; nothing is sent that others must not see.

    Raises:
        OSError: It cannot be read.
    """
    import aiohttp  # noqa: PLC0415 - only managers of embedded clusters serve on this machine

    timeout = aiohttp.ClientTimeout(total=_LOCAL_TIMEOUT)
    try:
        # A certificate of ours is not for this name.
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as response:
            if response.status != 200:
                raise OSError(f"{url} answers {response.status}")
            return (await response.read()).decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(f"{url}: {str(error) or type(error).__name__}") from error


def each_once(lists: Iterable[Iterable[JsonObject]]) -> list[JsonObject]:
    """Put lists together, each object once."""
    return list({item["metadata"]["uid"]: item for each in lists for item in each}.values())
