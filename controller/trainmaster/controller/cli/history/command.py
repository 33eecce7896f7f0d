"""`trainmaster history`: lists jobs that have ended, and tells all that is recorded of one."""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.cli.history.sources import SERVICE, FileSource, Source, SourceError, by_url, of_cluster
from trainmaster.controller.cli.history.tables import details, table
from trainmaster.controller.cli.jobs.options import access_of
from trainmaster.controller.cli.options import CommandError, read_token
from trainmaster.controller.cli.printers import BAD_INPUT, FAILURE, INTERRUPTED, complain, print_json, report
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.history.query import DEFAULT_LIMIT, InvalidQuery, read_since
from trainmaster.controller.history.record import RESULTS, SUCCEEDED, JobRecord
from trainmaster.controller.history.store import HistoryUnavailable
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.log_config import configure_logs
from trainmaster.runtime.api.constants import COMPLETE
from trainmaster.runtime.version import __version__

_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LISTED: Final = 5


class _NotFound(Exception):
    """There is no such job."""


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "history",
        description="List ended jobs, the last first, also deleted ones; or print the record of one. The manager "
        "records them if its configuration has history.enabled.",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="name or UID of a job, to print its record")
    which = parser.add_argument_group("which jobs")
    which.add_argument("-n", "--namespace", help="default: the kubeconfig's; with --file and --url all you may see")
    which.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces that you may see")
    which.add_argument("--runtime", help="made of this runtime")
    which.add_argument("--result", choices=(COMPLETE, *RESULTS), type=str.capitalize, help="the result")
    which.add_argument(
        "--cause", choices=[str(each) for each in Cause], metavar="CAUSE", help="for instance OutOfMemory"
    )
    which.add_argument("--since", metavar="TIME", help="ended since: 90m, 12h, 7d, or 2026-01-31T12:00:00Z")
    which.add_argument("--limit", type=_limit, default=DEFAULT_LIMIT, help=f"at most; default: {DEFAULT_LIMIT}")
    where = parser.add_argument_group("where the history is; default: the manager of the cluster")
    where.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster; default: $KUBECONFIG, else the embedded one of this directory, or above",
    )
    where.add_argument(
        "--service",
        default=SERVICE,
        metavar="NAMESPACE/NAME",
        help=f"Service of the manager, through the API server; default: {SERVICE}",
    )
    where.add_argument("--url", help="of a manager's metrics, for instance https://127.0.0.1:8443")
    where.add_argument("--file", type=Path, help="SQLite file, history.file of the configuration")
    where.add_argument("--token-file", type=Path, metavar="FILE", help="token; default: the kubeconfig's")
    where.add_argument("--certificate-authority", type=Path, metavar="FILE", help="of the manager, with --url")
    parser.add_argument("-o", "--output", choices=("json", "wide"), help="JSON, or more columns; default: a table")
    parser.set_defaults(run=run)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 500):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 500")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    configure_logs(level=logging.WARNING, style="console")
    try:
        return asyncio.run(_run(arguments))
    except (InvalidQuery, _NotFound) as error:
        return complain(error, BAD_INPUT)
    except (CommandError, SourceError, HistoryUnavailable, KubeError) as error:
        return complain(error, FAILURE)
    except KeyboardInterrupt:
        return INTERRUPTED


async def _run(arguments: argparse.Namespace) -> int:
    if arguments.since:
        read_since(arguments.since, now=datetime.now(UTC))  # before anybody is asked
    async with AsyncExitStack() as stack:
        source, namespace = await _source(arguments, stack)
        if arguments.namespace or arguments.all_namespaces:
            namespace = arguments.namespace
        if arguments.job is not None:
            record = await _find(source, arguments.job, namespace)
            if arguments.output == "json":
                print_json(record.to_json())
            else:
                print("\n".join(details(record)))
            return 0
        records = await source.find(_parameters(arguments, namespace))
    _print(records, arguments, namespace)
    return 0


async def _source(arguments: argparse.Namespace, stack: AsyncExitStack) -> tuple[Source, str | None]:
    """Return where the history is, and which namespace is meant if none is named."""
    token = read_token(arguments.token_file)
    if arguments.file is not None:
        return FileSource(arguments.file), None
    if arguments.url is not None:
        return by_url(arguments.url, token=token, authority=arguments.certificate_authority), None
    config = await access_of(arguments, other="name the file of a history with --file, ")
    client = await stack.enter_async_context(KubeClient(config, user_agent=f"trainmaster-cli/{__version__}", tries=2))
    source = await of_cluster(client, service=arguments.service, token=token)
    return source, str(config.namespace or "default")


def _parameters(arguments: argparse.Namespace, namespace: str | None) -> dict[str, str]:
    wanted = {
        "namespace": namespace,
        "runtime": arguments.runtime,
        "result": SUCCEEDED if arguments.result == COMPLETE else arguments.result,
        "cause": arguments.cause,
        "since": arguments.since,
        "limit": str(arguments.limit),
    }
    return {name: value for name, value in wanted.items() if value}


async def _find(source: Source, job: str, namespace: str | None) -> JobRecord:
    """Return the job that somebody names: of several of one name the one that ended last."""
    if _UID.fullmatch(job):
        if (record := await source.get(job)) is not None:
            return record
        raise _NotFound(f"no job with the UID {job} is recorded, or none that you may see")
    parameters = {"name": job, "limit": str(_LISTED + 1)} | ({"namespace": namespace} if namespace else {})
    found = await source.find(parameters)
    if not found:
        where = f"in namespace {namespace}; -A looks in all" if namespace else "in a namespace that you may see"
        raise _NotFound(
            f"no job {job!r} that has ended is recorded {where}; `trainmaster list` shows those that have not"
        )
    return await source.get(found[0].uid) or found[0]


def _print(records: Sequence[JobRecord], arguments: argparse.Namespace, namespace: str | None) -> None:
    if arguments.output == "json":
        print_json({"items": [each.summary() for each in records]})
        return
    if not records:
        report(
            "no such jobs are recorded"
            if _is_filtered(arguments)
            else "no jobs that have ended are recorded"
            + (f" in namespace {namespace}; -A shows those of all namespaces" if namespace else "")
        )
        return
    wide = arguments.output == "wide"
    print("\n".join(table(records, now=datetime.now(UTC), namespaces=namespace is None, wide=wide)))
    if len(records) == arguments.limit:
        report(f"the last {len(records)}; there may be more: --limit, --since")


def _is_filtered(arguments: argparse.Namespace) -> bool:
    return any((arguments.runtime, arguments.result, arguments.cause, arguments.since))
