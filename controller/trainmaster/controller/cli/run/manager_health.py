"""The manager of an embedded cluster: without it nothing becomes of a TrainJob, and nobody says so.

The embedded cluster tells of its manager under a path of its own, to administrators. Of other clusters, and of an
embedded one without a manager, nothing is known; somebody else runs the controller there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import orjson

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError

_PATH: Final = "/trainmaster.dev/manager"
_READY: Final = "ready"
_CRASHING: Final = "crashing"
_LOOK_EVERY: Final = 0.1
_LOOK_AGAIN: Final = 2.0


class ManagerDown(Exception):
    """The manager does not run; the text, of several lines, says why and what to do."""


async def wait_for_manager(client: KubeClient, *, report: Callable[[str], None]) -> None:
    """Wait for a manager that is starting; return at once where nothing is known of one.

    Raises:
        ManagerDown: It crashes again and again.
        KubeError: The server cannot be reached.
    """
    reported = ""
    while (manager := await _manager_status(client)) is not None and manager["phase"] != _READY:
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
        await asyncio.sleep(_LOOK_EVERY)


async def watch_manager(client: KubeClient, *, report: Callable[[str], None]) -> None:
    """Report a manager that crashes while jobs are followed, and of its return; runs until cancelled."""
    crashes = False
    while True:
        await asyncio.sleep(_LOOK_AGAIN)
        try:
            manager = await _manager_status(client)
        except KubeError:
            continue  # whoever follows the jobs notices as well
        if manager is None:
            return
        if manager["phase"] == _CRASHING and not crashes:
            report(
                "the manager of this embedded cluster does not run, and nothing becomes of TrainJobs until it does: "
                f"{manager.get('message')} (see {manager.get('log')})"
            )
        elif manager["phase"] == _READY and crashes:
            report("the manager of this embedded cluster runs again")
        crashes = manager["phase"] == _CRASHING or (crashes and manager["phase"] != _READY)


async def _manager_status(client: KubeClient) -> dict[str, Any] | None:
    status, _, body = await client.raw("GET", _PATH)
    if status != 200:
        return None
    try:
        manager = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None  # something in between answers everything
    return manager if isinstance(manager, dict) and "phase" in manager else None
