"""`trainmaster top`: jobs, nodes and managers of a cluster at a glance, kept current on a terminal.

Exit codes: 0 printed; 1 the cluster cannot be used; 130 interrupted.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from trainmaster.controller.cli.follow.reporter import shows_displays
from trainmaster.controller.cli.jobs.options import (
    add_cluster_options,
    namespace_of,
    on_cluster,
)
from trainmaster.controller.cli.jobs.rows import JobRow, has_words
from trainmaster.controller.cli.printers import print_json
from trainmaster.controller.cli.top.attention import Order, ordered
from trainmaster.controller.cli.top.reader import read_snapshot
from trainmaster.controller.cli.top.snapshot import Snapshot, plain_lines, to_json
from trainmaster.controller.kube.rest.client import KubeClient


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

    def chosen(snapshot: Snapshot) -> list[JobRow]:
        matching = [row for row in snapshot.jobs if has_words(row, arguments.filter)]
        return ordered(matching, Order(arguments.sort), snapshot.now)

    snapshot = await read_snapshot(client, namespace)
    if arguments.output:
        print_json(to_json(snapshot, chosen(snapshot)))
    elif arguments.once or not shows_displays():
        print("\n".join(plain_lines(snapshot, chosen(snapshot))))
    else:
        from trainmaster.controller.cli.top.live import show  # noqa: PLC0415 - may not be there

        await show(snapshot, partial(read_snapshot, client, namespace), chosen)
    return 0
