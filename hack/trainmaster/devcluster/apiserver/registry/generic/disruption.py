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
    api: Api,
    pod: JsonObject,
    disruption: Disruption | None,
    *,
    write: WriteOptions,
    delete: DeleteOptions | None = None,
    fails: bool = False,
) -> None:
    """Mark a pod, and delete it in its own time; of one that is being deleted nothing is said any more.

    Args:
        api: The API.
        pod: The pod.
        disruption: Why it is taken away; None: it was before.
        write: How it is marked.
        delete: How it is deleted.
        fails: Whether it has ended with that, since nobody will say so; then it is marked in any case.

    Raises:
        StatusError: The API refuses it, for instance because the pod is gone.
    """
    metadata = pod["metadata"]
    if fails or "deletionTimestamp" not in metadata:
        status = {**(pod.get("status") or {})}
        if disruption is not None:
            condition = {
                "type": DISRUPTION_TARGET,
                "status": "True",
                "reason": disruption.reason,
                "message": disruption.message,
                "lastProbeTime": None,
                "lastTransitionTime": timestamp(api.clock()),
            }
            others = [each for each in status.get("conditions") or () if each["type"] != DISRUPTION_TARGET]
            status["conditions"] = [*others, condition]
        if fails and status.get("phase") not in {"Succeeded", "Failed"}:
            status["phase"] = "Failed"
        await api.update(PODS, {**pod, "status": status}, subresource="status", options=write)
    options = replace(delete or DeleteOptions(), uid=metadata["uid"])
    await api.delete(PODS, metadata["namespace"], metadata["name"], options=options)
