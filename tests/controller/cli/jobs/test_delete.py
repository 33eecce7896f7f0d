"""`trainmaster delete`."""

from __future__ import annotations

import pytest
from support.running_jobs import job, jobs
from support.team import Team

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.testing.faults import Refuse

pytestmark = pytest.mark.nightly


async def test_several_are_deleted_and_one_that_is_missing_keeps_nobody(both: Team) -> None:
    team = both
    await team.submit("one", "true")
    await team.submit("two", "true")
    older = job("PyTorchJob", "three", {"Worker": (1, ["true"])})
    older["metadata"]["namespace"] = team.name
    await team.client.create(jobs("PyTorchJob"), older)
    done = await team.cli("delete", "one", "nobody", "two", "two", "three")
    assert done.code == 2
    told = done.err.splitlines()
    assert told[0] == "TrainJob research/one deleted"
    assert told[1].startswith("trainmaster: no job 'nobody' in namespace research")
    assert told[-2:] == ["TrainJob research/two deleted", "PyTorchJob research/three deleted"]
    for name in ("one", "two"):
        with pytest.raises(NotFound):
            await team.client.get(TRAINJOBS, team.name, name)


async def test_what_keeps_a_job_is_told(quiet: tuple[Team, Cluster]) -> None:
    team, _ = quiet
    kept = team.manifest("kept", "true")
    kept["metadata"]["finalizers"] = ["example.com/queue"]
    await team.client.create(TRAINJOBS, kept)
    done = await team.cli("delete", "kept")
    assert done.code == 0
    assert "deleted; it stays until who wrote its finalizers is done: example.com/queue" in done.err
    await team.client.patch(TRAINJOBS, team.name, "kept", {"metadata": {"finalizers": None}})


async def test_a_missing_right_is_told(quiet: tuple[Team, Cluster]) -> None:
    team, cluster = quiet
    await team.submit("mine", "true")
    refusal = Refuse(403, message='User "eve" cannot delete resource "trainjobs"')
    with cluster.faults.add(refusal, verb="delete", resource="trainjobs"):
        done = await team.cli("delete", "mine")
    assert done.code == 1
    assert 'trainmaster: 403 Forbidden: User "eve" cannot delete resource "trainjobs"' in done.err
    assert len(done.err.splitlines()) == 1
