"""`trainmaster list`, `suspend`, `resume` and `delete`, on a whole cluster and on an API server that refuses."""

import json
from pathlib import Path

import pytest
from support.commands import trainmaster
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.running_jobs import jobs
from support.team import IN_PLACE, Team
from support.training import until

from trainmaster.controller.resources import TRAINJOBS

pytestmark = pytest.mark.nightly


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def test_jobs_of_both_apis_are_in_one_table(mine: Team, tmp_path: Path) -> None:
    await mine.submit("done", "true", nodes=2)
    await mine.submit("held", "true", suspend=True)
    gate = tmp_path / "gate"
    await mine.submit("busy", f"while ! [ -e {gate} ]; do sleep 0.05; done", nodes=2)
    await mine.submit_v1("PyTorchJob", "older", {"Master": (1, ["true"]), "Worker": (2, ["true"])})
    await mine.condition("done", "Complete")
    await mine.condition("held", "Suspended")

    async def settled() -> list[list[str]]:
        listed = rows((await mine.cli("list")).out)
        is_busy = ["TrainJob", "busy", "Running", "-", "2/2"] in [row[:5] for row in listed]
        return listed if is_busy and "Succeeded" in str(listed) else []

    header, *listed = await until(settled)
    gate.touch()
    assert header == ["KIND", "NAME", "STATE", "CAUSE", "NODES", "RESTARTS", "AGE", "DURATION"]
    assert [row[:6] for row in listed] == [
        ["TrainJob", "busy", "Running", "-", "2/2", "0"],
        ["TrainJob", "done", "Complete", "-", "2", "0"],
        ["TrainJob", "held", "Suspended", "-", "0/1", "0"],
        ["PyTorchJob", "older", "Succeeded", "-", "3", "0"],
    ]
    assert [row[7] == "-" for row in listed] == [False, False, True, False]

    everywhere = rows((await mine.cli("list", "-A")).out)
    assert everywhere[0][0] == "NAMESPACE"
    assert [mine.name, "PyTorchJob", "older"] in [row[:3] for row in everywhere]
    assert (await mine.cli("list", "-o", "name")).out.splitlines() == [
        "trainjob.trainer.kubeflow.org/busy",
        "trainjob.trainer.kubeflow.org/done",
        "trainjob.trainer.kubeflow.org/held",
        "pytorchjob.kubeflow.org/older",
    ]
    printed = json.loads((await mine.cli("list", "-o", "json")).out)
    found = [(each["kind"], each["metadata"]["name"]) for each in printed["items"]]
    assert found[2:] == [("TrainJob", "held"), ("PyTorchJob", "older")]
    assert (await mine.cli("list", "-o", "yaml")).out.count("\nkind: TrainJob\n") == 3


async def test_restarts_are_counted(mine: Team, tmp_path: Path) -> None:
    """A container that fails twice in its pod, and succeeds then."""
    runs = tmp_path / "runs"
    await mine.submit("stubborn", f"echo x >> {runs}; [ $(wc -l < {runs}) = 3 ]", on=IN_PLACE)
    await mine.condition("stubborn", "Complete")
    assert rows((await mine.cli("list")).out)[1][:6] == ["TrainJob", "stubborn", "Complete", "-", "1", "2"]


async def test_an_empty_namespace_and_what_may_not_be_read_are_told(quiet: tuple[Team, FaultyCluster]) -> None:
    # An empty namespace is told.
    team, cluster = quiet
    done = await team.cli("list")
    assert (done.code, done.out) == (0, "")
    assert done.err == "no jobs in namespace research; -A shows those of all namespaces\n"
    # What is chosen by words may be none of those that are there.
    await team.submit("alone", "true", nodes=3)
    assert rows((await team.cli("list", "--filter", "WAITING alone")).out)[1][:3] == ["TrainJob", "alone", "Waiting"]
    assert (await team.cli("list", "--filter", "waiting", "-o", "name")).out == "trainjob.trainer.kubeflow.org/alone\n"
    done = await team.cli("list", "--filter", "failed")
    assert (done.out, done.err.partition(";")[0]) == (
        "", "no jobs in namespace research with all of 'failed' in name, kind, state or cause"
    )  # fmt: skip
    # Without pods and workloads the table is poorer; without TrainJobs there is none.
    refusal = Refuse(403, message='pods is forbidden: User "eve" cannot list resource "pods"')
    with cluster.faults.add(refusal, verb="list", resource="pods"):
        done = await team.cli("list")
    assert done.code == 0
    assert rows(done.out)[1][:6] == ["TrainJob", "alone", "Waiting", "-", "0/3", "0"]
    assert done.err.startswith("warning: pods cannot be read, so that nodes and times are unknown: 403 Forbidden: pods")
    refusal = Refuse(403, message='trainjobs is forbidden: User "eve" cannot list resource "trainjobs"')
    with cluster.faults.add(refusal, verb="list", resource="trainjobs"):
        done = await team.cli("list")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("trainmaster: 403 Forbidden: trainjobs is forbidden")
    assert "ask for a role that allows it" in done.err


async def test_without_a_cluster_nothing_is_started(tmp_path: Path) -> None:
    done = await trainmaster("list", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"trainmaster: no cluster: $KUBECONFIG is not set, and no embedded one runs in {tmp_path}, or above\n"
        "trainmaster:   what next: name one with --kubeconfig, go to the directory in which one runs, or start one "
        "here: trainmaster cluster up --detach\n"
    )
    assert list(tmp_path.iterdir()) == []


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
    # All of a namespace go with --all, which nobody writes beside names; one word of the two has to be there.
    for words in ((), ("mine", "--all")):
        done = await team.cli("delete", *words, code=2)
        assert done.err == (
            "trainmaster: delete which jobs? name some, or write --all for those of the namespace; not both\n"
        )
    await team.submit_v1("PyTorchJob", "four", {"Worker": (1, ["true"])})
    done = await team.cli("delete", "--all", code=0)
    assert done.err.splitlines() == ["PyTorchJob research/four deleted", "TrainJob research/mine deleted"]
    assert (await team.cli("delete", "--all", code=0)).err == "no jobs in namespace research\n"
