"""What kubectl shows of TrainJobs whose containers fail, on a whole cluster with real processes."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.commands import client_of
from support.kubectl import Kubectl
from support.training import apply_runtime, conditions, python, runtime, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
    pytest.mark.asyncio(loop_scope="module"),
]

NAN = """
import os, signal, time
time.sleep(1)
if os.environ["PET_NODE_RANK"] == "1":
    raise ValueError("my loss is NaN")
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as for the first process of a container
time.sleep(600)  # in a barrier
"""
KILLED = NAN.replace('raise ValueError("my loss is NaN")', "os.kill(os.getpid(), 9)")
JOBS: dict[str, dict[str, Any]] = {
    "in-place": {"policy": "OnFailure", "limit": 3},
    "in-place-once": {"policy": "OnFailure", "limit": 0},
    "replaced": {"limit": 2},
    "once": {},
    "restarted": {"restarts": 2},
    "killed": {"script": KILLED},
    "unsaid": {"message": "File"},
    "never-ready": {"command": ["pythn", "train.py"], "policy": "OnFailure", "limit": 1},
    "initializer": {
        "initializer": "import time; time.sleep(1); raise RuntimeError('401: gated')",
        "policy": "OnFailure",
        "limit": 1,
    },
}

FAILURE = r"rank 1 \(pod {name}-node-0-1-\w+, container node\) failed at \S+Z with exit code "
NAN_TOLD = FAILURE + "1: ValueError: my loss is NaN"


def runtime_of(name: str, job: dict[str, Any]) -> JsonObject:
    obj = runtime(name, backoff_limit=job.get("limit", 0), restart_policy=job.get("policy", "Never"))
    template = obj["spec"]["template"]["spec"]
    (node,) = template["replicatedJobs"]
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    container["terminationMessagePolicy"] = job.get("message", "FallbackToLogsOnError")
    if "restarts" in job:
        template["failurePolicy"] = {"maxRestarts": job["restarts"]}
    if "initializer" in job:
        fetching = {**container, "name": "dataset-initializer", "command": python(job["initializer"])}
        spec = {**node["template"]["spec"]["template"]["spec"], "containers": [fetching]}
        fetches = {"backoffLimit": job["limit"], "template": {"spec": spec}}
        template["replicatedJobs"].insert(0, {"name": "dataset-initializer", "template": {"spec": fetches}})
        node["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    return obj


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    """A cluster on which all the jobs run side by side."""
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        for name, job in JOBS.items():
            await apply_runtime(client, runtime_of(name, job))
            trainer = {"numNodes": 2, "command": job.get("command") or python(job.get("script", NAN))}
            await client.create(TRAINJOBS, trainjob(name, on=name, trainer=trainer))
        yield client


@pytest.fixture
def kubectl(cluster_home: Path, tmp_path: Path) -> Kubectl:
    return Kubectl(cluster_home / ".trainmaster" / "kubeconfig", tmp_path)


async def failed(client: KubeClient, name: str) -> tuple[str, list[str]]:
    """Wait until a job has failed; returns its message, and the lines of what was told of its failures."""

    async def final() -> dict[str, JsonObject] | None:
        held = await conditions(client, name)
        return held if "Failed" in held else None

    held: dict[str, JsonObject] = await until(final)
    assert list(held) == ["Failed", "ContainerFailed"]
    return held["Failed"]["message"], held["ContainerFailed"]["message"].splitlines()


async def test_kubectl_shows_why_a_rank_failed_that_is_restarted_in_place(client: KubeClient, kubectl: Kubectl) -> None:
    """Its pod runs on, and what kubectl logs shows of it is what runs now."""

    async def told() -> str:
        shown = await kubectl("describe", "trainjob", "in-place")
        return shown if "ValueError: my loss is NaN" in shown else ""

    shown = await until(told)
    assert re.search(r"attempt 0: " + NAN_TOLD.format(name="in-place"), shown)
    message, lines = await failed(client, "in-place")
    assert [line.partition(": ")[0] for line in lines] == ["attempt 0", "attempt 0, restart 1", "attempt 0, restart 2"]
    assert re.search(r"attempt 0, restart 2: " + NAN_TOLD.format(name="in-place") + "$", message)
    assert message.startswith("jobset failed due to one or more job failures (first failed job: in-place-node-0); ")
    (shown,) = await kubectl.rows("trainjob", "in-place")
    assert shown[:2] == ["in-place", "Failed"]
    listed = await kubectl(
        "get", "events", "--field-selector", "involvedObject.name=in-place,reason=ContainerFailed", "-o", "name"
    )
    assert len(listed.split()) == 3


@pytest.mark.parametrize(
    ("name", "attempts"),
    [
        ("in-place-once", ["attempt 0"]),
        ("once", ["attempt 0"]),
        ("replaced", ["attempt 0", "attempt 0, restart 1", "attempt 0, restart 2"]),
        ("restarted", ["attempt 0", "attempt 1", "attempt 2"]),
    ],
)
async def test_of_each_attempt_the_first_failure_is_told(client: KubeClient, name: str, attempts: list[str]) -> None:
    message, lines = await failed(client, name)
    assert [line.partition(": ")[0] for line in lines] == attempts
    assert all(re.search(NAN_TOLD.format(name=name) + "$", line) for line in lines), lines
    assert message.endswith(lines[-1])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("killed", FAILURE.format(name="killed") + r"137 \(killed: SIGKILL"),
        ("unsaid", FAILURE.format(name="unsaid") + "1; with terminationMessagePolicy: FallbackToLogsOnError"),
        ("never-ready", r"with exit code 128 \(StartError: the container could not be started\): .*pythn"),
        (
            "initializer",
            r"dataset-initializer \(pod initializer-dataset-initializer-0-0-.*exit code 1: RuntimeError: 401: gated$",
        ),
    ],
)
async def test_what_is_known_of_a_failure_is_told(client: KubeClient, name: str, told: str) -> None:
    """What a signal means; how pods would keep their words; a pod that never was ready, before it is gone; and the name
    of an initializer."""
    message, _ = await failed(client, name)
    assert re.search(told, message)


RECOVERS = """
import fcntl, os, time
rank, lock = os.environ["PET_NODE_RANK"], open(os.environ["LOCK"], "a+")
failed = lock.name + rank
if os.path.exists(failed):
    time.sleep(600)
