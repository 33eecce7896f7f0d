"""`trainmaster list`, on a whole cluster and on an API server that refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import trainmaster
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.team import IN_PLACE, Team
from support.training import until

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
        return (
            listed
            if ["TrainJob", "busy", "Running", "2/2"] in [row[:4] for row in listed] and "Succeeded" in str(listed)
            else []
        )

    header, *listed = await until(settled)
    gate.touch()
    assert header == ["KIND", "NAME", "STATE", "NODES", "RESTARTS", "AGE", "DURATION"]
    assert [row[:5] for row in listed] == [
        ["TrainJob", "busy", "Running", "2/2", "0"],
        ["TrainJob", "done", "Complete", "2", "0"],
        ["TrainJob", "held", "Suspended", "0/1", "0"],
        ["PyTorchJob", "older", "Succeeded", "3", "0"],
    ]
    assert [row[6] == "-" for row in listed] == [False, False, True, False]

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
    assert [(each["kind"], each["metadata"]["name"]) for each in printed["items"]][2:] == [
        ("TrainJob", "held"),
        ("PyTorchJob", "older"),
    ]
    assert (await mine.cli("list", "-o", "yaml")).out.count("\nkind: TrainJob\n") == 3


async def test_restarts_are_counted(mine: Team, tmp_path: Path) -> None:
    """A container that fails twice in its pod, and succeeds then."""
    runs = tmp_path / "runs"
    await mine.submit("stubborn", f"echo x >> {runs}; [ $(wc -l < {runs}) = 3 ]", on=IN_PLACE)
    await mine.condition("stubborn", "Complete")
    assert rows((await mine.cli("list")).out)[1][:5] == ["TrainJob", "stubborn", "Complete", "1", "2"]


async def test_an_empty_namespace_and_what_may_not_be_read_are_told(quiet: tuple[Team, FaultyCluster]) -> None:
    # An empty namespace is told.
    team, cluster = quiet
    done = await team.cli("list")
    assert (done.code, done.out) == (0, "")
    assert done.err == "no jobs in namespace research; -A shows those of all namespaces\n"
    # Without pods and workloads the table is poorer; without TrainJobs there is none.
    await team.submit("alone", "true", nodes=3)
    refusal = Refuse(403, message='pods is forbidden: User "eve" cannot list resource "pods"')
    with cluster.faults.add(refusal, verb="list", resource="pods"):
        done = await team.cli("list")
    assert done.code == 0
    assert rows(done.out)[1][:5] == ["TrainJob", "alone", "Pending", "0/3", "0"]
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
        f"trainmaster: no cluster: $KUBECONFIG is not set, and no embedded one runs in {tmp_path}\n"
        "trainmaster:   what next: name one with --kubeconfig, go to the directory in which one runs, or start one "
        "here: trainmaster cluster up --detach\n"
    )
    assert list(tmp_path.iterdir()) == []
