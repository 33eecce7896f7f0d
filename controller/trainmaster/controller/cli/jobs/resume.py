"""`trainmaster resume`: start the pods of suspended jobs."""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.options import add_cluster_options, add_jobs, for_each, on_cluster
from trainmaster.controller.cli.jobs.suspend import set_suspend
from trainmaster.controller.kube.rest.client import KubeClient


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "resume",
        description="Start the pods of suspended jobs anew.",
        allow_abbrev=False,
    )
    add_jobs(parser)
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(for_each(_resume)))


async def _resume(client: KubeClient, job: Job) -> None:
    await set_suspend(client, job, suspend=False)
