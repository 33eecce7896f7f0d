"""The Trainmaster controller as a child process, started again when it dies.

- It never outlives the cluster: it runs under `parent_death`, so that even a SIGKILL of the cluster ends it.
- A manager that dies is started again after a pause that doubles up to half a minute; one that ran for a minute has its
  past forgiven.
- It is a process of its own, as in a real cluster: the embedded cluster does not import the controller.
- Whether it works is known at any time (`health`): from its readiness endpoint on, and from its webhooks, which are
  registered before it counts as ready; and why it ended, from its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import structlog
import yaml

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.manager.configuration import ManagerConfiguration, merge_configuration
from trainmaster.devcluster.manager.health import ManagerHealth
from trainmaster.devcluster.manager.last_error import last_error
from trainmaster.devcluster.manager.readiness import ReadinessProbe
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_FORGIVEN_AFTER = 60.0
_STOP_TIMEOUT = 10.0
_LOOK_EVERY = 0.05
"""Seconds between two looks at another process, which has no way to call us."""
_LOG_LIMIT = 10 * 2**20


class ManagerProcess:
    """Keeps the process of a manager running."""

    def __init__(
        self,
        *,
        kubeconfig: Path,
        log: Path,
        configuration: Path | None,
        merged_configuration: Path,
        webhooks: ManagerWebhooks,
        health: ManagerHealth,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._log_path = log
        self._configuration = configuration
        self._merged_configuration = merged_configuration
        self._webhooks = webhooks
        self._health = health
        self._registered = False

    async def run(self, api: Api) -> None:
        """Run until cancelled; then let the manager end in its own way, within a limited time."""
        configuration = merge_configuration(self._configuration, self._webhooks)
        if configuration is not None:
            self._merged_configuration.write_text(yaml.safe_dump(configuration.content), encoding="utf-8")
            self._configuration = self._merged_configuration
        pause = _FIRST_PAUSE
        while True:
            started = time.monotonic()
            begin = self._log_path.stat().st_size if self._log_path.exists() else 0
            code = await self._run_once(api, configuration)
            worked = time.monotonic() - started > _FORGIVEN_AFTER
            if worked:
                pause = _FIRST_PAUSE
            self._health.ended(code, last_error(self._log_path, begin), worked=worked)
            _log.error("the manager ended; starting it again", exit_code=code, pause=pause, details=str(self._log_path))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _run_once(self, api: Api, configuration: ManagerConfiguration | None) -> int:
        _rotate(self._log_path)
        with self._log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C on our terminal is for us; we then stop the manager in order.
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        _log.info("manager started", pid=process.pid)
        readiness = asyncio.create_task(self._await_ready(api, configuration), name="readiness of the manager")
        end = asyncio.create_task(process.wait(), name="end of the manager")
        try:
            await asyncio.wait([readiness, end], return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                readiness.result()  # what keeps the webhooks from being registered is our failure, not the manager's
            return await end
        finally:
            readiness.cancel()
            end.cancel()
            await asyncio.gather(readiness, end, return_exceptions=True)
            if process.returncode is None:
                await _stop(process)

    async def _await_ready(self, api: Api, configuration: ManagerConfiguration | None) -> None:
        async with ReadinessProbe(configuration, self._webhooks) as probe:
            while (missing := await probe.missing()) is not None:
                self._health.waits(missing)
                await asyncio.sleep(_LOOK_EVERY)
        if configuration is not None and configuration.registers_webhooks and not self._registered:
            # Once: they outlive a manager that starts again, and may have been taken away on purpose since.
            await self._webhooks.register(api)
            self._registered = True
        self._health.ready()

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "trainmaster.devcluster.manager.parent_death"),
            *("trainmaster.controller.cli", "manager", "--kubeconfig", str(self._kubeconfig)),
            *("--config", str(self._configuration), "--zap-encoder", "console"),
        ]


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _rotate(path: Path) -> None:
    """Start a new file when the old one has grown large; one old file is kept."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_LIMIT:
            path.replace(path.with_name(f"{path.name}.1"))
