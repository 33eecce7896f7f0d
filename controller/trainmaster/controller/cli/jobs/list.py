"""`trainmaster list`: the jobs of a namespace, or of all."""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from typing import Any

from trainmaster.controller.cli.jobs.lookup import Job, list_jobs
from trainmaster.controller.cli.jobs.options import add_cluster_options, namespace_of, on_cluster
from trainmaster.controller.cli.jobs.rows import JobRow, has_words, rows_of, table
from trainmaster.controller.cli.printers import print_objects, report
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        description="List TrainJobs and jobs of kubeflow.org/v1. CAUSE: what `trainmaster explain` concludes from job "
        "and pods. NODES: ready and wanted ones. DURATION: from creation or last resumption to the end. GOODPUT (`-o "
        "wide`): share of productive time.",
    )
    add_cluster_options(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")
    parser.add_argument(
        "--filter", default="", metavar="WORDS", help="jobs with all these words in name, kind, state or cause"
    )
    parser.add_argument(
        "-o", "--output", choices=("wide", "json", "yaml", "name"), help="more columns, the objects, or their names"
    )
    parser.set_defaults(run=on_cluster(_list))


async def _list(client: KubeClient, arguments: argparse.Namespace) -> int:
    namespace = None if arguments.all_namespaces else namespace_of(client, arguments)
    jobs, now = await list_jobs(client, namespace), datetime.now(UTC)
    there, rows = bool(jobs), list[JobRow]()
    is_table = arguments.output in (None, "wide")
    if jobs and (arguments.filter or is_table):
        listed = zip(jobs, await _rows(client, jobs, namespace, now), strict=True)
        chosen = [(job, row) for job, row in listed if has_words(row, arguments.filter)]
        jobs, rows = [job for job, _ in chosen], [row for _, row in chosen]
    if arguments.output == "name":
        for job in jobs:
            print(job.qualified)
    elif not is_table:
        print_objects([job.object for job in jobs], form=arguments.output)
    elif rows:
        print("\n".join(table(rows, now=now, namespaces=namespace is None, wide=bool(arguments.output))))
    else:
        where = "" if namespace is None else f" in namespace {namespace}"
        such = f" with all of {arguments.filter!r} in name, kind, state or cause" if there else ""
        report(f"no jobs{where}{such}" + ("" if namespace is None else "; -A shows those of all namespaces"))
    return 0


async def _rows(client: KubeClient, jobs: list[Job], namespace: str | None, now: datetime) -> list[JobRow]:
    labels = {JOBSET_LABEL if job.is_trainjob else JOB_NAME_LABEL: None for job in jobs}
    wanted = [(PODS, label) for label in labels] + ([(JOBSETS, "")] if JOBSET_LABEL in labels else [])
    found = await asyncio.gather(*(_readable(client, kind, namespace, label) for kind, label in wanted))
    of_labels, jobsets = found[: len(labels)], found[len(labels) :]
    pods = None if None in of_labels else [pod for each in of_labels for pod in each or ()]
    return rows_of(jobs, pods=pods, jobsets=[jobset for each in jobsets for jobset in each or ()], now=now)


async def _readable(
    client: KubeClient, resource: Resource, namespace: str | None, selector: str
) -> list[JsonObject] | None:
    """List what there is; who may read jobs, but not what they are made of, learns less of them."""
    try:
        found = await client.list(resource, namespace, label_selector=selector or None)
    except ApiError as error:
        report(f"warning: {resource.plural} cannot be read, so that nodes and times are unknown: {error}")
        return None
    items: list[JsonObject] = found["items"]
    return items
