"""`trainmaster attach`: follow a job that runs already, or see how one has ended.

Exit codes: those of following, see `follow.follower`; 1 also if the cluster cannot be used, 2 if there is no such job.
"""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster.controller.cli.follow.follower import follow_jobs, make_reporter
from trainmaster.controller.cli.follow.job_logs import LogChoice
from trainmaster.controller.cli.follow.job_status import followed_job
from trainmaster.controller.cli.follow.pod_logs import LogOptions
from trainmaster.controller.cli.follow.summary import Commands
from trainmaster.controller.cli.jobs.lookup import find_job
from trainmaster.controller.cli.jobs.options import add_cluster_options, count, namespace_of, on_cluster
from trainmaster.controller.cli.printers import INTERRUPTED, report
from trainmaster.controller.kube.rest.client import KubeClient


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "attach",
        description="Follow a job like `trainmaster run`, with the same exit codes. Ctrl-C does not end the job. Says "
        "how a finished job ended.",
    )
    parser.add_argument("job", metavar="JOB", help="its name, as `trainmaster list` has it")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=count, metavar="N", help="the node of this rank; default: 0, or the launcher")
    which.add_argument("--all", action="store_true", help="all ranks, launchers and initializers, with prefixes")
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines of earlier output; default: all")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(_attach))


async def _attach(client: KubeClient, arguments: argparse.Namespace) -> int:
    job = await find_job(client, namespace_of(client, arguments), arguments.job)
    commands = Commands(namespace=client.config.namespace, kubeconfig=arguments.kubeconfig)
    followed = followed_job(job.object, job.resource)
    code = await follow_jobs(
        client,
        [followed],
        make_reporter(plain=arguments.plain, commands=commands),
        choice=LogChoice(arguments.rank, arguments.all, LogOptions(arguments.tail)),
    )
    if code == INTERRUPTED:
        report(f"detached; {commands.left([followed])}")
    return code
