"""`trainmaster restart`: the job is another object of the same words, and what belongs to it is still there."""

from typing import Any

import pytest
import yaml
from support.commands import eventually
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.samples import configmap, owner_reference
from support.team import Team

from trainmaster.controller.cli.jobs.change import anew
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject


def owned(name: str, owner: JsonObject, **fields: Any) -> JsonObject:
    """A ConfigMap of a job."""
    metadata = {"namespace": owner["metadata"]["namespace"], "ownerReferences": [owner_reference(owner, **fields)]}
    return configmap(name, {"train.py": "print(1)"}, **metadata)


async def owners(team: Team, name: str) -> list[str]:
    found = await team.client.get(CONFIGMAPS, team.name, name)
    return [each["uid"] for each in found["metadata"].get("ownerReferences") or ()]


@pytest.mark.nightly
async def test_the_new_job_says_what_the_old_one_said_and_a_copy_is_made_beside_it(team: Team) -> None:
    manifest = team.manifest("digits", "echo 1", nodes=2)
    manifest["metadata"] |= {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    old = await team.client.create(TRAINJOBS, manifest)
    await team.client.create(CONFIGMAPS, owned("digits-script", old))
    await team.client.create(CONFIGMAPS, owned("digits-runtime-snapshot", old, controller=True))
    done = await team.cli("restart", "digits", code=0)
    assert done.err == (f"TrainJob research/digits started anew; to follow it: {team.advised('attach', 'digits')}\n")
    new = await team.client.get(TRAINJOBS, team.name, "digits")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["spec"] == old["spec"]
    assert (new["metadata"]["labels"], new["metadata"]["annotations"]) == ({"team": "a"}, {"note": "b"})
    assert await owners(team, "digits-script") == [new["metadata"]["uid"]]
    assert await owners(team, "digits-runtime-snapshot") == [old["metadata"]["uid"]]  # the garbage collector's
    # A copy is made beside it.
    await team.client.patch(TRAINJOBS, team.name, "digits", {"spec": {"suspend": True}})
    done = await team.cli("restart", "digits", "--name", "digits-2", code=0)
    assert "created, a copy of digits; it is suspended, as it was: trainmaster resume digits-2" in done.err
    copy = await team.client.get(TRAINJOBS, team.name, "digits-2")
    assert (await team.client.get(TRAINJOBS, team.name, "digits"))["metadata"]["uid"] == new["metadata"]["uid"]
    assert await owners(team, "digits-script") == [new["metadata"]["uid"], copy["metadata"]["uid"]]
    done = await team.cli("restart", "digits", "--name", "digits-2", code=2)
    assert "TrainJob research/digits-2 exists already; take another name, or delete that one" in done.err


@pytest.mark.nightly
async def test_nothing_is_lost_of_a_job_that_is_refused_or_stays(quiet: tuple[Team, FaultyCluster]) -> None:
    # Nothing is deleted for a job that would be refused.
    team, cluster = quiet
    old = await team.submit("digits", "echo 1")
    with cluster.faults.add(Refuse(422, message="no such runtime"), verb="create", resource="trainjobs"):
        done = await team.cli("restart", "digits")
    assert (done.code, done.out) == (2, "")
    assert done.err == "trainmaster: TrainJob research/digits: no such runtime\n"
    assert (await team.client.get(TRAINJOBS, team.name, "digits"))["metadata"]["uid"] == old["metadata"]["uid"]
    # A job that may not be deleted keeps what belongs to it.
    await team.client.create(CONFIGMAPS, owned("digits-script", old))
    with cluster.faults.add(Refuse(403, message="you may not"), verb="delete", resource="trainjobs"):
        done = await team.cli("restart", "digits")
    assert done.code == 1
    assert await owners(team, "digits-script") == [old["metadata"]["uid"]]
    # A job that is refused after its deletion is not lost. The dry run is the first creation, the real one the
    # second.
    with cluster.faults.add(Refuse(422, message="the quota is spent"), verb="create", resource="trainjobs", nth=2):
        done = await team.cli("restart", "digits")
    assert done.code == 2
    assert "could not be created anew; this is its manifest, for `trainmaster run`:" in done.err
    assert "TrainJob research/digits: the quota is spent" in done.err
    assert yaml.safe_load(done.out)["spec"] == old["spec"]


@pytest.mark.nightly
async def test_finalizers_are_waited_for(team: Team) -> None:
    manifest = team.manifest("digits", "echo 1")
    manifest["metadata"]["finalizers"] = ["example.com/queue"]
    old = await team.client.create(TRAINJOBS, manifest)
    async with team.started("restart", "digits") as running:
        await eventually(lambda: "its finalizers are of: example.com/queue" in "".join(running.err))
        await team.client.patch(TRAINJOBS, team.name, "digits", {"metadata": {"finalizers": None}})
        await running.finish(code=0)
    new = await team.client.get(TRAINJOBS, team.name, "digits")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]


def test_what_others_wrote_is_left_out() -> None:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    kept = {"name": "a", "namespace": "b", "ownerReferences": [{"uid": "2"}]}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    metadata = {**kept, "uid": "1", "generation": 2, "annotations": applied, "finalizers": ["x/y"]}
    spec = {"suspend": False, "runtimePatches": [{"manager": "kueue.x-k8s.io/manager"}, {"manager": "me/me"}]}
    job = {**head, "metadata": metadata, "spec": spec, "status": {"conditions": []}}
    assert anew(job) == {**head, "metadata": kept, "spec": {"suspend": False, "runtimePatches": [{"manager": "me/me"}]}}
    assert anew(job, name="c")["metadata"] == {"name": "c", "namespace": "b"}


@pytest.mark.nightly
async def test_a_job_runs_again_on_a_whole_cluster(mine: Team) -> None:
    """Its script is in a ConfigMap that the garbage collector would delete with the old job."""
    old = await mine.submit("again", "exit 0")
    await mine.client.create(CONFIGMAPS, owned("again-script", old))
    await mine.condition("again", "Complete")
    assert (await mine.cli("restart", "again")).code == 0
    await mine.condition("again", "Complete")
    new = await mine.client.get(TRAINJOBS, mine.name, "again")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert await owners(mine, "again-script") == [new["metadata"]["uid"]]
