"""The ConfigMap of a program belongs to its TrainJob: it is there before it, and goes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.cli.manifests import Manifest
from trainmaster.controller.cli.responses import FIELD_MANAGER
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.runtime.api.constants import API_VERSION, TRAINJOB_KIND

_LABELS: Final = {"app.kubernetes.io/managed-by": "trainmaster-run"}
_INSTANCE: Final = "app.kubernetes.io/instance"


def labels(job: str) -> dict[str, str]:
    """Return the labels of the ConfigMaps of a job."""
    return {**_LABELS, _INSTANCE: job}


def selector(job: str) -> str:
    """Return the selector of the ConfigMaps of a job."""
    return ",".join(f"{key}={value}" for key, value in labels(job).items())


def config_maps(manifests: list[Manifest]) -> list[str]:
    """Return the names of the ConfigMaps among the objects of a program."""
    return [manifest.object["metadata"]["name"] for manifest in manifests if manifest.kind == CONFIGMAPS.kind]


async def give(client: KubeClient, names: list[str], job: FollowedJob, *, report: Callable[[str], None]) -> None:
    """Make a TrainJob the owner of ConfigMaps; where that fails, their end is left to the user."""
    owner = {"apiVersion": API_VERSION, "kind": TRAINJOB_KIND, "name": job.name, "uid": job.uid}
    patch = {"metadata": {"ownerReferences": [owner]}}
    for name in names:
        try:
            await client.patch(CONFIGMAPS, job.namespace, name, patch, field_manager=FIELD_MANAGER)
        except NotFound:
            continue
        except KubeError:
            report(f"warning: ConfigMap {job.namespace}/{name} stays when the TrainJob is deleted; delete it by hand")


async def discard_predecessors(client: KubeClient, names: list[str], job: FollowedJob) -> None:
    """Delete ConfigMaps that belonged to a program of the same name which was replaced, and to nobody now."""
    if not names:
        return
    try:
        found = await client.list(CONFIGMAPS, job.namespace, label_selector=selector(job.name))
    except KubeError:
        return
    left = [item["metadata"] for item in found["items"] if not item["metadata"].get("ownerReferences")]
    await discard(client, [each["name"] for each in left if each["name"] not in names], job.namespace)


async def discard(client: KubeClient, names: list[str], namespace: str) -> None:
    """Delete ConfigMaps whose TrainJob was not created, as far as that is possible."""
    for name in names:
        try:
            await client.delete(CONFIGMAPS, namespace, name)
        except NotFound:
            continue
        except KubeError:
            return
