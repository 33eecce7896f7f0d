"""The health of the manager that the cluster runs: whether it works, and if not, why.

- One supervisor writes it, everybody else reads it: who waits for the cluster, its HTTP server, the command line.
- It travels as JSON under `PATH`, so that it can be read wherever the kubeconfig of the cluster is.
- `crashing` is what ended twice without having worked for long; a single end may be an accident, and is mended before
  anybody notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from trainmaster.runtime.jsontree import JsonObject

PATH: Final = "/trainmaster.dev/manager"

STARTING: Final = "starting"
READY: Final = "ready"
CRASHING: Final = "crashing"

READY_TIMEOUT: Final = 60.0
"""Seconds that the manager gets to become ready; on an idle machine it takes two."""

_CRASHES: Final = 2
_LONGEST_ERROR: Final = 2000

RUNTIMES_PATH: Final = "/trainmaster.dev/runtimes"


@dataclass(frozen=True, slots=True)
class ManagerStatus:
    """The status of the manager at a moment."""

    phase: str
    log: str
    message: str = ""
    """Why it is not ready: its last error, or what it waits for."""

    exit_code: int | None = None
    """With which it ended last."""

    ends: int = 0
    """How often it has ended since it last worked for a while."""

    metrics: str = ""
    """The URL of its metrics; empty if they are off."""

    def to_json(self) -> JsonObject:
        """Return it as it is served."""
        return {
            "phase": self.phase,
            "log": self.log,
            "message": self.message,
            "exitCode": self.exit_code,
            "ends": self.ends,
            "metrics": self.metrics,
        }

    @classmethod
    def from_json(cls, tree: Any) -> Self:
        """Read what was served, by an earlier version perhaps; raises `KeyError` or `TypeError`."""
        metrics = tree.get("metrics", "") if isinstance(tree, dict) else ""
        return cls(tree["phase"], tree["log"], tree["message"], tree["exitCode"], tree["ends"], metrics)

    @property
    def summary(self) -> str:
        """The phase and what goes with it, in one line."""
        if self.phase == CRASHING:
            return f"{self.phase} (it ended {self.ends} times, the last time {describe_exit(self.exit_code)})"
        if self.phase == STARTING and self.exit_code is not None:
            return f"{self.phase} again (it ended {describe_exit(self.exit_code)})"
        return self.phase


def describe_exit(exit_code: int | None) -> str:
    """Say how a process ended."""
    if exit_code is None or exit_code >= 0:
        return f"with exit code {exit_code}"
    try:
        return f"by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"by signal {-exit_code}"


class ManagerHealth:
    """The status of the manager as it changes."""

    def __init__(self, log: str) -> None:
        self._status = ManagerStatus(STARTING, log)
        self._changed = asyncio.Event()

    @property
    def status(self) -> ManagerStatus:
        """What it is now."""
        return self._status

    def serves_metrics(self, url: str) -> None:
        """Note where its metrics are."""
        self._set(replace(self._status, metrics=url))

    def waits(self, message: str) -> None:
        """Note what a manager that has not been ready yet waits for; of one that crashes the crash is of interest."""
        if self._status.phase == STARTING:
            self._set(replace(self._status, message=message))

    def ready(self) -> None:
        """Note that it works."""
        self._set(replace(self._status, phase=READY, message=""))

    def ended(self, exit_code: int, message: str, *, worked: bool) -> None:
        """Note that it ended although nobody asked it to; `worked` forgives what was before."""
        ends = 1 if worked else self._status.ends + 1
        phase = CRASHING if ends >= _CRASHES else STARTING
        message = message[:_LONGEST_ERROR]
        self._set(replace(self._status, phase=phase, message=message, exit_code=exit_code, ends=ends))

    async def settled(self) -> ManagerStatus:
        """Wait until it is ready or known not to become so, for a minute at most; returns its status then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_TIMEOUT):
                await self.until(lambda status: status.phase != STARTING)
        return self.status

    async def until(self, holds: Callable[[ManagerStatus], bool]) -> ManagerStatus:
        """Wait until a condition holds; returns the status of that moment."""
        while not holds(status := self._status):
            await self._changed.wait()
        return status

    def _set(self, status: ManagerStatus) -> None:
        if status != self._status:
            self._status = status
            # Whoever waits is woken, and waits for the next change with the next event.
            self._changed.set()
            self._changed = asyncio.Event()
