"""The server's end of the supervisor: starts the child, sends it commands and delivers its reports.

- Each start is answered by `Started` and then `Exited`, or by one of `Unstartable` and `Exited`, exactly once.
- When the supervisor dies, everything that it ran is dead too and is reported as killed. A new one is started, which
  gets the starts that were not answered.
- Closing, cancelling and dying all end every process.
- What is executed in a container ends with a result, also when the supervisor dies or nobody waits any longer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import orjson

from trainmaster.devcluster.kubelet.container_config import LOG_LIMIT, ContainerConfig
from trainmaster.devcluster.kubelet.runtime import supervisor
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)

_RESTART_DELAY = 0.5


@dataclass(frozen=True, slots=True)
class Started:
    """The process runs."""

    identity: str
    at: datetime
    pid: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended; `lost` if nobody knows how, because the supervisor ended with it."""

    identity: str
    at: datetime
    code: int
    signal: int
    lost: bool = False
    oom_killed: bool = False
    """Whether it was killed because it used more memory than it may."""


@dataclass(frozen=True, slots=True)
class Unstartable:
    """There is no such program, or it may not be run."""

    identity: str
    at: datetime
    error: str


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a program that was run in a container ended, and the beginning of its output; the code is None if it could
    not be started or was lost."""

    code: int | None
    output: str


Report: TypeAlias = Started | Exited | Unstartable


class SupervisorClient:
    """Runs container processes. Commands may be given at any time, also before `run`."""

    def __init__(self, *, on_report: Callable[[Report], None], clock: Callable[[], datetime]) -> None:
        self._on_report = on_report
        self._clock = clock
        self._input: asyncio.StreamWriter | None = None
        self._active: set[str] = set()
        self._unanswered: dict[str, list[bytes]] = {}
        """Commands for container attempts that no report has come for: sent again if the supervisor dies."""
        self._executions: dict[str, tuple[asyncio.Future[ExecResult], Callable[[], None]]] = {}
        self._numbers = itertools.count()
        self.pid: int | None = None

    def is_active(self, identity: str) -> bool:
        """Say whether a container attempt has not been reported as ended yet."""
        return identity in self._active

    def start(self, config: ContainerConfig) -> None:
        """Start the first process of a container."""
        self._active.add(config.identity)
        self._unanswered[config.identity] = []
        self._send(
            {
                "op": "start",
                "id": config.identity,
                "argv": config.argv,
                "env": config.environment,
                "cwd": str(config.directory),
                "log": str(config.log),
                "log_limit": LOG_LIMIT,
                "memory_limit": config.memory_limit,
                "sandbox": config.sandbox,
                "address": config.address,
            }
        )

    async def execute(
        self,
        config: ContainerConfig,
        argv: list[str],
        *,
        pid: int,
        streams: list[str] | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> ExecResult:
        """Run a program in a container whose first process is `pid`; cancelled, it is killed.

        Args:
            config: The container.
            argv: The program and its arguments.
            pid: The first process of the container.
            streams: The paths of its standard input, output and error; without them, the beginning of its output is
                in the result.
            on_started: Called when it has opened these.
        """
        identity = f"{config.identity}/{next(self._numbers)}"
        done = asyncio.Future[ExecResult]()
        self._executions[identity] = done, on_started
        self._send(
            {
                "op": "execute",
                "id": identity,
                "target": config.identity,
                "pid": pid,
                "argv": argv,
                "env": config.environment,
                "cwd": str(config.directory),
                "sandbox": config.sandbox,
                "address": config.address,
                "streams": streams,
            }
        )
        try:
            return await done
        except asyncio.CancelledError:
            self.kill(identity)
            raise
        finally:
            del self._executions[identity]

    def terminate(self, identity: str) -> None:
        """Send SIGTERM to a process and its group."""
        self._send({"op": "terminate", "id": identity})

    def kill(self, identity: str) -> None:
        """Kill a container with all its processes."""
        self._send({"op": "kill", "id": identity})

    async def run(self) -> None:
        """Keep a supervisor running until cancelled."""
        while True:
            await self._serve()
            _log.error("the supervisor of the container processes ended unexpectedly; starting a new one")
            self._lose_all()
            await asyncio.sleep(_RESTART_DELAY)

    async def _serve(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *supervisor.command_line(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C on the server's terminal is the server's business
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the supervisor was started without pipes")
        self.pid = process.pid
        self._input = process.stdin
        for lines in self._unanswered.values():
            process.stdin.writelines(lines)
        try:
            async for line in process.stdout:
                self._deliver(orjson.loads(line))
        finally:
            self._input = None
            self.pid = None
            process.stdin.close()
            await asyncio.shield(process.wait())

    def _send(self, command: JsonObject) -> None:
        line = _encode(command)
        if (unanswered := self._unanswered.get(command["id"])) is not None:
            unanswered.append(line)
        if self._input is not None:
            self._input.write(line)
        elif (execution := self._executions.get(command["id"])) and not execution[0].done():
            execution[0].set_result(ExecResult(None, "the supervisor of the container processes does not run"))

    def _deliver(self, message: JsonObject) -> None:
        identity, at = message["id"], datetime.fromtimestamp(message["at"], UTC)
        if execution := self._executions.get(identity):
            done, on_started = execution
            if message["event"] == "started":
                on_started()
            elif not done.done():
                done.set_result(ExecResult(message.get("code"), message.get("output") or message.get("error") or ""))
            return
        if identity not in self._active:
            return  # what was executed, and nobody waits for any longer
        self._unanswered.pop(identity, None)
        report: Report
        if message["event"] == "started":
            report = Started(identity, at, message["pid"])
        else:
            self._active.discard(identity)
            if message["event"] == "exited":
                report = Exited(identity, at, message["code"], message["signal"], oom_killed="oom_killed" in message)
            else:
                report = Unstartable(identity, at, message["error"])
        self._on_report(report)

    def _lose_all(self) -> None:
        for done, _ in self._executions.values():
            if not done.done():
                done.set_result(ExecResult(None, "the supervisor of the container processes ended"))
        lost = sorted(self._active - self._unanswered.keys())
        self._active.difference_update(lost)
        for identity in lost:
            self._on_report(Exited(identity, self._clock(), 137, 9, lost=True))


def _encode(command: JsonObject) -> bytes:
    try:
        return orjson.dumps(command, option=orjson.OPT_APPEND_NEWLINE)
    except (
        TypeError
    ):  # bytes of a Secret that are no UTF-8, as surrogate escapes: only the standard library writes those
        return json.dumps(command).encode() + b"\n"
