"""`trainmaster suspend` and `trainmaster resume`."""

from __future__ import annotations

import pytest
from support.running_jobs import job, jobs
from support.team import Team

from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.cluster import Cluster

pytestmark = pytest.mark.nightly


async def test_jobs_of_both_apis_are_suspended_and_resumed(both: Team) -> None:
    team = both
    await team.submit("digits", "true")
    older = job("PyTorchJob", "older", {"Worker": (1, ["true"])})
    older["metadata"]["namespace"] = team.name
    await team.client.create(jobs("PyTorchJob"), older)

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


async def test_what_has_ended_cannot_be_suspended(quiet: tuple[Team, Cluster]) -> None:
    team, _ = quiet
    await team.submit("digits", "true")
    ended = {
        "type": "Complete",
        "status": "True",
        "reason": "Done",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await team.client.patch(TRAINJOBS, team.name, "digits", {"status": {"conditions": [ended]}}, subresource="status")
    done = await team.cli("suspend", "digits")
    assert done.code == 2
    assert done.err == (
        "trainmaster: TrainJob research/digits has ended (Complete) and cannot be suspended; "
        "`trainmaster restart digits` runs it again\n"
    )
