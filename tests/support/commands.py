"""Running `trainmaster` as users do: as a program of its own."""

import asyncio
import inspect
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient

TIMEOUT = 90.0
"""Generous, since it only ends tests that hang anyway."""


Ran = Callable[..., Any]
"""Runs a command in this process, to an exit code (0 by default); returns what it printed, as `out` and `err`."""


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
    readers: list[asyncio.Task[None]] = field(default_factory=list)
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    async def finish(self, *, code: int | None = None) -> Finished:
        """Wait for its end, which is to have this exit code if one is given."""
        async with asyncio.timeout(TIMEOUT):
            ended = await self.process.wait()
            # The pipes may hold more than was read until now.
            await asyncio.wait(self.readers)
        finished = Finished(ended, "".join(self.out), "".join(self.err))
        assert code in {None, ended}, finished.err
        return finished


def _environment(extra: dict[str, str]) -> dict[str, str]:
    foreign = {"KUBECONFIG", "TRAINMASTER_HOME"}
    return {key: value for key, value in os.environ.items() if key not in foreign} | extra


@asynccontextmanager
async def started(
    *arguments: str, cwd: Path, stdin: str = "", script: str = "", **environment: str
) -> AsyncIterator[Running]:
    """Start a command, or a script in its place; it is killed when the block ends, if it still runs."""
    program = (script,) if script else ("-m", "trainmaster.controller.cli")
    with tempfile.TemporaryFile() as given:
        given.write(stdin.encode())
        given.seek(0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", *program, *arguments),
            cwd=cwd,
            env=_environment(environment),
            stdin=given,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_heed_signals,
        )
    assert process.stdout is not None
    assert process.stderr is not None
    running = Running(process)
    for stream, lines in ((process.stdout, running.out), (process.stderr, running.err)):
        running.readers.append(asyncio.create_task(_collect(stream, lines)))
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.gather(*running.readers)


def _heed_signals() -> None:
    """Let a command end by what a shell lets it end by; whoever runs the tests in the background ignores some."""
    for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(each, signal.SIG_DFL)


async def trainmaster(*arguments: str, cwd: Path, stdin: str = "", script: str = "", **environment: str) -> Finished:
    """Run a command, or a script in its place, to its end."""
    async with started(*arguments, cwd=cwd, stdin=stdin, script=script, **environment) as running:
        return await running.finish()


async def run_module(name: str, *arguments: str) -> Finished:
    """Run another program, `python -m NAME`, to its end."""
    return await run_program(sys.executable, "-m", name, *arguments)


async def run_program(*command: str) -> Finished:
    """Run any other program, which gets no input, to its end."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def client_of(kubeconfig: str | Path) -> AsyncIterator[KubeClient]:
    """A client of the cluster of a kubeconfig."""
    access = await load_config(kubeconfig=str(kubeconfig))
    async with KubeClient(access, user_agent="trainmaster-tests") as client:
        yield client


async def eventually(ask: Callable[[], Any], *, timeout: float = TIMEOUT) -> Any:
    """Call a function or a coroutine function again and again until its answer is true; returns the answer."""
    pause = 0.001
    async with asyncio.timeout(timeout):
        while True:
            answer = ask()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)


def wait_until(ask: Callable[[], Any]) -> Any:
    """The same where there is no event loop: blocks until the answer of a function is true; returns the answer."""
    deadline = time.monotonic() + TIMEOUT
    while not (answer := ask()):
        assert time.monotonic() < deadline, ask
        time.sleep(0.01)
    return answer


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
