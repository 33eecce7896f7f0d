"""`trainmaster runtimes`: install ClusterTrainingRuntimes into a cluster, and remove them again.

The Helm chart runs it from Jobs with the image of the manager: objects of a kind cannot be parts of the release that
brings the definition of that kind. It does what the original's Job does with a kubectl that it downloads.

Guarantees:
- What was installed bears a label. Only what bears it is ever deleted: runtimes of users are left alone.
- Every file is read before anything is written, and all is written before anything is deleted.
- While the cluster does not serve the kind yet, or refuses for a reason of its own, it is asked again.

Exit codes: 0 done; 1 the cluster cannot be used; 2 the files are wrong, or the cluster refuses what they say.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from trainmaster.controller.cli.files.manifests import Manifest, ManifestError, load_manifests
from trainmaster.controller.cli.printers import BAD_INPUT, FAILURE, complain
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    BadRequest,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
)
from trainmaster.controller.log_config import configure_logs
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES
from trainmaster.runtime.api.constants import API_VERSION, CLUSTER_TRAINING_RUNTIME_KIND
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__

LABEL: Final = "trainer.kubeflow.org/managed-by"
INSTALLER: Final = "runtimes-installer"
"""What the original's Job labels its runtimes with, so that they are known when the two take turns."""

FIELD_MANAGER: Final = "trainmaster-runtimes"

_PASSING: Final = (NotFound, ServerError, TooManyRequests, TransportError)
"""A definition that was applied a moment ago is not served yet, and webhooks of others may not be there yet."""

_RETRY_EVERY: Final = 1.0

_Result = TypeVar("_Result")


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "runtimes",
        description="Install ClusterTrainingRuntimes into a cluster, or remove those that were installed so.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    install = verbs.add_parser(
        "install",
        help="apply the runtimes of some files, and delete those that an earlier call installed and these files lack",
    )
    install.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON; a directory; - is standard input")
    install.set_defaults(run=run_install)
    uninstall = verbs.add_parser("uninstall", help="delete the runtimes that were installed")
    uninstall.set_defaults(run=run_uninstall)
    for verb in (install, uninstall):
        verb.add_argument(
            "--kubeconfig", metavar="FILE", help="the cluster; default: $KUBECONFIG, else that of the pod"
        )
        verb.add_argument(
            "--timeout", type=float, default=120.0, metavar="SECONDS", help="how long to try again; default: 120"
        )


def run_install(arguments: argparse.Namespace) -> int:
    """Install the runtimes of some files; returns the exit code."""
    try:
        runtimes = [_labelled(manifest) for manifest in load_manifests(arguments.files)]
    except ManifestError as error:
        return complain(error, BAD_INPUT)
    return _run(arguments, lambda client: _install(client, runtimes, patience=arguments.timeout))


def run_uninstall(arguments: argparse.Namespace) -> int:
    """Delete the runtimes that were installed; returns the exit code."""
    return _run(arguments, lambda client: _delete(client, keep=frozenset(), patience=arguments.timeout))


def _labelled(manifest: Manifest) -> JsonObject:
    """Return a runtime as it is applied.

    Raises:
        ManifestError: It is something else.
    """
    metadata, problem = manifest.object["metadata"], ""
    if (manifest.api_version, manifest.kind) != (API_VERSION, CLUSTER_TRAINING_RUNTIME_KIND):
        problem = f"is no {CLUSTER_TRAINING_RUNTIME_KIND} of {API_VERSION}, and nothing else is installed"
    elif "name" not in metadata:
        problem = "has no name of its own: write metadata.name, by which it is found again"
    if problem:
        raise ManifestError(f"{manifest.title} {problem}", file=manifest.source.file, line=manifest.source.line)
    labels = {**(metadata.get("labels") or {}), LABEL: INSTALLER}
    return {**manifest.object, "metadata": {**metadata, "labels": labels}}


def _run(arguments: argparse.Namespace, act: Callable[[KubeClient], Awaitable[None]]) -> int:
    async def run() -> None:
        access = await load_config(kubeconfig=arguments.kubeconfig)
        async with KubeClient(access, user_agent=f"trainmaster-runtimes/{__version__}") as client:
            await act(client)

    configure_logs(level=logging.WARNING, style="console")
    try:
        asyncio.run(run())
    except (BadRequest, Invalid) as error:
        return complain(error, BAD_INPUT)
    except KubeError as error:
        return complain(error, FAILURE)
    return 0


async def _install(client: KubeClient, runtimes: Sequence[JsonObject], *, patience: float) -> None:
    for runtime in runtimes:
        name = runtime["metadata"]["name"]
        apply = functools.partial(client.apply, CLUSTER_TRAINING_RUNTIMES, runtime, field_manager=FIELD_MANAGER)
        await _patiently(apply, patience, doing=f"applying ClusterTrainingRuntime {name}")
        print(f"ClusterTrainingRuntime {name} applied", flush=True)
    await _delete(client, keep=frozenset(runtime["metadata"]["name"] for runtime in runtimes), patience=patience)


async def _delete(client: KubeClient, *, keep: frozenset[str], patience: float) -> None:
    """Delete what was installed, but for some names."""

    async def installed() -> list[JsonObject]:
        try:
            answer = await client.list(
                CLUSTER_TRAINING_RUNTIMES, label_selector=f"{LABEL}={INSTALLER}", metadata_only=True
            )
        except NotFound:  # the kind is not served, or not any more
            return []
        return list(answer["items"])

    for runtime in await _patiently(installed, patience, doing="listing ClusterTrainingRuntimes"):
        metadata = runtime["metadata"]
        if metadata["name"] in keep:
            continue
        with contextlib.suppress(NotFound):  # somebody else was quicker
            await client.delete(CLUSTER_TRAINING_RUNTIMES, None, metadata["name"], uid=metadata["uid"])
        print(f"ClusterTrainingRuntime {metadata['name']} deleted", flush=True)


async def _patiently(act: Callable[[], Awaitable[_Result]], patience: float, *, doing: str) -> _Result:
    """Do something, again and again while it fails for a reason that may pass."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    told = ""
    while True:
        try:
            return await act()
        except _PASSING as error:
            if loop.time() + _RETRY_EVERY > end:
                raise
            if str(error) != told:
                told = str(error)
                print(f"{doing} is tried again for {end - loop.time():.0f} s: {error}", file=sys.stderr, flush=True)
        await asyncio.sleep(_RETRY_EVERY)
