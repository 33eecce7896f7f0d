"""The same job again and again: what one run leaves behind does not delay the next one."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from support.team import Team, team

RUNS = 20
LATER_AT_MOST = 2.0
"""Seconds that a run may take more than the first one."""

pytestmark = pytest.mark.slow(seconds=60)


@pytest.fixture
async def mine(cluster_home: Path, tmp_path: Path) -> AsyncIterator[Team]:
    async with team(cluster_home / ".trainmaster/kubeconfig", "again-and-again", tmp_path) as mine:
        yield mine


def write(mine: Team, name: str) -> str:
    (mine.directory / f"{name}.yaml").write_text(yaml.safe_dump(mine.manifest(name, "echo trained")))
    return f"{name}.yaml"


async def durations(run: Callable[[], Awaitable[None]]) -> list[float]:
    found = []
    for _ in range(RUNS):
        begin = time.monotonic()
        await run()
        found.append(time.monotonic() - begin)
    return found


async def with_run(mine: Team) -> list[float]:
    """`trainmaster run FILE --delete`: the next run follows upon the deletion at once."""
    file = write(mine, "by-run")

    async def once() -> None:
        done = await mine.cli("run", file, "--delete")
        assert (done.code, done.out) == (0, "trained\n"), done.err

    return await durations(once)


async def with_kubectl(mine: Team) -> list[float]:
    """`kubectl delete` that waits, and `kubectl apply` after it."""
    file = write(mine, "by-kubectl")

    async def kubectl(*words: str) -> None:
        command = ["kubectl", "--kubeconfig", str(mine.kubeconfig), *words]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=mine.directory, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, printed

    async def once() -> None:
        await kubectl("apply", "--server-side", "-f", file)
        await kubectl("wait", "--for=condition=Complete", "-f", file, "--timeout=60s")
        await kubectl("delete", "-f", file)

    return await durations(once)


@pytest.mark.timeout(400)
async def test_no_run_takes_longer_than_the_first(mine: Team) -> None:
    """Both ways at once, with names of their own: most of this is waiting."""
    loops = [with_run(mine)]
    if shutil.which("kubectl") is not None:
        loops.append(with_kubectl(mine))
    for first, *later in await asyncio.gather(*loops):
        assert max(later) <= first + LATER_AT_MOST, (first, later)
