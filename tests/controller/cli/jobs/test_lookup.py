"""Jobs by name, and in a table: which one is meant, and what is told if there is none."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.devcluster.faultycluster import FaultyCluster
from support.stack import api_server
from support.team import Team

from trainmaster.controller.cli.jobs.lookup import Job, find_job
from trainmaster.controller.cli.jobs.rows import rows_of, table
from trainmaster.controller.cli.printers import human_duration
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.controller.kube.rest.resources import NAMESPACES, Resource
from trainmaster.controller.resources import TRAINJOBS


async def test_a_name_alone_means_the_trainjob_and_else_the_only_job(both: tuple[Team, FaultyCluster]) -> None:
    team, _ = both
    await team.submit("digits", "true")
    for kind, name in (("PyTorchJob", "digits"), ("PyTorchJob", "older"), ("PyTorchJob", "twice"), ("TFJob", "twice")):
        await team.submit_v1(kind, name, {"Worker": (1, ["true"])})
    for text, title in (
        ("digits", "TrainJob research/digits"),
        ("trainjob.trainer.kubeflow.org/digits", "TrainJob research/digits"),
        ("TrainJobs/digits", "TrainJob research/digits"),
        ("pytorchjob/digits", "PyTorchJob research/digits"),
        ("older", "PyTorchJob research/older"),
    ):
        assert (await find_job(team.client, team.name, text)).title == title
    with pytest.raises(Rejected, match=r"several jobs are called twice .*: pytorchjob/twice, tfjob/twice$"):
        await find_job(team.client, team.name, "twice")
    with pytest.raises(Rejected, match="this cluster serves no kind of jobs 'sparkjob'"):
        await find_job(team.client, team.name, "sparkjob/digits")
    with pytest.raises(Rejected, match="is no name of a job"):
        await find_job(team.client, team.name, "trainjob/")


@pytest.mark.nightly
async def test_a_job_that_does_not_exist_is_told_with_those_that_do(team: Team) -> None:
    await team.submit("digits", "true")
    done = await team.cli("logs", "digts")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "trainmaster: no job 'digts' in namespace research; did you mean 'digits'?",
        "trainmaster:   jobs there: digits",
    ]
    await team.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    with pytest.raises(
        Rejected, match=r"(?s)no job 'digits' in namespace other.*there is one of this name in: research"
    ):
        await find_job(team.client, "other", "digits")
    with pytest.raises(Rejected, match=r"(?s)no job 'nothing' in namespace other.*there are no jobs in it"):
        await find_job(team.client, "other", "nothing")


async def test_a_cluster_without_trainmaster_is_told(tmp_path: Path) -> None:
    async with api_server(tmp_path, definitions=False) as stack:
        with pytest.raises(ConfigurationError, match=r"serves no TrainJobs: .*\n.*trainmaster crds"):
            await find_job(stack.client, "default", "digits")


def test_durations_are_written_as_kubectl_writes_them() -> None:
    hour, day = 3600, 86400
    seconds = (-3, 119.9, 120, 125, 605, hour, 3 * hour, 3 * hour + 1200, 9 * hour + 1200, 2 * day + hour, 40 * day)
    texts = ["0s", "119s", "2m", "2m5s", "10m", "60m", "3h", "3h20m", "9h", "2d1h", "40d"]
    assert [human_duration(each) for each in seconds] == texts


def test_a_job_that_says_nothing_is_listed_as_well() -> None:
    """The definitions of other distributions require less than ours."""
    metadata = {"name": "bare", "namespace": "team", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    job = Job({"metadata": metadata}, Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True))
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert not job.is_suspended
    lines = table(rows_of([job], pods=[], jobsets=[], now=now), now=now, namespaces=True)
    assert lines[1].split() == ["team", "PyTorchJob", "bare", "Waiting", "-", "0/0", "0", "60s", "60s"]


@pytest.mark.parametrize("odd", [None, "odd", 7, ["odd"], {"Worker": "odd"}, {"Worker": {"replicas": None}}])
def test_a_job_whose_fields_have_other_shapes_is_listed_as_well(odd: object) -> None:
    """The definitions of other distributions let in what those of Trainmaster do not."""
    metadata = {"name": "odd", "namespace": "team", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = {"conditions": odd, "jobsStatus": odd, "replicaStatuses": odd, "trainerStatus": odd}
    spec = {"trainer": odd, "runPolicy": odd, "pytorchReplicaSpecs": odd}
    v1 = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
    kinds = [({"kind": kind.kind, "metadata": metadata}, kind) for kind in (TRAINJOBS, v1)]
    jobs = [Job({**obj, "spec": spec, "status": status}, kind) for obj, kind in kinds]
    jobs += [Job({**obj, "spec": odd, "status": odd}, kind) for obj, kind in kinds]
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    lines = table(rows_of(jobs, pods=[], jobsets=[], now=now), now=now, namespaces=False)
    assert [line.split()[:3] for line in lines[1:]] == [[job.kind, "odd", "Waiting"] for job in jobs]
