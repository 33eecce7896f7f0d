"""The example of a kind of jobs of one's own: it conforms, and runs on a cluster whose manager has it installed."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.commands import client_of, trainmaster
from support.distributions import EXAMPLES, install
from support.processes import DEFINITIONS
from support.rights import declare
from support.training import python, until

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.manager.training_operator import policy_rules
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

EXAMPLE = EXAMPLES / "job-kind"

JOBS = Resource("acme.example", "v1", "RayTrainJob", "raytrainjobs", namespaced=True)

# In place of Ray: the head listens until enough workers have come, each of which stays until it is sent home.
HEAD = """
import os, socket
with socket.create_server(("", 6379)) as server:
    came = {server.accept()[0].recv(100).decode() for _ in range(int(os.environ["RAY_MIN_WORKERS"]))}
print("trained with", *sorted(came))
"""
JOIN = """
import os, socket, time
host, port = os.environ["RAY_ADDRESS"].split(":")
while True:
    try:
        with socket.create_connection((host, int(port)), timeout=5) as head:
            head.sendall(os.environ["NAME"].encode())
        break
    except OSError:
        time.sleep(0.05)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the example is installed, as pip would do it."""
    directory = tmp_path_factory.mktemp("site-packages")
    install(EXAMPLE, directory)
    return directory


async def test_its_own_tests_pass(installed: Path, tmp_path: Path) -> None:
    """With the conformance kit, where it is installed beside Trainmaster."""
    for name in ("test_acme_jobs.py", "job.yaml", "crd.yaml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "test_acme_jobs.py"),
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()


def test_it_is_a_class_of_about_a_hundred_lines() -> None:
    assert len((EXAMPLE / "acme_jobs.py").read_text().splitlines()) <= 120


async def test_the_manager_asks_for_the_rights_that_it_needs(installed: Path, tmp_path: Path) -> None:
    printed = await trainmaster("rbac", cwd=tmp_path, PYTHONPATH=str(installed))
    assert printed.code == 0, printed.err
    granted: dict[str, set[str]] = {}
    for role in yaml.safe_load_all(printed.out):
        for rule in role.get("rules") or []:
            for resource in rule.get("resources", []) if "acme.example" in rule.get("apiGroups", []) else []:
                granted.setdefault(resource, set()).update(rule["verbs"])
    assert granted["raytrainjobs"] >= {"get", "list", "watch"}
    assert "patch" in granted["raytrainjobs/status"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeClient]:
    """A whole cluster that serves the kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        declare(policy_rules(Configuration(), job_kinds(Configuration())))
    home = tmp_path_factory.mktemp("cluster")
    up = await trainmaster("cluster", "up", "--detach", cwd=home, PYTHONPATH=str(installed))
    assert up.code == 0, up.err
    try:
        async with client_of(home / ".trainmaster" / "kubeconfig") as client:
            await client.create(DEFINITIONS, yaml.safe_load((EXAMPLE / "crd.yaml").read_text()))
            yield client
    finally:
        await trainmaster("cluster", "down", cwd=home)


def job(**changes: Any) -> JsonObject:
    """The job of the example, with programs that need no Ray."""
    obj: JsonObject = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    obj["spec"].update(changes)
    replicas = obj["spec"]["rayReplicaSpecs"]
    for replica_type, program in (("Head", HEAD), ("Worker", JOIN)):
        (container,) = replicas[replica_type]["template"]["spec"]["containers"]
        container["command"] = python(program)
        container["env"] = [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        replicas[replica_type]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    return obj


async def status_of(client: KubeClient, name: str) -> JsonObject:
    status: JsonObject = (await client.get(JOBS, "default", name)).get("status") or {}
    return status


@pytest.mark.asyncio(loop_scope="module")
async def test_it_runs_on_a_cluster(cluster: KubeClient) -> None:
    assert (await until(lambda: attempt(cluster, job(minWorkers=3))))["metadata"]["name"] == "digits"
    await until(lambda: ended(cluster, "digits"))
    status = await status_of(cluster, "digits")
    assert [(each["type"], each["status"], each["message"]) for each in status["conditions"]] == [
        ("Created", "True", "RayTrainJob digits is created."),
        ("Running", "False", "RayTrainJob digits is running."),
        ("Succeeded", "True", "RayTrainJob digits is successfully completed."),
    ]
    code, _, log = await cluster.raw("GET", "/api/v1/namespaces/default/pods/digits-head-0/log")
    assert (code, log.decode()) == (200, "trained with digits-worker-0 digits-worker-1 digits-worker-2\n")
    await until(lambda: only_the_head_is_left(cluster))


async def attempt(client: KubeClient, obj: JsonObject) -> JsonObject | None:
    """Create a job as soon as its kind is served."""
    try:
        return await client.create(JOBS, {**obj, "metadata": {**obj["metadata"], "namespace": "default"}})
    except NotFound:
        return None


async def ended(client: KubeClient, name: str) -> bool:
    return bool((await status_of(client, name)).get("completionTime"))


async def only_the_head_is_left(client: KubeClient) -> bool:
    pods = (await client.list(PODS, "default"))["items"]
    return [each["metadata"]["name"] for each in pods] == ["digits-head-0"]


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_wrong_with_a_job_is_told(cluster: KubeClient) -> None:
    """Nobody asks before it is stored, unless a webhook is configured for the kind."""
    wrong = job(minWorkers=4)
    wrong["metadata"]["name"] = "greedy"
    await until(lambda: attempt(cluster, wrong))

    async def blocked() -> JsonObject | None:
        conditions = (await status_of(cluster, "greedy")).get("conditions") or []
        return next((each for each in conditions if each["type"] == "Blocked"), None)

    told = await until(blocked)
    assert told["reason"] == "RayTrainJobFailedValidation"
    assert told["message"].startswith("spec.minWorkers: Invalid value: 4: must be between 0 and the number of workers")
