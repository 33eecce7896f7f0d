"""`trainmaster top`: jobs, nodes and managers of a cluster at a glance, kept current.

Exit codes: 0 left, or printed; 1 the cluster cannot be used; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trainmaster.controller.cli.explain.gathering import gather
from trainmaster.controller.cli.explain.text import lines_of
from trainmaster.controller.cli.follow.reporter import shows_displays
from trainmaster.controller.cli.jobs.lookup import find_job, not_served, v1_kinds
from trainmaster.controller.cli.jobs.options import (
    add_cluster_options,
    namespace_of,
    on_cluster,
)
from trainmaster.controller.cli.printers import print_json
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.cli.top.cluster.attention import Order, TopJob, ordered
from trainmaster.controller.cli.top.cluster.informers import ClusterInformers
from trainmaster.controller.cli.top.cluster.snapshot import to_json
from trainmaster.controller.cli.top.display.plain import plain_lines
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS

if TYPE_CHECKING:
    from trainmaster.controller.cli.top.display.live import LiveView

_INTERVAL: Final = 2.0
_ROWS_AROUND: Final = 12
"""Rows of a terminal that plain tables leave for what is not jobs."""

_ROWS: Final = 40


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "top",
        description="Show jobs, those first that need attention, with their progress and what stands in their way, "
        "what the nodes have and what is asked of them, and how the manager fares; kept current until `q` or Ctrl-C. "
        "Without a terminal, plain tables are printed again and again.",
        allow_abbrev=False,
    )
    add_cluster_options(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")
    parser.add_argument("--once", action="store_true", help="print one table of all jobs, and end")
    parser.add_argument("--plain", action="store_true", help="plain tables, also on a terminal")
    parser.add_argument("-o", "--output", choices=("json",), help="print everything once, for programs")
    parser.set_defaults(run=on_cluster(_top))


async def _top(client: KubeClient, arguments: argparse.Namespace) -> int:
    namespace = None if arguments.all_namespaces else namespace_of(client, arguments)
    kinds = await _kinds(client, namespace)
    changed = asyncio.Event()
    async with ClusterInformers(client, namespace=namespace, kinds=kinds, on_change=changed.set) as informers:
        if arguments.once or arguments.output:
            await _print_once(informers, as_json=bool(arguments.output))
        elif not arguments.plain and shows_displays() and (live := _live_view_class()) is not None:
            explain_job = functools.partial(_explained, client, arguments)
            return await live(informers.snapshot, changed, explain=explain_job, file=sys.stdout).run()
        else:
            await _print_again_and_again(informers)
        return 0


def _live_view_class() -> type[LiveView] | None:
    """Return what shows the live view; None if what draws it is not installed, which is told."""
    try:
        from trainmaster.controller.cli.top.display.live import LiveView  # noqa: PLC0415 - may not be there
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        print("for a screen that is kept current: pip install 'trainmaster[local]'", file=sys.stderr)
        return None
    return LiveView


async def _explained(client: KubeClient, arguments: argparse.Namespace, job: TopJob) -> Sequence[str]:
    """Return what `trainmaster explain` prints of a job."""
    options = ("--kubeconfig", arguments.kubeconfig) if arguments.kubeconfig else ()
    try:
        found = await find_job(client, job.row.namespace, job.argument)
        view = await gather(client, found, now=datetime.now(UTC), command_options=options)
    except (Rejected, KubeError) as error:
        return str(error).splitlines()
    return list(lines_of(explain(view), view))


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


async def _print_once(informers: ClusterInformers, *, as_json: bool) -> None:
    snapshot = await informers.complete_snapshot()
    jobs = ordered(snapshot.jobs, Order.ATTENTION, snapshot.now)
    if as_json:
        print_json(to_json(snapshot, jobs))
    else:
        print("\n".join(plain_lines(snapshot, jobs, at_most=None)))


async def _print_again_and_again(informers: ClusterInformers) -> None:
    while True:
        snapshot = await informers.complete_snapshot()
        jobs = ordered(snapshot.jobs, Order.ATTENTION, snapshot.now)
        lines = shutil.get_terminal_size((0, _ROWS + _ROWS_AROUND)).lines
        text = "\n".join(plain_lines(snapshot, jobs, at_most=max(5, lines - _ROWS_AROUND)))
        print(text, end="\n\n", flush=True)
        await asyncio.sleep(_INTERVAL)
