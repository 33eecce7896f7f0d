"""`trainmaster delete`, `suspend` and `resume`: what is done to each of some jobs."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

from trainmaster.controller.cli.jobs.lookup import Job, list_jobs, suspension
from trainmaster.controller.cli.jobs.options import add_cluster_options, add_jobs, for_each, namespace_of, on_cluster
from trainmaster.controller.cli.printers import report
from trainmaster.controller.cli.responses import FIELD_MANAGER, Rejected, error_lines
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Conflict, Invalid, NotFound


def delete(commands: Any) -> None:
    """Add `delete`."""
    about = "Delete jobs, their pods and the logs of these. Those that run are ended."
    parser = _parser(commands, "delete", about, jobs="*")
    parser.add_argument("--all", action="store_true", help="all jobs of the namespace")
    parser.set_defaults(run=on_cluster(_delete_some))


async def _delete_some(client: KubeClient, arguments: argparse.Namespace) -> int:
    if bool(arguments.jobs) == arguments.all:
        raise Rejected(["delete which jobs? name some, or write --all for those of the namespace; not both"])
    if not arguments.all:
        return await for_each(_delete)(client, arguments)
    namespace = namespace_of(client, arguments)
    jobs = await list_jobs(client, namespace)
    if not jobs:
        report(f"no jobs in namespace {namespace}")
    for job in jobs:
        await _delete(client, job)
    return 0


def suspend(commands: Any) -> None:
    """Add `suspend`."""
    about = (
        "End the pods of jobs, which `trainmaster resume` starts anew. What they had computed is lost, unless the "
        "training writes checkpoints and continues from them."
    )
    _add(commands, "suspend", about, lambda client, job: _set_suspend(client, job, suspend=True))


def resume(commands: Any) -> None:
    """Add `resume`."""
    about = "Start the pods of suspended jobs anew."
    _add(commands, "resume", about, lambda client, job: _set_suspend(client, job, suspend=False))


def _add(commands: Any, name: str, about: str, act: Callable[[KubeClient, Job], Awaitable[None]]) -> None:
    _parser(commands, name, about, jobs="+").set_defaults(run=on_cluster(for_each(act)))


def _parser(commands: Any, name: str, about: str, *, jobs: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, description=about)
    add_jobs(parser, number=jobs)
    add_cluster_options(parser)
    return parser


async def _delete(client: KubeClient, job: Job) -> None:
    try:
        left = await client.delete(job.resource, job.namespace, job.name, uid=job.uid)
    except (NotFound, Conflict):
        report(f"{job.title} is gone already")  # somebody else was faster, and may have made a new one of that name
        return
    finalizers = (left.get("metadata") or {}).get("finalizers") if left.get("kind") == job.kind else None
    waits = f"; it stays until who wrote its finalizers is done: {', '.join(finalizers)}" if finalizers else ""
    report(f"{job.title} deleted{waits}")


async def _set_suspend(client: KubeClient, job: Job, *, suspend: bool) -> None:
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
