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

from trainmaster.controller.cli.options import (
    CommandError,
    add_kubeconfig_option,
    read_token,
    refuse_bad_name,
    reporting_errors,
)
from trainmaster.controller.cli.printers import FAILURE, complain, counted
from trainmaster.controller.cli.support_bundle.archive import ROOT, refuse_existing, write, write_file
from trainmaster.controller.log_config import configure_logs

_STANDARD_OUTPUT: Final = "-"


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "support-bundle",
        description="Collect versions, the manager's configuration and logs, jobs with their objects, and the output "
        "of doctor in an archive, without credentials, values of environment variables, and data of Secrets and "
        "ConfigMaps.",
    )
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="only these jobs of one namespace, NAME or KIND/NAME")
    parser.add_argument(
        "-n",
        "--namespace",
        action="append",
        metavar="NS",
        help="only jobs of this namespace; may be repeated; default: all you may read",
    )
    parser.add_argument("-m", "--manager-namespace", metavar="NS", help="of the manager; default: where one is found")
    add_kubeconfig_option(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", default=f"{ROOT}.tar.gz", help="default: %(default)s; - is standard output"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument(
        "--env-values",
        action="store_true",
        help="keep values of environment variables unless they look like credentials",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="token for the manager's metrics and /debug/ (in the namespace of -m) if metrics.auth is on, of an "
        "account with no other right",
    )
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Gather and write; returns the exit code."""
    from trainmaster.controller.cli.responses import Rejected  # noqa: PLC0415 - not needed for help
    from trainmaster.controller.cli.support_bundle.bundle import Bundle  # noqa: PLC0415 - as above
    from trainmaster.controller.cli.support_bundle.gathering import gather  # noqa: PLC0415 - as above
    from trainmaster.controller.cli.support_bundle.redaction import Redactor  # noqa: PLC0415 - as above
    from trainmaster.controller.kube.rest.errors import KubeError  # noqa: PLC0415 - as above

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
        asyncio.run(gather(arguments, bundle, redactor, token=token))
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
    for name in arguments.namespace or ():
        refuse_bad_name("--namespace", name)
    if arguments.manager_namespace:
        refuse_bad_name("--manager-namespace", arguments.manager_namespace)
    if arguments.token_file is not None and not arguments.manager_namespace:
        raise CommandError(
            "--token-file takes -m: the token is shown to pods of the namespace that you name, and to no others"
        )
    if arguments.jobs and len(arguments.namespace or ()) > 1:
        raise CommandError("jobs are named in one namespace; give -n once, or no jobs")
