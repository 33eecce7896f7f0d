"""`trainmaster diff`: what applying files would change in a cluster, and in what their TrainJobs become.

Exit codes: 0 nothing would change; 1 something would; 2 it cannot be told: the files, the cluster or the arguments are
wrong, or a permission is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Any

from trainmaster.controller.cli.cluster import running_cluster
from trainmaster.controller.cli.diff.differ import unified_diff
from trainmaster.controller.cli.diff.dry_run import DryRun
from trainmaster.controller.cli.manifests import Manifest, ManifestError, load_manifests
from trainmaster.controller.cli.options import CommandError, add_file_options, load_framework, reporting_errors
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.logs import configure_logs
from trainmaster.runtime.framework import Framework, PluginInvalid
from trainmaster.runtime.version import __version__

DIFFERENT = 1
_TRIES = 2
"""Of a request: somebody waits for the answer."""


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="show what applying files would change in a cluster",
        description="Show what `kubectl apply --server-side --force-conflicts` of the files would change, and what the "
        "controller would then change in JobSets and all else that their TrainJobs become. Nothing is written.",
        allow_abbrev=False,
    )
    add_file_options(parser)
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster; default: $KUBECONFIG, the embedded one if it runs here, else as kubectl finds it",
    )
    parser.add_argument("--field-manager", default="kubectl", metavar="NAME", help="who applies; default: kubectl")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    configure_logs(level=logging.WARNING, style="console")
    framework = load_framework(arguments.config)
    try:
        manifests = load_manifests(arguments.files)
        if not manifests:
            raise CommandError("no objects in the files; there is nothing to compare")
        return asyncio.run(_run(arguments, manifests, framework))
    except (ManifestError, Rejected, KubeError, PluginInvalid) as error:
        raise CommandError(str(error)) from error


async def _run(arguments: argparse.Namespace, manifests: Sequence[Manifest], framework: Framework) -> int:
    config = await running_cluster(arguments.kubeconfig) or await load_config()
    async with KubeClient(config, user_agent=f"trainmaster-diff/{__version__}", tries=_TRIES) as client:
        dry_run = DryRun(client, framework, namespace=arguments.namespace, field_manager=arguments.field_manager)
        diffs = await dry_run.run(manifests)
    texts = [unified_diff(diff.live, diff.merged) for diff in diffs]
    sys.stdout.write("".join(texts))
    return DIFFERENT if any(texts) else 0
