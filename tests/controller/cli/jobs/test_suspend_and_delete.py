"""`trainmaster suspend`, `trainmaster resume` and `trainmaster delete`."""

from __future__ import annotations

import pytest
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.running_jobs import jobs
from support.team import Team

from trainmaster.controller.resources import TRAINJOBS

pytestmark = pytest.mark.nightly


async def test_jobs_of_both_apis_are_suspended_and_resumed(both: tuple[Team, FaultyCluster]) -> None:
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


async def test_several_are_deleted_and_one_that_is_missing_keeps_nobody(both: tuple[Team, FaultyCluster]) -> None:
    team, cluster = both
    for name in ("one", "two", "mine"):
        await team.submit(name, "true")
    await team.submit_v1("PyTorchJob", "three", {"Worker": (1, ["true"])})
    done = await team.cli("delete", "one", "nobody", "two", "two", "three", code=2)
    told = done.err.splitlines()
    assert told[0] == "TrainJob research/one deleted"
    assert told[1].startswith("trainmaster: no job 'nobody' in namespace research")
    assert told[-2:] == ["TrainJob research/two deleted", "PyTorchJob research/three deleted"]
    refusal = Refuse(403, message='User "eve" cannot delete resource "trainjobs"')
    with cluster.faults.add(refusal, verb="delete", resource="trainjobs"):
        done = await team.cli("delete", "mine")
    told = ['trainmaster: 403 Forbidden: User "eve" cannot delete resource "trainjobs"']
    assert (done.code, [line.partition(" (")[0] for line in done.err.splitlines()]) == (1, told)
    kept = team.manifest("kept", "true")
    kept["metadata"]["finalizers"] = ["example.com/queue"]
    await team.client.create(TRAINJOBS, kept)
    done = await team.cli("delete", "kept", code=0)
    assert "deleted; it stays until who wrote its finalizers is done: example.com/queue" in done.err
    await team.client.patch(TRAINJOBS, team.name, "kept", {"metadata": {"finalizers": None}})
    assert [each["metadata"]["name"] for each in (await team.client.list(TRAINJOBS))["items"]] == ["mine"]
