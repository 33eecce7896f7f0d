"""`trainmaster suspend`: end the pods of jobs without ending the jobs; and what `resume` has in common with it."""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster.controller.cli.jobs.lookup import Job, suspension
from trainmaster.controller.cli.jobs.options import (
    add_cluster_options,
    add_jobs,
    for_each,
    on_cluster,
    report,
)
from trainmaster.controller.cli.responses import FIELD_MANAGER, Rejected, error_lines
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Conflict, Invalid, NotFound


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "suspend",
        description="End the pods of jobs, which `trainmaster resume` starts anew. What they had computed is lost, "
        "unless the training writes checkpoints and continues from them.",
        allow_abbrev=False,
    )
    add_jobs(parser)
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(for_each(_suspend)))


async def _suspend(client: KubeClient, job: Job) -> None:
    await set_suspend(client, job, suspend=True)


async def set_suspend(client: KubeClient, job: Job, *, suspend: bool) -> None:
    """Suspend or resume a job.

    Raises:
        Rejected: It has ended, or the server refuses.
    """
    if job.outcome is not None:
        word = "suspended" if suspend else "resumed"
        again = f"`trainmaster restart {job.argument}` runs it again"
        raise Rejected([f"{job.title} has ended ({job.outcome}) and cannot be {word}; {again}"])
    if job.is_suspended == suspend:
        report(f"{job.title} is suspended already" if suspend else f"{job.title} is not suspended")
        return
    try:
        await client.patch(
            job.resource, job.namespace, job.name, suspension(job, suspend=suspend), field_manager=FIELD_MANAGER
        )
    except NotFound as error:
        raise Rejected([f"{job.title} was deleted meanwhile"]) from error
    except (Conflict, Invalid) as error:
        raise Rejected([f"{job.title}: {line}" for line in error_lines(error)]) from error
    report(f"{job.title} suspended: its pods end" if suspend else f"{job.title} resumed: its pods start anew")
