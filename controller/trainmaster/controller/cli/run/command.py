"""`trainmaster run`: submit the TrainJobs of some files and follow them to their end.

Exit codes: 0 all jobs are complete; 1 a job failed, lacks its runtime, or the cluster cannot be used; 2 the files are
wrong, which includes TrainJobs that the cluster refuses; 3 time is up; 130 interrupted; 129 or 143 ended by SIGHUP or
SIGTERM while the embedded cluster was starting.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Any

from trainmaster.controller.cli.cluster import Interrupted, ManagerDown, find_cluster, wait_for_manager
from trainmaster.controller.cli.follow.display.summary import Commands
from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.cli.follow.reporter import make_reporter
from trainmaster.controller.cli.follow.session import FAILURE, INTERRUPTED, TIMED_OUT, follow_jobs
from trainmaster.controller.cli.jobs.options import invocation
from trainmaster.controller.cli.manifests import Manifest, ManifestError, load_manifests
from trainmaster.controller.cli.printers import complain
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.cli.run.submit import require_trainjobs, submit
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotFound
from trainmaster.controller.log_config import configure_logs
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.version import __version__

BAD_INPUT = 2


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run TrainJobs and follow them",
        description="Submit everything in the files, follow their TrainJobs and exit as they do. Without a kubeconfig "
        "the jobs run in the embedded cluster of the working directory, which is started if need be.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="YAML or JSON, any number of objects; - is standard input"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster; default: $KUBECONFIG, else the embedded one")
    parser.add_argument("-n", "--namespace", help="for objects that name none; default: that of the kubeconfig")
    keeping = parser.add_mutually_exclusive_group()
    keeping.add_argument("--delete", action="store_true", help="delete the TrainJobs when they have ended")
    keeping.add_argument("--keep", action="store_true", help="keep them (the default)")
    parser.add_argument(
        "--on-interrupt",
        choices=("leave", "delete"),
        help="what becomes of the TrainJobs on Ctrl-C; default: ask on a terminal, else leave",
    )
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="give up waiting; the TrainJobs go on")
    parser.add_argument("--no-follow", action="store_true", help="return as soon as everything is submitted")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    configure_logs(level=logging.WARNING, style="console")
    try:
        manifests = load_manifests(arguments.files)
        return asyncio.run(_run(arguments, manifests))
    except (ManifestError, Rejected) as error:
        return complain(error, BAD_INPUT)
    except (KubeError, ManagerDown) as error:
        return complain(error, FAILURE)
    except Interrupted as error:
        print(f"trainmaster: {error}", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        # Before jobs are followed, which has its own way to end; those that were created have been reported.
        print("trainmaster: interrupted", file=sys.stderr)
        return INTERRUPTED


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


async def _run(arguments: argparse.Namespace, manifests: Sequence[Manifest]) -> int:
    require_trainjobs(manifests)  # before a cluster is started for nothing
    config = await find_cluster(arguments.kubeconfig, report=_report)
    async with KubeClient(config, user_agent=f"trainmaster-run/{__version__}") as client:
        try:
            async with asyncio.timeout(arguments.timeout):
                await wait_for_manager(client, report=_report)
        except TimeoutError:
            _report(f"the manager is not ready after {arguments.timeout:g} s; nothing was submitted")
            return TIMED_OUT
        jobs = await submit(client, manifests, namespace=arguments.namespace, report=_report)
        if arguments.no_follow:
            return 0
        commands = Commands(namespace=config.namespace, kubeconfig=arguments.kubeconfig, deletes=arguments.delete)
        reporter = make_reporter(plain=arguments.plain, commands=commands)
        code = await follow_jobs(client, jobs, reporter, timeout=arguments.timeout)
        if arguments.delete and code in {0, FAILURE}:
            await _delete(client, jobs)
        elif code == INTERRUPTED:
            await _settle_interrupt(client, jobs, arguments)
        return code


async def _settle_interrupt(client: KubeClient, jobs: Sequence[FollowedJob], arguments: argparse.Namespace) -> None:
    choice: str | None = arguments.on_interrupt
    keys = ", ".join(job.key for job in jobs)
    if choice is None and sys.stdin.isatty() and sys.stderr.isatty():
        try:
            # Nothing else runs any more; a thread that waits for input could not be interrupted.
            answer = input(f"\nInterrupted. Delete TrainJob {keys}? [y/N] ")  # noqa: ASYNC250 - see above
        except (EOFError, KeyboardInterrupt):
            answer = ""
        choice = "delete" if answer.strip().lower() in {"y", "yes"} else "leave"
    if choice == "delete":
        await _delete(client, jobs)
    else:
        _report(f"interrupted; TrainJob {keys} goes on")
        for job in jobs:
            for verb, aim in (("attach", "to follow it again"), ("delete", "to end it")):
                _report(
                    f"  {aim}: {invocation(verb, job.name, job.namespace, client, kubeconfig=arguments.kubeconfig)}"
                )


async def _delete(client: KubeClient, jobs: Sequence[FollowedJob]) -> None:
    for job in jobs:
        try:
            await client.delete(TRAINJOBS, job.namespace, job.name, uid=job.uid)
        except NotFound:
            continue
        _report(f"TrainJob {job.key} deleted")


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
