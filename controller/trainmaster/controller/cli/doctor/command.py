"""`trainmaster doctor` answers two questions, told apart.

1. May the cluster take an installation: what would stand in the way, and what would change?
2. Is the installation that is there healthy?

Exit codes: 0 nothing fails (there may be warnings, and what is not known); 1 something does, of either question; 2 the
cluster could not be asked, or wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections import Counter
from typing import Any, Final

from trainmaster.controller.cli.options import (
    MANAGER_NAMESPACE,
    add_configuration_options,
    add_kubeconfig_option,
    refuse_bad_name,
    reporting_errors,
)
from trainmaster.controller.cli.printers import FAILURE, print_json
from trainmaster.controller.log_config import configure_logs
from trainmaster.runtime.version import __version__

_QUESTIONS: Final = {
    "cluster": "May the cluster take an installation in the namespace {}?",
    "installation": "Is the installation in the namespace {} healthy?",
}


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        description="Report what in the cluster prevents an installation, an update or a replacement of the Go "
        "manager, and afterwards whether the installation is healthy. Nothing is written. Exit codes: 0 nothing fails, "
        "1 something does, 2 no answer from the cluster.",
    )
    add_kubeconfig_option(parser)
    parser.add_argument(
        "-n",
        "--namespace",
        default=MANAGER_NAMESPACE,
        metavar="NS",
        help="of the installation; default: %(default)s",
    )
    add_configuration_options(parser, default="the installation's, else that of our manifests")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Look at the cluster, and report; returns the exit code."""
    from trainmaster.controller.cli.doctor.checks import examine  # noqa: PLC0415 - the checks need all of the manager

    # What may not be read is told in the report, not by whoever tries in vain.
    configure_logs(level=logging.CRITICAL, style="console")
    refuse_bad_name("--namespace", arguments.namespace)
    server, lines = asyncio.run(examine(arguments))
    counts = Counter(line.status for line in lines)
    if arguments.output == "json":
        findings = [each._asdict() for each in lines]
        print_json({"server": server, "version": __version__, "summary": counts, "findings": findings})
    else:
        for question, heading in _QUESTIONS.items():
            print(heading.format(arguments.namespace))
            for line in (each for each in lines if each.question == question):
                what_next = f"; {line.what_next}" if line.what_next else ""
                print(f"{line.status:<8} {line.check:<18} {line.message}{what_next}")
            print()
        summary = ", ".join(f"{counts[status]} {status}" for status in ("ok", "warn", "fail", "unknown"))
        print(f"{server}: {summary}")
    return FAILURE if counts["fail"] else 0
