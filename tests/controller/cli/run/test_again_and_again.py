"""The same job again and again: each run finds nothing of the one before it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
import yaml
from support.commands import run_program
from support.team import Team

pytestmark = pytest.mark.nightly

RUNS = 6


def ran(mine: Team, name: str) -> Path:
    """A file with a line for each time that a job ran."""
    return mine.directory / f"{name}.ran"


def write(mine: Team, name: str) -> str:
    script = f"echo trained; echo >> {ran(mine, name)}"
    (mine.directory / f"{name}.yaml").write_text(yaml.safe_dump(mine.manifest(name, script)))
    return f"{name}.yaml"


async def by_run(mine: Team) -> None:
    """`trainmaster run FILE --delete`: the next run follows upon the deletion at once."""
    file = write(mine, "by-run")
    for _ in range(RUNS):
        done = await mine.cli("run", file, "--delete")
        assert (done.code, done.out) == (0, "trained\n"), done.err


async def by_kubectl(mine: Team) -> None:
    """`kubectl delete` that waits, and `kubectl apply` after it."""
    file = str(mine.directory / write(mine, "by-kubectl"))

    async def kubectl(*words: str) -> None:
        done = await run_program("kubectl", "--kubeconfig", str(mine.kubeconfig), *words)
        assert done.code == 0, done.err

    for _ in range(RUNS):
        await kubectl("apply", "--server-side", "-f", file)
        await kubectl("wait", "--for=condition=Complete", "-f", file, "--timeout=60s")
        await kubectl("delete", "-f", file)


@pytest.mark.timeout(400)
async def test_each_run_of_a_job_runs_it_once(mine: Team) -> None:
    """Both ways at once, with names of their own: most of this is waiting."""
    ways = {"by-run": by_run, **({"by-kubectl": by_kubectl} if shutil.which("kubectl") is not None else {})}
    await asyncio.gather(*(way(mine) for way in ways.values()))
    assert {name: len(ran(mine, name).read_text().splitlines()) for name in ways} == dict.fromkeys(ways, RUNS)