open(failed, "w").close()
if rank == "1":
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write("held")
    lock.flush()
    time.sleep(1)
    raise ValueError("my loss is NaN")
while not os.path.getsize(lock.name):
    time.sleep(0.01)
fcntl.flock(lock, fcntl.LOCK_SH)  # until the process of rank 1 is gone
raise ConnectionError("Connection closed by peer")
"""
"""Of four ranks all fail within a second, because rank 1 does, and run well after that."""


async def test_a_job_that_recovers_runs_without_condition(client: KubeClient, kubectl: Kubectl, tmp_path: Path) -> None:
    """The Kubeflow SDK takes only a job without conditions to be running."""
    await apply_runtime(client, runtime_of("recovers", {"policy": "OnFailure", "limit": 9}))
    env = [{"name": "LOCK", "value": str(tmp_path / "lock")}]
    trainer = {"numNodes": 4, "command": python(RECOVERS), "env": env}
    await client.create(TRAINJOBS, trainjob("recovers", on="recovers", trainer=trainer))

    async def recovered() -> bool:
        told = await kubectl("get", "events", "--field-selector", "involvedObject.name=recovers,type=Warning")
        job = await client.get(TRAINJOBS, "default", "recovers")
        ready = [each["ready"] for each in job["status"].get("jobsStatus", ())] if "status" in job else []
        cause = re.search("attempt 0: " + NAN_TOLD.format(name="recovers"), told)
        return cause is not None and ready == [1] and not await conditions(client, "recovers")

    await until(recovered)
    await client.delete(TRAINJOBS, "default", "recovers")
