"""kubectl as users type it, against the cluster of a kubeconfig."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from support.commands import TIMEOUT

from trainmaster.runtime.jsontree import JsonObject


class Kubectl:
    """Runs kubectl with a home and a cache of its own in a directory."""

    def __init__(self, kubeconfig: Path, directory: Path, *, program: str = "kubectl") -> None:
        self._command = (program, "--kubeconfig", str(kubeconfig), "--cache-dir", str(directory / "cache"))
        self._environment = {"HOME": str(directory), "PATH": os.environ["PATH"]}

    async def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Run a command to its end and return what it printed, errors included; it must end with a code."""
        process = await self._start(*arguments)
        async with asyncio.timeout(TIMEOUT):
            printed, _ = await process.communicate(stdin.encode())
        assert process.returncode == code, f"kubectl {' '.join(arguments)}: {printed.decode()}"
        return printed.decode()

    async def apply(self, objects: Iterable[JsonObject]) -> list[str]:
        """Apply objects on the server, strictly and without a warning; return a line for each."""
        command = ("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-")
        lines = (await self(*command, stdin="\n".join(map(json.dumps, objects)))).splitlines()
        assert all(line.endswith(" serverside-applied") for line in lines), lines
        return lines

    async def get(self, kind: str, name: str, *options: str) -> JsonObject:
        """Return an object."""
        found: JsonObject = json.loads(await self("get", kind, name, "-o", "json", *options))
        return found

    async def rows(self, *arguments: str) -> list[list[str]]:
        """Run a `get` and return the cells of its lines, without the header."""
        printed = await self("get", *arguments, "--no-headers")
        return [line.split() for line in printed.splitlines()]

    def watching(self, *arguments: str) -> AbstractAsyncContextManager["Watching"]:
        """Follow `get --watch` while the block runs."""
        return self.following("get", *arguments, "--watch", "--no-headers")

    @asynccontextmanager
    async def following(self, *arguments: str) -> AsyncIterator["Watching"]:
        """Follow a command while the block runs."""
        process = await self._start(*arguments)
        watching = Watching(process)
        try:
            yield watching
        finally:
            watching.stop()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )


class Watching:
    """What a command has printed, line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._came = asyncio.Event()
        self._task = asyncio.create_task(self._read())
        self.rows: list[list[str]] = []

    async def until(self, *cells: str) -> list[list[str]]:
        """Wait for a line that begins with some cells; return all lines so far."""
        async with asyncio.timeout(TIMEOUT):
            while not any(row[: len(cells)] == list(cells) for row in self.rows):
                assert not self._task.done(), self.rows
                self._came.clear()
                await self._came.wait()
        return list(self.rows)

    async def until_shown(self, wanted: Callable[[dict[str, list[str]]], bool]) -> None:
        """Wait until the objects that there are, by name what is shown of each, are as wanted.

        The watch was started with `--output-watch-events`. Asking again and again would start a program each time.
        """
        try:
            async with asyncio.timeout(TIMEOUT):
                while not wanted(self._shown()):
                    assert not self._task.done(), self.rows
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"not as wanted within {TIMEOUT:g} s: {self._shown()}") from None

    def _shown(self) -> dict[str, list[str]]:
        shown: dict[str, list[str]] = {}
        for event, name, *cells in self.rows:
            if event == "DELETED":
                shown.pop(name, None)
            else:
                shown[name] = cells
        return shown

    async def ended(self) -> int:
        """Wait until the command has ended; returns its exit code."""
        async with asyncio.timeout(TIMEOUT):
            return await self._process.wait()

    def stop(self) -> None:
        """Read no further."""
        self._task.cancel()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.rows.append(line.decode().split())
            self._came.set()
        self._came.set()
