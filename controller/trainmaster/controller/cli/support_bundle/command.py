"""`trainmaster support-bundle`: gather what a maintainer needs, and write it to one file.

Exit codes: 0 the archive is written, whatever may be missing in it; 1 there is no cluster; 2 wrong arguments, or a file
that cannot be written; 130 interrupted, 141 nobody reads what is written any more.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.cli.cluster import running_cluster, state_directory
from trainmaster.controller.cli.doctor.command import DEFAULT_NAMESPACE
from trainmaster.controller.cli.jobs.lookup import Job, find_job
from trainmaster.controller.cli.jobs.options import FAILURE
from trainmaster.controller.cli.options import CommandError, read_token, reporting_errors
from trainmaster.controller.cli.printers import complain, counted
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.cli.support_bundle import manager, workloads
from trainmaster.controller.cli.support_bundle.bundle import ROOT, Bundle, Reading, refuse_existing, write, write_file
from trainmaster.controller.cli.support_bundle.manager import add_configuration
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.cli.support_bundle.workloads import gather_cluster, gather_doctor, gather_versions
from trainmaster.controller.configuration import OFF, ConfigurationFile
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.log_config import configure_logs
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.names import dns_label
from trainmaster.runtime.version import __version__

_STANDARD_OUTPUT: Final = "-"
_TRIES: Final = 2


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "support-bundle",
        description="Gather versions, the configuration and the logs of the manager, jobs and what they are made of, "
        "and what doctor says, in one archive. Nothing is written to the cluster. Credentials, values of environment "
        "variables, and data of Secrets and ConfigMaps are left out; what could not be had is told in its index.json.",
        allow_abbrev=False,
    )
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="only these jobs, NAME or KIND/NAME, of one namespace")
    parser.add_argument(
        "-n",
        "--namespace",
        action="append",
        metavar="NS",
        help="only the jobs of this namespace; may be repeated; default: all that you may read",
    )
    parser.add_argument(
        "-m", "--manager-namespace", metavar="NS", help="where the manager is installed; default: where one is found"
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster; default: $KUBECONFIG, the embedded one if it runs here, else as kubectl finds it",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default=f"{ROOT}.tar.gz", help="default: %(default)s; - is standard output"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument(
        "--env-values",
        action="store_true",
        help="keep the values of environment variables that do not look like credentials",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a token that pods of the manager in the namespace of -m are shown for their metrics and /debug/, where "
        "metrics.auth is on; of an account that may read these and nothing else",
    )
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Gather and write; returns the exit code."""
    configure_logs(level=logging.CRITICAL, style="console")  # what may not be read is in the index
    _check(arguments)
    path = Path(arguments.output)
    if arguments.output == _STANDARD_OUTPUT:
        if sys.stdout.isatty():
            raise CommandError(
                "the archive is nothing for a terminal: redirect standard output, or name a file with -o"
            )
    elif not arguments.force or path.is_dir():
        refuse_existing(path)
    redactor = Redactor(env_values=arguments.env_values)
    if token := read_token(arguments.token_file):
        redactor.learn_value(token)
    bundle = Bundle(datetime.now(UTC))
    try:
        asyncio.run(_gather(arguments, bundle, redactor, token=token))
    except Rejected as error:
        raise CommandError(str(error)) from error
    except KubeError as error:
        return complain(error, FAILURE)
    files = bundle.written(redactor)
    if arguments.output == _STANDARD_OUTPUT:
        write(sys.stdout.buffer, files, created=bundle.created)
        sys.stdout.buffer.flush()
        return 0
    size = write_file(path, files, created=bundle.created, replace=arguments.force)
    print(f"{path}: {counted(len(bundle.paths()), 'file')}, {max(1, size // 1024)} KiB", file=sys.stderr)
    if bundle.missing:
        print(f"{counted(len(bundle.missing), 'thing')} could not be had; index.json in it says why", file=sys.stderr)
    print("look through it before you pass it on: a program cannot know all that is confidential", file=sys.stderr)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse arguments that cannot be meant.

    Raises:
        CommandError: One is wrong.
    """
    flags = {"--namespace": arguments.namespace or [], "--manager-namespace": [arguments.manager_namespace]}
    for flag, names in flags.items():
        for name in filter(None, names):
            if problems := dns_label(name):
                raise CommandError(f"{flag} {name!r} cannot be a name: {', '.join(problems)}")
    if arguments.token_file is not None and not arguments.manager_namespace:
        raise CommandError(
            "--token-file takes -m: the token is shown to pods of the namespace that you name, and to no others"
        )
    if arguments.jobs and len(arguments.namespace or ()) > 1:
        raise CommandError("jobs are named in one namespace; give -n once, or no jobs")


async def _gather(arguments: argparse.Namespace, bundle: Bundle, redactor: Redactor, *, token: str) -> None:
    directory = state_directory(arguments.kubeconfig)
    try:
        access = await running_cluster(arguments.kubeconfig) or (None if directory else await load_config())
    except ConfigurationError:
        if directory is None:
            raise
        access = None
    bundle.scope = {
        "jobs": arguments.jobs,
        "namespaces": arguments.namespace or "all",
        "environmentValues": arguments.env_values,
    }
    if access is None:
        bundle.lacks("the cluster", f"the embedded cluster of {directory} does not run")
        await gather_versions(bundle, None)
    else:
        await _gather_cluster(arguments, access, bundle, redactor, token=token)
    if directory is not None:
        await _gather_embedded(bundle, redactor, directory)


async def _gather_cluster(
    arguments: argparse.Namespace, access: RestConfig, bundle: Bundle, redactor: Redactor, *, token: str
) -> None:
    bundle.server = access.server
    for header in (await access.headers()).values():
        redactor.learn_value(header.rpartition(" ")[2])
    async with KubeClient(access, user_agent=f"trainmaster-support-bundle/{__version__}", tries=_TRIES) as client:
        if not await gather_versions(bundle, client):
            return
        reading, now = Reading(client, bundle), bundle.created
        namespaces: list[str | None]
        if arguments.jobs:
            jobs = await _named(client, arguments)
            namespaces = [jobs[0].namespace]
            await workloads.gather_jobs(reading, jobs, now=now)
        else:
            namespaces = await workloads.readable_namespaces(reading, arguments.namespace or [])
            for namespace in namespaces:
                await workloads.gather_namespace(reading, namespace, now=now)
        await gather_cluster(reading, namespaces)
        for namespace in await manager.find_namespaces(reading, arguments.manager_namespace, default=DEFAULT_NAMESPACE):
            await _gather_manager(reading, redactor, namespace, token=token)


async def _named(client: KubeClient, arguments: argparse.Namespace) -> list[Job]:
    """Return the jobs that are named.

    Raises:
        Rejected: There is none of that name.
    """
    (namespace,) = arguments.namespace or [client.config.namespace or "default"]
    return [await find_job(client, namespace, name) for name in dict.fromkeys(arguments.jobs)]


async def _gather_manager(reading: Reading, redactor: Redactor, namespace: str, *, token: str) -> None:
    found = await manager.gather_manager(reading, namespace)
    effective = add_configuration(reading.bundle, redactor, f"manager/{namespace}", found.configuration)
    if found.pods:
        await manager.gather_pages(reading, namespace, found.pods, effective.configuration, token=token)
    try:
        framework = Framework(load_plugins())
    except PluginInvalid as error:
        reading.bundle.lacks(f"manager/{namespace}/doctor.json", str(error))
        return
    await gather_doctor(reading, effective, framework, namespace=namespace)


async def _gather_embedded(bundle: Bundle, redactor: Redactor, directory: Path) -> None:
    text = manager.gather_files(bundle, redactor, directory)
    if text is None:
        return
    files = [ConfigurationFile("configuration", text)]
    metrics = add_configuration(bundle, redactor, "embedded", files).configuration.metrics
    if metrics.bind_address != OFF:
        await manager.gather_metrics(bundle, metrics.bind_address, secure=metrics.secure_serving)
