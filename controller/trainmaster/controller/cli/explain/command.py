"""`trainmaster explain`: why a job does not start, does not finish or has failed, and what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from trainmaster.controller.cli.explain.gathering import gather, gather_deleted, kind_that_was_there
from trainmaster.controller.cli.explain.text import lines_of, to_json
from trainmaster.controller.cli.jobs.lookup import find_job, means, v1_kinds
from trainmaster.controller.cli.jobs.options import add_cluster_options, add_job, namespace_of, on_cluster
from trainmaster.controller.cli.printers import print_json
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import TRAINJOBS


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        description="Explain the state of a job, with evidence, advice and a timeline. Nothing is written. What you "
        "may not read is listed.",
    )
    add_job(parser)
    add_cluster_options(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=on_cluster(_explain))


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is of a job."""

    view: JobView
    record: JobRecord | None = None
    """What the history has of it, if it is gone."""


async def _explain(client: KubeClient, arguments: argparse.Namespace) -> int:
    found = await _look(client, arguments)
    explanation = explain(found.view)
    if arguments.output == "json":
        print_json(
            {**to_json(explanation, found.view), "history": None if found.record is None else found.record.to_json()}
        )
        return 0
    print("\n".join(lines_of(explanation, found.view)))
    if found.record is not None:
        from trainmaster.controller.cli.history.tables import details  # noqa: PLC0415 - as above

        print("\nhistory:")
        print("\n".join(f"  {line}".rstrip() for line in details(found.record)))
    return 0


async def _look(client: KubeClient, arguments: argparse.Namespace) -> _Found:
    """Look at a job; at what is left of it, if it is gone.

    Raises:
        Rejected: There is none of that name, and nothing tells of one.
    """
    now, namespace, name = datetime.now(UTC), namespace_of(client, arguments), arguments.job
    options = ("--kubeconfig", arguments.kubeconfig) if arguments.kubeconfig else ()
    try:
        job = await find_job(client, namespace, name)
    except Rejected:
        left = await _what_is_left(client, namespace, name, now=now, command_options=options)
        if left is None:
            raise
        return left
    return _Found(await gather(client, job, now=now, command_options=options))


async def _what_is_left(
    client: KubeClient, namespace: str, text: str, *, now: datetime, command_options: Sequence[str]
) -> _Found | None:
    """Return what events and the history tell of a job that is gone; None if neither tells of one."""
    word, slash, name = text.rpartition("/")
    if not name:
        return None
    from trainmaster.controller.cli.history.sources import last_recorded  # noqa: PLC0415 - jobs that are there need none

    record = await last_recorded(client, namespace, name)
    kinds = [each for each in (TRAINJOBS, *await v1_kinds(client)) if not slash or means(word, each)]
    meant = {word.lower(), *(each.kind.lower() for each in kinds)}
    if record is not None and (not slash or record.kind.lower() in meant):
        job = {"apiVersion": record.api_version, "kind": record.kind}
    elif kind := await kind_that_was_there(client, kinds, namespace=namespace, name=name):
        record, job = None, {"apiVersion": kind.api_version, "kind": kind.kind}
    else:
        return None
    gone = {**job, "metadata": {"name": name, "namespace": namespace}}
    view = await gather_deleted(client, gone, now=now, command_options=command_options)
    return _Found(view if record is None else replace(view, result=record.result), record)
