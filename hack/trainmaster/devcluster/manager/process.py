"""The Trainmaster controller as a child process, started again when it dies.

- It never outlives the cluster: it runs under `parent_death`, so that even a SIGKILL of the cluster ends it.
- A manager that dies is started again after a pause that doubles up to half a minute; one that ran for a minute has its
  past forgiven.
- Its process is there before the cluster is, and imports its program meanwhile, which takes it as long; it runs when it
  is let.
- It is a process of its own, as in a real cluster: the embedded cluster does not import the controller.
- Whether it works is known at any time (`health`). It is ready as soon as it says so itself at its readiness endpoint,
  and serves its webhooks, which are registered before it counts as ready.
- Its configuration follows the user's file: the one that it runs with is merged anew when that changes. What it takes
  over while it runs is its own business, and what needs a restart stands in its log.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import re
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import structlog
import yaml

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.manager.configuration import ManagerConfiguration, ManagerPorts, merge_configuration
from trainmaster.devcluster.manager.health import ManagerHealth
from trainmaster.devcluster.manager.parent_death import HOLD
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks

_TIMEOUT: Final = 5.0
_LONGEST_ANSWER: Final = 500

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0

_READ_AT_MOST: Final = 64 * 1024
_EVENT: Final = re.compile(r"^\S+ \[(?:error|critical)\s*\] (?P<event>.*?)\s+\[(?P<logger>[\w.]+)\](?P<rest>.*)$")
_NO_ERROR_LEVEL: Final = re.compile(r"^\S+ \[(?:debug|info|warning)\s*\]")
_ERROR: Final = re.compile(r"""\berror=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)""")
_NO_ERROR: Final = "it said nothing; see its log"


class ReadinessProbe:
    """Probes one run of a manager; an async context manager."""

    def __init__(self, configuration: ManagerConfiguration | None, webhooks: ManagerWebhooks) -> None:
        self._configuration = configuration
        self._webhooks = webhooks
        # The environment may name a proxy; the manager is on this machine.
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT), trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def missing(self) -> str | None:
        """Say what is missing; None if it is ready."""
        configuration = self._configuration
        if configuration is None or configuration.readiness is None:
            return "its configuration cannot be read"
        missing = await self._get(configuration.readiness)
        # At a port that the user chose, the manager of somebody else may answer; this certificate only ours has.
        if missing is None and configuration.registers_webhooks and not await self._webhooks.are_served():
            return "its webhooks are not served yet"
        return missing

    async def _get(self, url: str) -> str | None:
        try:
            async with self._session.get(url) as answer:
                if answer.status == 200:
                    return None
                return _failures((await answer.text(errors="replace"))[:_LONGEST_ANSWER])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return "it does not answer yet"


def _failures(text: str) -> str:
    """Return what a readiness probe complains of: its checks that have failed, without those that have not."""
    failed = [line.removeprefix("[-]") for line in text.splitlines() if line.startswith("[-]")]
    return "; ".join(failed) or text.strip()


_log = structlog.get_logger(__name__)

_FORGIVEN_AFTER = 60.0
_STOP_TIMEOUT = 10.0
_LOOK_EVERY = 0.05
"""Seconds between two looks at another process, which has no way to call us."""
_LOOK_AT_CONFIGURATION_EVERY = 1.0
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
        history: Path,
        webhooks: ManagerWebhooks,
        health: ManagerHealth,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._log_path = log
        self._given = configuration
        self._merged_configuration = merged_configuration
        self._history = history
        self._ports = ManagerPorts.choose(before=merged_configuration)
        self._merged: ManagerConfiguration | None = None
        self._webhooks = webhooks
        self._health = health
        self._registered = False

    async def run(self, served: asyncio.Future[Api]) -> None:
        """Run until cancelled; then let the manager end in its own way, within a limited time.

        Args:
            served: Has the API when everything is there that the manager expects of a cluster.
        """
        seen = _content_of(self._given)
        self._merge()
        following = asyncio.create_task(self._follow_configuration(seen), name="configuration of the manager")
        try:
            await self._keep_running(served)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def _merge(self) -> None:
        """Write the file that the manager runs with; of what cannot be merged it is given the user's own, and objects.

        Raises:
            OSError: The file cannot be written.
        """
        self._merged = merge_configuration(self._given, self._webhooks, self._ports, history=self._history)
        if self._merged is not None:
            draft = self._merged_configuration.with_name(f"{self._merged_configuration.name}.new")
            draft.write_text(yaml.safe_dump(self._merged.content), encoding="utf-8")
            draft.replace(self._merged_configuration)
            self._health.serves_metrics(self._merged.metrics)

    async def _follow_configuration(self, seen: bytes | None) -> None:
        """Merge the user's file again whenever it has changed from what was seen of it."""
        while self._given is not None:
            await asyncio.sleep(_LOOK_AT_CONFIGURATION_EVERY)
            content = _content_of(self._given)
            if content is None or content == seen:
                continue  # that is how an editor replaces it
            try:
                self._merge()
            except OSError as error:  # a full disk passes
                _log.warning("the configuration of the manager cannot be written; trying again", error=str(error))
                continue
            seen = content
            if self._merged is None:
                _log.warning("the configuration of the manager cannot be read any more", file=str(self._given))
            else:
                _log.info("the configuration of the manager has changed", file=str(self._given))

    async def _keep_running(self, served: asyncio.Future[Api]) -> None:
        pause = _FIRST_PAUSE
        while True:
            started = time.monotonic()
            begin = self._log_path.stat().st_size if self._log_path.exists() else 0
            try:
                code = await self._run_once(served, self._merged)
            except OSError as error:  # a full disk, or no more processes: nothing that the cluster has to end for
                self._health.ended(os.EX_OSERR, f"it cannot be started: {error}", worked=False)
                _log.exception("the manager cannot be started; trying again", pause=pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            worked = time.monotonic() - started > _FORGIVEN_AFTER
            if worked:
                pause = _FIRST_PAUSE
            self._health.ended(code, last_error(self._log_path, begin), worked=worked)
            _log.error("the manager ended; starting it again", exit_code=code, pause=pause, details=str(self._log_path))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _run_once(self, served: asyncio.Future[Api], configuration: ManagerConfiguration | None) -> int:
        _rotate(self._log_path)
        with self._log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command(self._given if configuration is None else self._merged_configuration),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C on our terminal is for us; we then stop the manager in order.
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        readiness = asyncio.create_task(self._let_run(process, served, configuration), name="readiness of the manager")
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

    async def _let_run(
        self,
        process: asyncio.subprocess.Process,
        served: asyncio.Future[Api],
        configuration: ManagerConfiguration | None,
    ) -> None:
        if not served.done():
            self._health.waits("the cluster is starting")
        api = await asyncio.shield(served)
        if process.stdin is not None:
            process.stdin.write(b"\n")
        _log.info("manager started", pid=process.pid)
        await self._await_ready(api, configuration)

    async def _await_ready(self, api: Api, configuration: ManagerConfiguration | None) -> None:
        async with ReadinessProbe(configuration, self._webhooks) as probe:
            while (missing := await probe.missing()) is not None:
                self._health.waits(missing)
                await asyncio.sleep(_LOOK_EVERY)
        if configuration is not None and configuration.registers_webhooks and not self._registered:
            # Once: they outlive a manager that starts again, and may have been taken away on purpose since.
            while not self._registered:
                try:
                    await self._webhooks.register(api, jobs=configuration.served_jobs)
                    self._registered = True
                except StatusError as error:
                    if error.code < 500:
                        raise
                    self._health.waits(str(error))
                    await asyncio.sleep(_FIRST_PAUSE)
        self._health.ready()

    def _command(self, configuration: Path | None) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "trainmaster.devcluster.manager.parent_death"),
            *(HOLD, "trainmaster.controller.cli.manager"),
            *("trainmaster.controller.cli", "manager", "--kubeconfig", str(self._kubeconfig)),
            *("--config", str(configuration), "--zap-encoder", "console"),
        ]


def _content_of(path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError:
        return None


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


def last_error(log: Path, begin: int) -> str:
    """Return the last error in a log, of what was written after its first `begin` bytes.

    That is the last event of level error, since its traceback says less to users; else the last line that is no event:
    an interpreter that fails before there are logs ends with what is wrong.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            # A log that is shorter than before was replaced by a new one.
            file.seek(max(begin if begin <= size else 0, size - _READ_AT_MOST))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return _NO_ERROR
    lines = [line for line in text.splitlines() if line.strip() and not _NO_ERROR_LEVEL.match(line)]
    for line in reversed(lines):
        if event := _EVENT.match(line):
            return _sentence(event)
    return lines[-1].strip() if lines else _NO_ERROR


def _sentence(event: re.Match[str]) -> str:
    error = _ERROR.search(event["rest"])
    return f"{event['event']}: {_unquoted(error[1])}" if error else event["event"]


def _unquoted(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    # An error may have several lines, one for each thing that is wrong.
    return "; ".join(filter(None, map(str.strip, value.splitlines()))) if isinstance(value, str) else text
