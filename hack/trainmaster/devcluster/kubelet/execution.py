"""A program that is executed in a running container, with its standard streams: named pipes, or a terminal.

The shim opens them by their names, so nothing but names travels to it. When the program has ended, what it printed is
read to its end, and nobody is waited for who has kept the other end.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import tempfile
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from trainmaster.devcluster.apiserver.handlers.pod_exec import STDERR, STDOUT
from trainmaster.devcluster.kubelet.container_config import ContainerConfig
from trainmaster.devcluster.kubelet.supervisor_client import ExecResult, SupervisorClient

_PIECE: Final = 64 * 1024
_PIECES: Final = 16
"""So many pieces wait for their reader; then the program does."""

_END_OF_TRANSMISSION: Final = b"\x04"


class ContainerExecution:
    """The server's side of one program.

    Args:
        stack: Closes what is open when nobody is interested any more.
        stdin: Whether the program may read.
        tty: Whether its streams are a terminal.
    """

    def __init__(self, stack: ExitStack, *, stdin: bool, tty: bool) -> None:
        self._input = self._terminal = -1
        self._outputs: dict[int, int] = {}
        self._theirs: list[int] = []
        """What is kept open until the program has opened it."""

        self._waiting: set[asyncio.Event] = set()
        self._is_open = asyncio.Event()
        self._result: ExecResult | None = None
        self.paths: list[str] = []
        """Standard input, output and error, as the program opens them."""

        if tty:
            self._open_terminal(stack, stdin=stdin)
        else:
            self._open_pipes(stack, stdin=stdin)

    def _open_terminal(self, stack: ExitStack, *, stdin: bool) -> None:
        self._terminal, theirs = os.openpty()
        stack.callback(os.close, self._terminal)
        os.set_blocking(self._terminal, False)
        self._theirs.append(theirs)
        self._outputs[STDOUT] = self._terminal
        self._input = self._terminal if stdin else -1
        self.paths = [os.ttyname(theirs)] * 3

    def _open_pipes(self, stack: ExitStack, *, stdin: bool) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainmaster-exec-")))
        self.paths = [str(directory / name) for name in ("stdin", "stdout", "stderr")]
        for path in self.paths:
            os.mkfifo(path, 0o600)
        for channel, path in zip((STDOUT, STDERR), self.paths[1:], strict=True):
            self._outputs[channel] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            stack.callback(os.close, self._outputs[channel])
        if stdin:
            self._input = os.open(self.paths[0], os.O_RDWR | os.O_NONBLOCK)  # it has no reader yet
            stack.callback(self._close_pipe)
        else:
            self.paths[0] = os.devnull

    def opened(self) -> None:
        """Take note that the program has opened its streams."""
        while self._theirs:
            os.close(self._theirs.pop())
        self._is_open.set()

    def ended(self, result: ExecResult) -> None:
        """Take note that the program has ended, or was never started."""
        self._result = result
        self.opened()
        for waiting in self._waiting:
            waiting.set()

    @property
    def code(self) -> int | None:
        """Its exit code when it has ended; None if it could not be started or nobody knows."""
        return self._result.code if self._result else None

    @property
    def error(self) -> str:
        """Why there is no exit code."""
        return self._result.output if self._result else "it has not ended"

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield what it prints, each piece with its channel, until it has ended."""
        pieces: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(_PIECES)

        async def copy_all() -> None:
            async with asyncio.TaskGroup() as tasks:
                for channel, descriptor in self._outputs.items():
                    tasks.create_task(self._copy(channel, descriptor, pieces))
            while self._result is None:
                await self._until(lambda _: None)
            await pieces.put(None)

        copying = asyncio.create_task(copy_all())
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
        finally:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

    async def write(self, data: bytes) -> None:
        """Write to its standard input, when that has room."""
        await self._is_open.wait()
        loop = asyncio.get_running_loop()
        while data and self._input >= 0 and self._result is None:
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                try:
                    await self._until(lambda ready: loop.add_writer(self._input, ready))
                finally:
                    loop.remove_writer(self._input)
            except OSError:
                return  # the terminal is gone

    async def close_input(self) -> None:
        """End its standard input, behind all that was written; a terminal tells by a character."""
        if self._terminal >= 0:
            await self.write(_END_OF_TRANSMISSION)
        else:
            await self._is_open.wait()
            self._close_pipe()

    def resize(self, width: int, height: int) -> None:
        """Set the size of its terminal, in characters."""
        if self._terminal >= 0:
            with suppress(OSError, struct.error):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _close_pipe(self) -> None:
        if self._input >= 0:
            os.close(self._input)
        self._input = -1

    async def _copy(self, channel: int, descriptor: int, pieces: asyncio.Queue[tuple[int, bytes] | None]) -> None:
        await self._is_open.wait()
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = os.read(descriptor, _PIECE)
            except BlockingIOError:
                if self._result is not None:
                    return
                try:
                    await self._until(lambda ready: loop.add_reader(descriptor, ready))
                finally:
                    loop.remove_reader(descriptor)
            except OSError:
                return  # the terminal is gone
            else:
                if not data:
                    return
                await pieces.put((channel, data))

    async def _until(self, register: Callable[[Callable[[], None]], None]) -> None:
        """Wait for something that calls what it was given, or for the end of the program."""
        waiting = asyncio.Event()
        self._waiting.add(waiting)
        register(waiting.set)
        try:
            await waiting.wait()
        finally:
            self._waiting.discard(waiting)


@asynccontextmanager
async def execute(
    supervisor: SupervisorClient, config: ContainerConfig, argv: list[str], *, pid: int, stdin: bool, tty: bool
) -> AsyncIterator[ContainerExecution]:
    """Run a program in a container, whose first process is `pid`, while the block runs; then it is killed."""
    if tty:
        config = replace(config, environment={"TERM": "xterm", **config.environment})
    with ExitStack() as stack:
        execution = ContainerExecution(stack, stdin=stdin, tty=tty)

        async def run() -> None:
            result = ExecResult(None, "it was not started")
            try:
                result = await supervisor.execute(
                    config, argv, pid=pid, streams=execution.paths, on_started=execution.opened
                )
            finally:
                execution.ended(result)

        running = asyncio.create_task(run())
        try:
            yield execution
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
