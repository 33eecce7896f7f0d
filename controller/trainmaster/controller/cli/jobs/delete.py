"""`trainmaster delete`: delete jobs, and with them all that they are made of."""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.options import add_cluster_options, add_jobs, for_each, on_cluster, report
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Conflict, NotFound


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "delete",
        description="Delete jobs, their pods and the logs of these. Those that run are ended.",
        allow_abbrev=False,
    )
    add_jobs(parser)
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(for_each(_delete)))


async def _delete(client: KubeClient, job: Job) -> None:
    try:
        left = await client.delete(job.resource, job.namespace, job.name, uid=job.uid)
    except (NotFound, Conflict):
        report(f"{job.title} is gone already")  # somebody else was faster, and may have made a new one of that name
        return
    finalizers = (left.get("metadata") or {}).get("finalizers") if left.get("kind") == job.kind else None
    waits = f"; it stays until who wrote its finalizers is done: {', '.join(finalizers)}" if finalizers else ""
    report(f"{job.title} deleted{waits}")
