"""Which cluster a job runs on: the one that is named, or the embedded one of the working directory.

The embedded cluster is another program as far as this module is concerned: it is started by its command line, and found
by the kubeconfig in its state directory.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import KubeError

_PROBE_TIMEOUT = 3.0
_KUBECONFIG = "KUBECONFIG"
_HOME = "TRAINMASTER_HOME"


async def find_cluster(kubeconfig: str | None, *, report: Callable[[str], None]) -> RestConfig:
    """Return the access to the cluster of a kubeconfig, of `$KUBECONFIG`, or to the embedded one.

    Raises:
        ConfigurationError: No cluster is configured, or the embedded cluster does not start.
    """
    config = await running_cluster(kubeconfig)
    if config is not None:
        return config
    report(
        "no cluster was named and none is running here: starting an embedded one (`trainmaster cluster down` stops it)"
    )
    await _start()
    return await load_config(kubeconfig=_embedded())


async def running_cluster(kubeconfig: str | None) -> RestConfig | None:
    """Return the access to the cluster of a kubeconfig, of `$KUBECONFIG`, or to the embedded one if that runs.

    Raises:
        ConfigurationError: The kubeconfig cannot be used.
    """
    if kubeconfig or os.environ.get(_KUBECONFIG):
        return await load_config(kubeconfig=kubeconfig)
    return await _answering(_embedded())


def _embedded() -> str:
    return str(Path(os.environ.get(_HOME) or ".trainmaster") / "kubeconfig")


async def _answering(path: str) -> RestConfig | None:
    """Return the access to an embedded cluster if it is there; there may be none, or only its kubeconfig."""
    try:
        config = await load_config(kubeconfig=path)
        async with KubeClient(config, user_agent="trainmaster-run", timeout=_PROBE_TIMEOUT) as client:
            status, _, _ = await client.raw("GET", "/readyz")
    except KubeError:
        return None
    return config if status == 200 else None


async def _start() -> None:
    command = (sys.executable, "-P", "-m", "trainmaster.controller.cli", "cluster", "up", "--detach")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait() != 0:
        raise ConfigurationError(
            "the embedded cluster did not start, see above; name another cluster with --kubeconfig"
        )
