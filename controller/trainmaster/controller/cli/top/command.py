"""`trainmaster top`: jobs, nodes and managers of a cluster at a glance, kept current on a terminal.

Exit codes: 0 printed; 1 the cluster cannot be used; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from trainmaster.controller.cli.follow.reporter import shows_displays
from trainmaster.controller.cli.jobs.lookup import not_served, v1_kinds
from trainmaster.controller.cli.jobs.options import (
    add_cluster_options,
    namespace_of,
    on_cluster,
)
from trainmaster.controller.cli.jobs.rows import JobRow, has_words
from trainmaster.controller.cli.printers import print_json
from trainmaster.controller.cli.top.informers import ClusterInformers
from trainmaster.controller.cli.top.job_table import Order, ordered
from trainmaster.controller.cli.top.snapshot import Snapshot, plain_lines, to_json
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.controller.kube.rest.errors import Forbidden, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "top",
        description="Show jobs (those that need attention first) with progress and obstacles, requests and capacity "
        "of nodes, and the manager, until Ctrl-C. Without a terminal, print tables once.",
    )
    add_cluster_options(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")
    parser.add_argument(
        "--sort",
        choices=[str(each) for each in Order],
        default=str(Order.ATTENTION),
        help="order of the jobs; default: attention",
    )
    parser.add_argument(
        "--filter", default="", metavar="WORDS", help="jobs with all these words in name, kind, state or cause"
    )
    parser.add_argument("--once", action="store_true", help="print tables once, also on a terminal")
    parser.add_argument("-o", "--output", choices=("json",), help="print everything once, for programs")
    parser.set_defaults(run=on_cluster(_top))


async def _top(client: KubeClient, arguments: argparse.Namespace) -> int:
    namespace = None if arguments.all_namespaces else namespace_of(client, arguments)
    kinds = await _kinds(client, namespace)
    changed = asyncio.Event()

    def chosen(snapshot: Snapshot) -> list[JobRow]:
        matching = [row for row in snapshot.jobs if has_words(row, arguments.filter)]
        return ordered(matching, Order(arguments.sort), snapshot.now)

    async with ClusterInformers(client, namespace=namespace, kinds=kinds, on_change=changed.set) as informers:

        def look() -> tuple[Snapshot, list[JobRow]]:
            snapshot = informers.snapshot()
            return snapshot, chosen(snapshot)

        if arguments.output is None and not arguments.once and shows_displays():
            from trainmaster.controller.cli.top import live  # noqa: PLC0415 - may not be there

            await live.show(look, changed)
        snapshot = await informers.complete_snapshot()
        if arguments.output:
            print_json(to_json(snapshot, chosen(snapshot)))
        else:
            print("\n".join(plain_lines(snapshot, chosen(snapshot))))
        return 0


async def _kinds(client: KubeClient, namespace: str | None) -> list[Resource]:
    """Return the kinds of jobs that are served: the first question to the cluster.

    Raises:
        ConfigurationError: There is none.
        Forbidden: None of them may be read.
    """
    try:
        others = await v1_kinds(client)
    except Forbidden:
        others = []
    kinds = [TRAINJOBS, *others]
    failures = await asyncio.gather(*(_failure(client, kind, namespace) for kind in kinds))
    served = [kind for kind, failure in zip(kinds, failures, strict=True) if not isinstance(failure, NotFound)]
    if not served:
        raise ConfigurationError(not_served(client))
    refusals = [failure for failure in failures if isinstance(failure, Forbidden)]
    if len(refusals) == len(served):
        raise refusals[0]
    return served


async def _failure(client: KubeClient, kind: Resource, namespace: str | None) -> NotFound | Forbidden | None:
    """Return why jobs of a kind cannot be read; None if they can."""
    try:
        await client.list(kind, namespace, limit=1, metadata_only=True)
    except (NotFound, Forbidden) as error:
        return error
    return None
