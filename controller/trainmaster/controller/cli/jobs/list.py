"""`trainmaster list`: the jobs of a namespace, or of all."""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from typing import Any

from trainmaster.controller.cli.jobs.lookup import Job, list_jobs
from trainmaster.controller.cli.jobs.options import add_cluster_options, namespace_of, on_cluster, report
from trainmaster.controller.cli.jobs.rows import table
from trainmaster.controller.cli.printers import print_objects
from trainmaster.controller.container_failures import JOBSET_LABEL
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.jsontree import JsonObject


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        description="List TrainJobs, and jobs of kubeflow.org/v1 where the cluster serves them. NODES tells how many "
        "are ready, of how many that are wanted; DURATION is the time from the first start of a container to the end.",
        allow_abbrev=False,
    )
    add_cluster_options(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")
    parser.add_argument(
        "-o", "--output", choices=("json", "yaml", "name"), help="the objects, or their names; default: a table"
    )
    parser.set_defaults(run=on_cluster(_list))


async def _list(client: KubeClient, arguments: argparse.Namespace) -> int:
    namespace = None if arguments.all_namespaces else namespace_of(client, arguments)
    jobs = await list_jobs(client, namespace)
    if arguments.output == "name":
        for job in jobs:
            print(job.qualified)
    elif arguments.output:
        print_objects([job.object for job in jobs], form=arguments.output)
    elif jobs:
        await _print_table(client, jobs, namespace)
    else:
        report(
            "no jobs" if namespace is None else f"no jobs in namespace {namespace}; -A shows those of all namespaces"
        )
    return 0


async def _print_table(client: KubeClient, jobs: list[Job], namespace: str | None) -> None:
    pods: list[JsonObject] = []
    jobsets: list[JsonObject] = []
    if any(job.is_trainjob for job in jobs):
        pods, jobsets = await asyncio.gather(
            _readable(client, PODS, namespace, JOBSET_LABEL), _readable(client, JOBSETS, namespace, None)
        )
    lines = table(jobs, pods=pods, jobsets=jobsets, now=datetime.now(UTC), namespaces=namespace is None)
    print("\n".join(lines))


async def _readable(
    client: KubeClient, resource: Resource, namespace: str | None, selector: str | None
) -> list[JsonObject]:
    """List what there is; who may read jobs, but not what they are made of, learns less of them."""
    try:
        found = await client.list(resource, namespace, label_selector=selector)
    except ApiError as error:
        report(f"warning: {resource.plural} cannot be read, so that nodes and times are unknown: {error}")
        return []
    items: list[JsonObject] = found["items"]
    return items
