"""`trainmaster suspend` and `trainmaster resume`."""

from __future__ import annotations

import pytest
from support.running_jobs import jobs
from support.team import Team

from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.cluster import Cluster

pytestmark = pytest.mark.nightly


async def test_jobs_of_both_apis_are_suspended_and_resumed(both: tuple[Team, Cluster]) -> None:
    team, _ = both
    await team.submit("digits", "true")
    await team.submit_v1("PyTorchJob", "older", {"Worker": (1, ["true"])})

    async def suspended() -> list[bool | None]:
        trainjob = await team.client.get(TRAINJOBS, team.name, "digits")
        v1 = await team.client.get(jobs("PyTorchJob"), team.name, "older")
        return [trainjob["spec"].get("suspend"), (v1["spec"].get("runPolicy") or {}).get("suspend")]

    done = await team.cli("suspend", "digits", "older")
    assert (done.code, await suspended()) == (0, [True, True])
    assert done.err.splitlines() == [
        "TrainJob research/digits suspended: its pods end",
        "PyTorchJob research/older suspended: its pods end",
    ]
    done = await team.cli("suspend", "digits")
    assert (done.code, done.err) == (0, "TrainJob research/digits is suspended already\n")
    done = await team.cli("resume", "digits", "older")
    assert (done.code, await suspended()) == (0, [False, False])
    assert done.err.splitlines()[0] == "TrainJob research/digits resumed: its pods start anew"
    done = await team.cli("resume", "digits")
    assert (done.code, done.err) == (0, "TrainJob research/digits is not suspended\n")
    await team.tell("digits", "Complete")
    done = await team.cli("suspend", "digits", code=2)
    assert done.err == (
        "trainmaster: TrainJob research/digits has ended (Complete) and cannot be suspended; "
        "`trainmaster restart digits` runs it again\n"
    )
