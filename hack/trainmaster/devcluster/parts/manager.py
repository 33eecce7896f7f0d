"""The Trainmaster controller as a child process, started again when it dies.

- It never outlives the cluster: it hangs on a `lifeline`, so that even a SIGKILL of the cluster ends it.
- A manager that dies is started again after a pause that doubles up to half a minute; one that ran for a minute has its
  past forgiven.
- It is a process of its own, as in a real cluster: the embedded cluster does not import the controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_FORGIVEN_AFTER = 60.0
_STOP_TIMEOUT = 10.0
_LOG_LIMIT = 10 * 2**20

# Several clusters on one machine would fight for the usual ports of metrics and probes; nobody needs them here.
_CONFIGURATION = """\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
metrics:
  bindAddress: "0"
health:
  healthProbeBindAddress: "0"
"""


class Manager:
    """Keeps a manager running."""

    def __init__(self, *, kubeconfig: Path, log: Path, configuration: Path | None, default_configuration: Path) -> None:
        self._kubeconfig = kubeconfig
        self._log_path = log
        self._configuration = configuration
        self._default_configuration = default_configuration

    async def run(self) -> None:
        """Run until cancelled; then let the manager end in its own way, within a limited time."""
        if self._configuration is None:
            self._default_configuration.write_text(_CONFIGURATION, encoding="utf-8")
        pause = _FIRST_PAUSE
        while True:
            started = time.monotonic()
            code = await self._run_once()
            if time.monotonic() - started > _FORGIVEN_AFTER:
                pause = _FIRST_PAUSE
            _log.error("the manager ended; starting it again", exit_code=code, pause=pause, details=str(self._log_path))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _run_once(self) -> int:
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
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)

    def _command(self) -> list[str]:
        configuration = self._configuration or self._default_configuration
        return [
            *(sys.executable, "-P", "-m", "trainmaster.devcluster.lifeline"),
            *("trainmaster.controller.cli", "manager", "--kubeconfig", str(self._kubeconfig)),
            *("--config", str(configuration), "--zap-encoder", "console"),
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
