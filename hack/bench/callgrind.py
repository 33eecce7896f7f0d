"""A manager under valgrind's callgrind, which counts the instructions that it executes in user space.

Until counting begins it runs without instrumentation, so that a start takes seconds and not minutes.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.api import BenchmarkFailed
from bench.checkout import ROOT
from bench.processes import Manager, Program, manager

_UNPACKED: Final = ROOT / ".cache/debian/bin"
_COUNTED: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
_CONTROL_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Counter:
    """Reads how many instructions a manager has executed."""

    manager: Manager
    out: Path
    """What callgrind writes: this name with a number at its end, one more each time."""

    async def begin(self) -> None:
        """Count from now on."""
        await self._control("instrumentation", "on")
        await self._control("zero")

    async def count(self) -> int:
        """Return the instructions since the last time."""
        known = set(self._files())
        await self._control("dump")
        for file in set(self._files()) - known:
            if found := _COUNTED.search(file.read_text(encoding="utf-8")):
                return int(found[1])
        raise BenchmarkFailed(f"callgrind has written no count to {self.out}.*")

    def _files(self) -> list[Path]:
        return [*self.out.parent.glob(f"{self.out.name}.*")]

    async def _control(self, *command: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(program("vgdb"), f"--pid={self.manager.pid}", f"--vgdb-prefix={self.out.parent}/vgdb", *command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_CONTROL_TIMEOUT):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise BenchmarkFailed(f"callgrind did not answer to {command[0]!r}") from None
        if process.returncode:
            raise BenchmarkFailed(f"callgrind refused {command[0]!r}: {output.decode(errors='replace').strip()}")


def program(name: str) -> str:
    """Return where a program of valgrind is: on the PATH, or unpacked by hack/debian_packages.sh.

    Raises:
        BenchmarkFailed: It is not there.
    """
    found = shutil.which(name) or shutil.which(name, path=str(_UNPACKED))
    if found is None:
        raise BenchmarkFailed(f"there is no {name}: run hack/debian_packages.sh valgrind vgdb, or install valgrind")
    return found


@asynccontextmanager
async def counted_manager(kubeconfig: Path, directory: Path, of: Program) -> AsyncIterator[Counter]:
    """Run a manager under callgrind that is ready; nothing is counted yet."""
    out = directory / "callgrind.out"
    options = [
        "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", f"--vgdb-prefix={directory}/vgdb",
        f"--log-file={directory}/callgrind.log",
    ]  # fmt: skip
    counted = Program(
        interpreter=(program("valgrind"), *options, *of.interpreter),
        # The order of sets and of dictionaries of strings is always the same.
        environment={**of.environment, "PYTHONHASHSEED": "0"},
    )
    async with manager(kubeconfig, directory, program=counted) as running:
        yield Counter(running, out)
