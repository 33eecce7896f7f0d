"""`trainmaster cluster down`: what it says of the training that ends with the cluster."""

import sys
from pathlib import Path

import pytest
from support.commands import client_of, eventually, trainmaster
from support.training import until

from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.devcluster.cli.down import describe_ended
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
UP = ("cluster", "up", "--detach", "--without", "manager")


def pod(name: str, namespace: str = "default", **labels: str) -> JsonObject:
    script = "import signal; signal.pause()"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "none", "command": [sys.executable, "-c", script]}]},
    }


def of_job(job: str, rank: int, namespace: str = "default") -> JsonObject:
    return pod(f"{job}-node-0-{rank}", namespace, **{JOBSET_LABEL: job})


@pytest.mark.nightly
async def test_it_names_the_jobs_that_were_running_and_only_those(home: Path) -> None:
    state = StateDirectory(home / ".trainmaster")
    assert (await trainmaster(*UP, cwd=home)).code == 0
    waiting = of_job("waiting", 0)
    waiting["spec"]["nodeSelector"] = {"no": "such-node"}
    pods = [of_job("mid", 0), of_job("mid", 1), pod("old-master-0", **{JOB_NAME_LABEL: "old"})]
    async with client_of(state.kubeconfig) as client:
        for each in (*pods, waiting):
            await client.create(PODS, each)

        async def all_run() -> bool:
            found = [await client.get(PODS, "default", each["metadata"]["name"]) for each in pods]
            return all(each["status"]["phase"] == "Running" for each in found)

        await until(all_run)
    down = await trainmaster("cluster", "down", cwd=home)
    assert (down.code, down.err) == (0, "")
    first, second, *others = down.out.splitlines()
    assert first == f"stopped the cluster on {state.path}"
    assert second.startswith("2 training jobs (default/mid, default/old) were running; their processes ended with it")
    assert "waiting" not in "".join(others)

    again = await trainmaster("cluster", "down", cwd=home)
    assert (again.code, again.out) == (0, f"no cluster is running on {state.path}\n")


@pytest.mark.nightly
@pytest.mark.parametrize("file", ["token", "cluster.json", "pki/ca.crt"])
async def test_what_runs_cannot_be_read_and_it_is_stopped_all_the_same(home: Path, file: str) -> None:
    state = StateDirectory(home / ".trainmaster")
    assert (await trainmaster(*UP, cwd=home)).code == 0
    path = state.path / file
    assert path.exists()
    path.write_text("damaged")
    down = await trainmaster("cluster", "down", cwd=home)
    assert (down.code, down.out, down.err) == (0, f"stopped the cluster on {state.path}\n", "")
    await eventually(lambda: state.holder() is None)


@pytest.mark.parametrize(
    ("pods", "purge", "text"),
    [
        (
            [of_job("mid", 0), of_job("mid", 1), of_job("mid", 0, "team")],
            False,
            (
                "2 training jobs (default/mid, team/mid) were running; their processes ended with it; after "
                "`trainmaster cluster up` that counts as a failure:\n"
                "  jobs that may be retried start again, the others are Failed "
                "(`trainmaster restart JOB` runs one anew)"
            ),
        ),
        ([of_job("mid", 0)], True, "1 training job (default/mid) was running; its processes ended with it"),
        (
            [of_job("mid", 0), pod("web"), pod("db")],
            True,
            "1 training job (default/mid) and 2 other pods were running; their processes ended with it",
        ),
        (
            [pod("web")],
            False,
            (
                "1 pod was running; its processes ended with it; after `trainmaster cluster up` pods start again as "
                "their restartPolicy says"
            ),
        ),
        (
            [of_job(f"job-{number}", 0) for number in range(7)],
            True,
            (
                "7 training jobs (default/job-0, default/job-1, default/job-2, default/job-3, default/job-4, 2 more) "
                "were running; their processes ended with it"
            ),
        ),
    ],
    ids=["jobs", "purged", "beside pods", "pods only", "many"],
)
def test_what_ended_is_counted_named_and_told_what_comes_of_it(pods: list[JsonObject], purge: bool, text: str) -> None:
    assert describe_ended(pods, purge=purge) == text
