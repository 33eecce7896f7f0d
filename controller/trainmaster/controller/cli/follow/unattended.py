"""A TrainJob of which nothing becomes: that no controller seems to look at it, and how to find out."""

from __future__ import annotations

from typing import Final

from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, NotFound
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.api.constants import MANAGED_BY_TRAINER
from trainmaster.runtime.jsontree import JsonObject

UNATTENDED_AFTER: Final = 5.0
"""Seconds; a controller that is well takes less than one."""


async def explain_unattended(client: KubeClient, job: FollowedJob) -> list[str]:
    """Say that nothing has become of a job, and what to do; nothing if something has, or if that cannot be known."""
    try:
        trainjob = await client.get(TRAINJOBS, job.namespace, job.name)
    except ApiError:
        return []
    if trainjob.get("status") or await _has_jobset(client, job):
        return []
    text = f"TrainJob {job.key}: nothing has become of it in {UNATTENDED_AFTER:g} s"
    manager = _manager_of(trainjob)
    if manager != MANAGED_BY_TRAINER:
        return [f'{text}; spec.managedBy leaves it to "{manager}", which does not seem to run here']
    return [
        f"{text}: no controller seems to look at TrainJobs in this cluster",
        "  is one there?         kubectl -n kubeflow get deployments",
        "  what is wrong?        trainmaster doctor",
        "  an embedded cluster?  has one if it was started without `--without manager`: trainmaster cluster up",
    ]


def _manager_of(trainjob: JsonObject) -> str:
    return str(trainjob["spec"].get("managedBy") or MANAGED_BY_TRAINER)


async def _has_jobset(client: KubeClient, job: FollowedJob) -> bool:
    try:
        await client.get(JOBSETS, job.namespace, job.name)
    except NotFound:
        return False
    except ApiError:
        pass  # who may not look cannot say that there is none
    return True
