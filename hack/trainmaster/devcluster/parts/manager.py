"""The Trainmaster controller as a child process, started again when it dies.

- It never outlives the cluster: it hangs on a `lifeline`, so that even a SIGKILL of the cluster ends it.
- A manager that dies is started again after a pause that doubles up to half a minute; one that ran for a minute has its
  past forgiven.
- It is a process of its own, as in a real cluster: the embedded cluster does not import the controller.
- A configuration of the user's is laid over that of the cluster, which knows where its webhooks are.
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

from trainmaster.devcluster.parts.webhooks import ManagerWebhooks
from trainmaster.devcluster.ports import HOST
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_FORGIVEN_AFTER = 60.0
_STOP_TIMEOUT = 10.0
_LOG_LIMIT = 10 * 2**20


class Manager:
    """Keeps a manager running."""

    def __init__(
        self,
        *,
        kubeconfig: Path,
        log: Path,
        configuration: Path | None,
        merged_configuration: Path,
        webhooks: ManagerWebhooks,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._log_path = log
        self._configuration = configuration
        self._merged_configuration = merged_configuration
        self._webhooks = webhooks

    async def run(self) -> None:
        """Run until cancelled; then let the manager end in its own way, within a limited time."""
        configuration = configure(self._configuration, self._webhooks)
        if configuration is not None:
            self._merged_configuration.write_text(yaml.safe_dump(configuration), encoding="utf-8")
            self._configuration = self._merged_configuration
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
        return [
            *(sys.executable, "-P", "-m", "trainmaster.devcluster.lifeline"),
            *("trainmaster.controller.cli", "manager", "--kubeconfig", str(self._kubeconfig)),
            *("--config", str(self._configuration), "--zap-encoder", "console"),
        ]


def configure(path: Path | None, webhooks: ManagerWebhooks) -> JsonObject | None:
    """Lay a user's configuration over what the cluster needs; None if it cannot be read, which the manager will tell.

    Several clusters on one machine would fight for the usual ports, so metrics and probes are off unless the user asks
    for them. Webhooks that the user has served elsewhere, or with other certificates, are not registered.
    """
    configuration: JsonObject = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    served = {"host": HOST, "port": webhooks.port, "certDir": str(webhooks.certificates)}
    if path is None:
        return {**configuration, "webhook": served}
    try:
        asked = load_yaml(path.read_bytes())
    except (OSError, YamlError):
        return None
    if not isinstance(asked, dict) or not isinstance(asked.get("webhook") or {}, dict):
        return None
    return {**configuration, **asked, "webhook": {**served, **(asked.get("webhook") or {})}}


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
