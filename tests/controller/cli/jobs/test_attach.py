"""`trainmaster attach`: to jobs that run, and to those that have ended."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.commands import eventually
from support.team import Team

from trainmaster.controller.resources import TRAINJOBS

pytestmark = pytest.mark.nightly


async def test_who_detaches_comes_back(mine: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await mine.submit("long", f"echo first; while ! [ -e {gate} ]; do sleep 0.05; done; echo second")
    async with mine.started("attach", "long") as running:
        await eventually(lambda: running.out == ["first\n"])
        running.process.send_signal(signal.SIGINT)
        done = await running.finish(code=130)
    assert "Traceback" not in done.err
    assert done.err.endswith(
        f"detached; TrainJob {mine.name}/long goes on\n"
        f"  to follow it again: {mine.advised('attach', 'long')}\n"
        f"  to end it: {mine.advised('delete', 'long')}\n"
    )
    async with mine.started("attach", "long") as running:
        await eventually(lambda: running.out == ["first\n"])
        gate.touch()
        done = await running.finish()
    assert (done.code, done.out) == (0, "first\nsecond\n")
    assert f"TrainJob {mine.name}/long: Complete" in done.err


async def test_ranks_and_the_end_of_their_logs_are_chosen(mine: Team) -> None:
    await mine.submit("two", "for n in 1 2 3; do echo $n of $JOB_COMPLETION_INDEX; done", nodes=2)
    await mine.condition("two", "Complete")
    assert (await mine.cli("attach", "two", "--rank", "1", "--tail", "1")).out == "3 of 1\n"
    everything = (await mine.cli("attach", "two", "--all")).out.splitlines()
    assert len(everything) == 6
    assert [line for line in everything if line.endswith(" of 1")][-1].endswith("3 of 1")


async def test_a_job_that_is_deleted_meanwhile_is_not_waited_for(mine: Team) -> None:
    await mine.submit("removed", "echo up; sleep 1000")
    async with mine.started("attach", "removed") as running:
        await eventually(lambda: bool(running.out))
        await mine.client.delete(TRAINJOBS, mine.name, "removed")
        done = await running.finish(code=1)
    assert f"TrainJob {mine.name}/removed: Deleted" in done.err


async def test_what_cannot_be_followed_is_told(mine: Team) -> None:
    await mine.submit_v1("PyTorchJob", "older", {"Worker": (1, ["true"])})
    done = await mine.cli("attach", "older", code=2)
    assert done.err == (
        f"trainmaster: PyTorchJob {mine.name}/older: only TrainJobs are followed; "
        f"its log: {mine.advised('logs', 'pytorchjob/older')} -f\n"
    )
    assert (await mine.cli("attach", "nothing")).code == 2
