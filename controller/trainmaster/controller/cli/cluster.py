"""Which cluster a job runs on: the one that is named, or the embedded one of the working directory, and its manager.

The embedded cluster is another program as far as this module is concerned: it is started by its command line, and found
by the kubeconfig in its state directory. It tells of its manager, without which nothing becomes of a TrainJob, under a
path of its own, to administrators. Of other clusters, and of an embedded one without a manager, nothing is known;
somebody else runs the controller there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.runtime.jsontext import JsonError, load_json

_PROBE_TIMEOUT = 3.0
_KUBECONFIG = "KUBECONFIG"
_HOME = "TRAINMASTER_HOME"
_OF_A_CLUSTER: Final = ("cluster.json", "cluster.log")


async def start_cluster(*, report: Callable[[str], None]) -> RestConfig:
    """Start the embedded cluster; returns the access to it.

    Raises:
        ConfigurationError: It does not start.
        Interrupted: A signal arrived meanwhile.
    """
    report(
        "no cluster was named and none is running here: starting an embedded one (`trainmaster cluster down` stops it)"
    )
    await _start(report)
    return await load_config(kubeconfig=_embedded())


async def running_cluster(kubeconfig: str | None) -> RestConfig | None:
    """Return the access to the cluster of a kubeconfig, of `$KUBECONFIG`, or to the embedded one if that runs.

    Raises:
        ConfigurationError: The kubeconfig cannot be used.
    """
    if kubeconfig or os.environ.get(_KUBECONFIG):
        return await load_config(kubeconfig=kubeconfig)
    return await _answering(_embedded())


async def reachable_cluster(kubeconfig: str | None) -> RestConfig:
    """Return the access to the same clusters, or else to the one that kubectl finds.

    Raises:
        ConfigurationError: There is none, or its kubeconfig cannot be used.
    """
    return await running_cluster(kubeconfig) or await load_config()


def state_directory(kubeconfig: str | None) -> Path | None:
    """Return the directory of the embedded cluster that a kubeconfig, or else this directory, belongs to, if it is one.

    Its kubeconfig is in it; whether the cluster runs does not matter.
    """
    path = Path(kubeconfig or os.environ.get(_KUBECONFIG) or _embedded())
    is_ours = path.name == "kubeconfig" and any((path.parent / name).is_file() for name in _OF_A_CLUSTER)
    return path.parent if is_ours else None


def _embedded() -> str:
    """Return the kubeconfig of the embedded cluster: of this directory, or else of the nearest one above that has one.

    Directories of other people are not looked into.
    """
    name = Path(os.environ.get(_HOME) or ".trainmaster") / "kubeconfig"
    above = [] if os.environ.get(_HOME) else [each / name for each in Path.cwd().parents]
    return str(next((each for each in (name, *above) if _is_ours(each)), name))


def _is_ours(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.getuid()
    except OSError:
        return False


async def _answering(path: str) -> RestConfig | None:
    """Return the access to an embedded cluster if it is there; there may be none, or only its kubeconfig."""
    try:
        config = await load_config(kubeconfig=path)
        async with KubeClient(config, user_agent="trainmaster-run", timeout=_PROBE_TIMEOUT) as client:
            status, _, _ = await client.raw("GET", "/readyz")
    except KubeError:
        return None
    return config if status == 200 else None


class Interrupted(Exception):
    """A signal arrived while the embedded cluster was starting; who starts it has said what becomes of it."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted while the embedded cluster was starting")
        self.number = number


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _start(report: Callable[[str], None]) -> None:
    # Two that begin at once get one cluster: whoever comes second waits for it.
    command = (sys.executable, "-P", "-m", "trainmaster.controller.cli", "cluster", "up", "--detach", "--if-needed")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def interrupt(number: int) -> None:
        # The command stops what it has started, which takes its time.
        received.append(number)
        with contextlib.suppress(ProcessLookupError):
            process.terminate()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt, number)
    try:
        told, _ = await process.communicate()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    if received:
        raise Interrupted(received[0])
    for line in told.decode().splitlines():
        if line.startswith("Note: "):
            report(line)
    if process.returncode != 0:
        raise ConfigurationError(
            "the embedded cluster did not start, see above; name another cluster with --kubeconfig"
        )


_PATH: Final = "/trainmaster.dev/manager"
_READY: Final = "ready"
_CRASHING: Final = "crashing"
_POLL_STARTING_EVERY: Final = 0.1
_POLL_EVERY: Final = 2.0


class ManagerDown(Exception):
    """The manager does not run; the text, of several lines, says why and what to do."""


async def wait_for_manager(client: KubeClient, *, report: Callable[[str], None]) -> dict[str, Any] | None:
    """Wait for a manager that is starting; return at once where nothing is known of one.

    Returns:
        What the embedded cluster tells of its manager; None for other clusters, and without one.

    Raises:
        ManagerDown: It crashes again and again.
        KubeError: The server cannot be reached.
    """
    reported = ""
    while (manager := await manager_status(client)) is not None and manager["phase"] != _READY:
        if manager["phase"] == _CRASHING:
            raise ManagerDown(
                "the manager of this embedded cluster does not run, so that nothing would become of a TrainJob\n"
                f"  last error: {manager.get('message')}\n"
                f"  its log:    {manager.get('log')}\n"
                "  what next:  correct what the error names; `trainmaster cluster status` tells when it runs again"
            )
        waits = f"waiting for the manager of this embedded cluster: {manager.get('message') or 'it is starting'}"
        if waits != reported:
            report(waits)
            reported = waits
        await asyncio.sleep(_POLL_STARTING_EVERY)
    return manager


async def watch_manager(client: KubeClient, *, report: Callable[[str], None]) -> None:
    """Report a manager that crashes while jobs are followed, and of its return; runs until cancelled.

    It returns where nothing is known of a manager. A cluster that goes away and comes back is no such place, whatever
    it answers meanwhile.
    """
    crashes = was_known = False
    while True:
        await asyncio.sleep(_POLL_EVERY)
        try:
            manager = await manager_status(client)
        except KubeError:
            continue  # whoever follows the jobs notices as well
        if manager is None:
            if not was_known:
                return
            continue
        was_known = True
        if manager["phase"] == _CRASHING and not crashes:
            report(
                "the manager of this embedded cluster does not run, and nothing becomes of TrainJobs until it does: "
                f"{manager.get('message')} (see {manager.get('log')})"
            )
        elif manager["phase"] == _READY and crashes:
            report("the manager of this embedded cluster runs again")
        crashes = manager["phase"] == _CRASHING or (crashes and manager["phase"] != _READY)


async def manager_status(client: KubeClient) -> dict[str, Any] | None:
    """Return what an embedded cluster tells of its manager now; None for other clusters, and without one."""
    status, _, body = await client.raw("GET", _PATH)
    if status != 200:
        return None
    try:
        manager = load_json(body)
    except JsonError:
        return None  # something in between answers everything
    return manager if isinstance(manager, dict) and "phase" in manager else None
