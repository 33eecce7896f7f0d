"""Running `trainmaster` as users do: as a program of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient

TIMEOUT = 60.0
"""Generous, since it only ends tests that hang anyway."""


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Running:
    """A command that runs, and what it has printed so far."""

    process: asyncio.subprocess.Process
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    async def finish(self) -> Finished:
        """Wait for its end."""
        async with asyncio.timeout(TIMEOUT):
            code = await self.process.wait()
            # The pipes may hold more than was read until now.
            await eventually(lambda: all(stream.at_eof() for stream in self._streams()))
        return Finished(code, "".join(self.out), "".join(self.err))

    def _streams(self) -> list[asyncio.StreamReader]:
        return [stream for stream in (self.process.stdout, self.process.stderr) if stream is not None]


def _environment(extra: dict[str, str]) -> dict[str, str]:
    foreign = {"KUBECONFIG", "TRAINMASTER_HOME"}
    return {key: value for key, value in os.environ.items() if key not in foreign} | extra


@asynccontextmanager
async def started(*arguments: str, cwd: Path, stdin: str = "", **environment: str) -> AsyncIterator[Running]:
    """Start a command; it is killed when the block ends, if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainmaster.controller.cli", *arguments),
        cwd=cwd,
        env=_environment(environment),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(stdin.encode())
    process.stdin.close()
    running = Running(process)
    readers = [
        asyncio.create_task(_collect(process.stdout, running.out)),
        asyncio.create_task(_collect(process.stderr, running.err)),
    ]
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await asyncio.gather(*readers)


async def trainmaster(*arguments: str, cwd: Path, stdin: str = "", **environment: str) -> Finished:
    """Run a command to its end."""
    async with started(*arguments, cwd=cwd, stdin=stdin, **environment) as running:
        return await running.finish()


@asynccontextmanager
async def client_of(kubeconfig: str | Path) -> AsyncIterator[KubeClient]:
    """A client of the cluster of a kubeconfig."""
    access = await load_config(kubeconfig=str(kubeconfig))
    async with KubeClient(access, user_agent="trainmaster-tests") as client:
        yield client


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(TIMEOUT):
        while not holds():
            await asyncio.sleep(0.02)


def processes_of(marker: str) -> set[int]:
    """Return the ids of the processes with a text in their command line, other than this one."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it is gone
            if marker.encode() in command:
                found.add(int(entry.name))
    return found


async def _collect(stream: asyncio.StreamReader, lines: list[str]) -> None:
    async for line in stream:
        lines.append(line.decode())  # noqa: PERF401 - each line has to be seen as soon as it is there
