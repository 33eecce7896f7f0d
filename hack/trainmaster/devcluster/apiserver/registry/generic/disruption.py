"""Pods that the cluster takes away: marked with the condition DisruptionTarget, which says why, and then deleted."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainmaster.devcluster.apiserver.registry.generic.api import Api
from trainmaster.devcluster.apiserver.registry.options import DeleteOptions, WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

DISRUPTION_TARGET = "DisruptionTarget"


@dataclass(frozen=True, slots=True)
class Disruption:
    """Why a pod is taken away: reason and message of the condition."""

    reason: str
    message: str


async def disrupt(
    api: Api, pod: JsonObject, disruption: Disruption, *, write: WriteOptions, delete: DeleteOptions | None = None
) -> None:
    """Mark a pod, and delete it in its own time; of one that is being deleted nothing is said any more.

    Raises:
        StatusError: The API refuses it, for instance because the pod is gone.
    """
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        status = pod.get("status") or {}
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": disruption.reason,
            "message": disruption.message,
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(api.clock()),
        }
        others = [each for each in status.get("conditions") or () if each["type"] != DISRUPTION_TARGET]
        await api.update(
            PODS, {**pod, "status": {**status, "conditions": [*others, condition]}}, subresource="status", options=write
        )
    options = replace(delete or DeleteOptions(), uid=metadata["uid"])
    await api.delete(PODS, metadata["namespace"], metadata["name"], options=options)
