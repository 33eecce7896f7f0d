"""`trainmaster explain`: why a job does not start, does not finish or has failed, and what to do about it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from trainmaster.controller.cli.explain.gathering import gather, gather_deleted
from trainmaster.controller.cli.explain.machine import to_json
from trainmaster.controller.cli.explain.text import lines_of
from trainmaster.controller.cli.jobs.lookup import find_job
from trainmaster.controller.cli.jobs.options import add_cluster_options, add_job, namespace_of, on_cluster
from trainmaster.controller.cli.printers import print_json
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import TRAINJOBS


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="say why a job does not start, does not finish or has failed",
        description="Look at a job, at all that it is made of and at what it waits for. Say in which state it is and "
        "why, with the evidence and what to do, and what happened when. Nothing is written. What you may not read is "
        "left out, and told.",
        allow_abbrev=False,
    )
    add_job(parser)
    add_cluster_options(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=on_cluster(_explain))


async def _explain(client: KubeClient, arguments: argparse.Namespace) -> int:
    view = await _look(client, arguments)
    explanation = explain(view)
    if arguments.output == "json":
        print_json(to_json(explanation))
    else:
        print("\n".join(lines_of(explanation, view)))
    return 0


async def _look(client: KubeClient, arguments: argparse.Namespace) -> JobView:
    """Look at a job; at what is left of it, if it is gone.

    Raises:
        Rejected: There is none of that name, and nothing tells of one.
    """
    now, namespace, name = datetime.now(UTC), namespace_of(client, arguments), arguments.job
    options = ("--kubeconfig", arguments.kubeconfig) if arguments.kubeconfig else ()
    try:
        job = await find_job(client, namespace, name)
    except Rejected:
        left = await _what_is_left(client, namespace, name, now=now)
        if left is None:
            raise
        return left
    return await gather(client, job, now=now, command_options=options)


async def _what_is_left(client: KubeClient, namespace: str, text: str, *, now: datetime) -> JobView | None:
    """Return what events tell of a TrainJob that is gone; None if none does."""
    kind, _, name = text.rpartition("/")
    if not name or kind.lower() not in ("", TRAINJOBS.kind.lower(), TRAINJOBS.plural):
        return None
    job = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
    }
    view = await gather_deleted(client, job, now=now)
    return view if any(event.about.kind == TRAINJOBS.kind for event in view.events or ()) else None
