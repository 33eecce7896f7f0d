"""`trainmaster validate`: everything that is wrong with TrainJobs, runtimes and jobs of `kubeflow.org/v1` in files.

Exit codes: 0 a cluster would admit them all (there may be warnings); 1 it would not; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from trainmaster.controller.cli.configured import load_framework, load_jobs
from trainmaster.controller.cli.files.manifests import scan_manifests
from trainmaster.controller.cli.files.offline import OfflineValidation
from trainmaster.controller.cli.options import add_file_options, reporting_errors
from trainmaster.controller.cli.printers import FAILURE, counted, listed, print_json


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "validate",
        description="Check TrainJobs, runtimes and jobs of kubeflow.org/v1 as a cluster with Trainmaster would, and "
        "report all errors with file, line and field.",
    )
    add_file_options(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    framework = load_framework(arguments)
    validation = OfflineValidation(
        scan_manifests(arguments.files),
        framework,
        namespace=arguments.namespace or "default",
        job_kinds=lambda: load_jobs(arguments)[0],
    )
    diagnostics = validation.diagnostics
    errors = sum(diagnostic.severity == "error" for diagnostic in diagnostics)
    if not (diagnostics or validation.validated or validation.unvalidated):
        # Whoever made the files has failed, and would take silence for consent.
        print("trainmaster: nothing to check: the files hold no object", file=sys.stderr)
        return FAILURE
    if arguments.output == "json":
        report = {
            "valid": not errors,
            "checked": [_named(each.manifest.title, each.manifest.place) for each in validation.validated],
            "unchecked": [_named(manifest.title, manifest.place) for manifest in validation.unvalidated],
            "problems": [asdict(diagnostic) for diagnostic in diagnostics],
        }
        print_json(report)
        return FAILURE if errors else 0
    for diagnostic in diagnostics:
        print(diagnostic)
    summary = [
        f"{counted(len(validation.validated), 'object')} checked",
        counted(errors, "error"),
        counted(len(diagnostics) - errors, "warning"),
    ]
    if validation.unvalidated:
        summary.append(f"not checked: {listed(manifest.kind for manifest in validation.unvalidated)}")
    print(f"trainmaster: {', '.join(summary)}", file=sys.stderr)
    return FAILURE if errors else 0


def _named(title: str, place: str) -> dict[str, str]:
    return {"object": title, "place": place}
