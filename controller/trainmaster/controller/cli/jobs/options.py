"""What the commands for jobs that are there have in common: their options, the cluster, and how they report.

Exit codes, as those of `trainmaster run`: 0 done; 1 it failed, or the cluster cannot be used; 2 what was asked for is
wrong, for instance the name of a job; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from trainmaster.controller.cli.cluster import running_cluster
from trainmaster.controller.cli.jobs.lookup import Job, find_job
from trainmaster.controller.cli.printers import BAD_INPUT, FAILURE, INTERRUPTED, complain, invocation
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.log_config import configure_logs
from trainmaster.runtime.version import __version__

_TRIES = 2
"""Of a request: somebody waits for the answer."""

Work = Callable[[KubeClient, argparse.Namespace], Awaitable[int]]
"""What a command does on a cluster; returns the exit code."""


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add `-n` and `--kubeconfig`."""
    parser.add_argument("-n", "--namespace", help="of the jobs; default: that of the kubeconfig")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster; default: $KUBECONFIG, else the embedded one of this directory, or above",
    )


def count(text: str) -> int:
    """Read a number of something, or that of a rank; for argparse."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return int(text)


def on_cluster(work: Work) -> Callable[[argparse.Namespace], int]:
    """Make the `run` of a command: connect, work, and say in a line or two what stands in the way."""

    def run(arguments: argparse.Namespace) -> int:
        configure_logs(level=logging.WARNING, style="console")
        try:
            return asyncio.run(_connected(work, arguments))
        except Rejected as error:
            return complain(error, BAD_INPUT)
        except KubeError as error:
            return complain(error, FAILURE)
        except KeyboardInterrupt:
            return INTERRUPTED

    return run


async def access_of(arguments: argparse.Namespace, *, other: str = "") -> RestConfig:
    """Return the access to the cluster that is meant.

    Raises:
        ConfigurationError: There is none; `other` says what else there is to do.
    """
    config = await running_cluster(arguments.kubeconfig)
    if config is None:
        raise ConfigurationError(
            f"no cluster: $KUBECONFIG is not set, and no embedded one runs in {Path.cwd()}, or above\n"
            f"  what next: {other}name one with --kubeconfig, go to the directory in which one runs, or start one "
            "here: trainmaster cluster up --detach"
        )
    return config


async def _connected(work: Work, arguments: argparse.Namespace) -> int:
    config = await access_of(arguments)
    async with KubeClient(config, user_agent=f"trainmaster-cli/{__version__}", tries=_TRIES) as client:
        return await work(client, arguments)


def namespace_of(client: KubeClient, arguments: argparse.Namespace) -> str:
    """Return the namespace that is meant."""
    return str(arguments.namespace or client.config.namespace or "default")


_NAME_OF_JOB: Final = "its name, or KIND/NAME, as `trainmaster list` has them"


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a job."""
    parser.add_argument("job", metavar="JOB", help=_NAME_OF_JOB)


def add_jobs(parser: argparse.ArgumentParser, *, number: str = "+") -> None:
    """Add the argument that names some jobs; `number` says how many, as argparse writes it."""
    parser.add_argument("jobs", nargs=number, metavar="JOB", help=_NAME_OF_JOB)


def for_each(act: Callable[[KubeClient, Job], Awaitable[None]]) -> Work:
    """Do something with each job that is named; one that does not exist keeps nobody from the others."""

    async def work(client: KubeClient, arguments: argparse.Namespace) -> int:
        code = 0
        for name in dict.fromkeys(arguments.jobs):
            try:
                await act(client, await find_job(client, namespace_of(client, arguments), name))
            except Rejected as error:
                code = complain(error, BAD_INPUT)
        return code

    return work


def next_command(verb: str, job: Job, client: KubeClient, arguments: argparse.Namespace) -> str:
    """Return the command that does something else with a job on the same cluster."""
    return invocation(
        verb,
        job.argument,
        namespace=job.namespace,
        default_namespace=client.config.namespace,
        kubeconfig=arguments.kubeconfig,
    )
