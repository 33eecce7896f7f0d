"""The examples of plugins: they conform, and do what they are for on a cluster whose manager has all of them."""

import ast
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.commands import client_of, trainmaster
from support.distributions import EXAMPLES, install, start_its_tests
from support.processes import DEFINITIONS
from support.rights import declare
from support.training import conditions, ended, found, log_of, pods, python, until

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINJOBS
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

PLUGINS = EXAMPLES / "plugins"
PACKAGES = {path.parent.name: path.parent for path in sorted(PLUGINS.glob("*/pyproject.toml"))}

QUEUES = Resource("scheduling.run.ai", "v2", "Queue", "queues", namespaced=False)
JOBS = Resource("batch", "v1", "Job", "jobs", namespaced=True)
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", namespaced=True)
BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True)

# In place of DeepSpeed: its launcher, as far as it can be seen from outside.
LAUNCHER = """
import argparse, base64, json, os, socket, sys, time
parser = argparse.ArgumentParser()
for option in ("--world_info", "--master_addr"):
    parser.add_argument(option)
for option in ("--node_rank", "--master_port"):
    parser.add_argument(option, type=int)
given, script = parser.parse_known_args()
world = json.loads(base64.urlsafe_b64decode(given.world_info))
mine = list(world)[given.node_rank]
if given.node_rank == 0:
    with socket.create_server(("", given.master_port)) as server:
        came = [server.accept()[0].recv(100).decode() for _ in range(len(world) - 1)]
    print("node", mine, "of", world, "met", *came, "for", *script)
else:
    while True:
        try:
            with socket.create_connection((given.master_addr, given.master_port), timeout=5) as master:
                master.sendall(f"node {mine}".encode())
            break
        except OSError:
            time.sleep(0.05)
"""


def files(package: str, name: str) -> list[JsonObject]:
    return list(yaml.safe_load_all((PACKAGES[package] / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which all of them are installed, as pip would do it."""
    directory = tmp_path_factory.mktemp("site-packages")
    for example in PACKAGES.values():
        install(example, directory)
    return directory


@pytest.fixture(scope="module")
def own_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[subprocess.Popen[bytes], Path]]]:
    """The tests of all packages, on their way; they wait for clusters most of the time."""
    running = {}
    for package, example in PACKAGES.items():
        directory = tmp_path_factory.mktemp(package)
        install(example, directory / "site-packages")
        process = start_its_tests(example, directory / "site-packages", directory / "printed")
        running[package] = (process, directory / "printed")
    yield running
    for process, _ in running.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("package", PACKAGES)
def test_its_own_tests_pass(package: str, own_tests: dict[str, tuple[subprocess.Popen[bytes], Path]]) -> None:
    """With the conformance suite, where it is installed beside Trainmaster, and no other example is."""
    process, printed = own_tests[package]
    assert process.wait() == 0, printed.read_text()


@pytest.mark.parametrize("package", PACKAGES)
def test_it_imports_the_public_face_alone(package: str) -> None:
    for path in PACKAGES[package].rglob("*.py"):
        allowed = {"trainmaster.runtime.sdk"} | ({"trainmaster.runtime.testing"} if "tests" in path.parts else set())
        imported = {
            name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            if name.partition(".")[0] == "trainmaster"
        }
        assert imported <= allowed, path


def test_each_is_one_module_that_can_be_read_at_once() -> None:
    for example in PACKAGES.values():
        (module,) = example.glob("*.py")
        assert len(module.read_text(encoding="utf-8").splitlines()) <= 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeClient]:
    """A whole cluster, with all of them installed and configured as their READMEs say, and with their runtimes."""
    home = tmp_path_factory.mktemp("cluster")
    options: dict[str, Any] = {}
    for package in ("gang-scheduler", "company-policy"):
        options |= files(package, "config.yaml")[0]["plugins"]["options"]
    # The others keep to no rules of the company's.
    options["acme-policy"]["exempt_namespaces"] = ["default"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        framework = Framework(load_plugins(options=options))
        rules = policy_rules(Configuration(), features=(), watches=framework.watches(), namespace="kubeflow")
        declare(rules)
    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    (home / "config.yaml").write_text(yaml.safe_dump({**head, "plugins": {"options": options}}))
    launcher = installed / "deepspeed" / "launcher"
    launcher.mkdir(parents=True)
    (launcher / "launch.py").write_text(LAUNCHER)
    up = await trainmaster(
        *("cluster", "up", "--detach", "--config", "config.yaml"), cwd=home, PYTHONPATH=str(installed)
    )
    assert up.code == 0, up.err
    try:
        async with client_of(home / ".trainmaster" / "kubeconfig") as client:
            for package in PACKAGES:
                for runtime in files(package, "runtime.yaml"):
                    await client.create(CLUSTER_TRAINING_RUNTIMES, runtime)
            yield client
    finally:
        await trainmaster("cluster", "down", cwd=home)


async def submit(client: KubeClient, package: str, *, namespace: str = "default", **trainer: Any) -> str:
    """Create the TrainJob of an example; returns its name."""
    (job,) = files(package, "trainjob.yaml")
    job["metadata"]["namespace"] = namespace
    job["spec"]["trainer"].update(trainer)
    name: str = (await client.create(TRAINJOBS, job))["metadata"]["name"]
    return name


async def blocked(client: KubeClient, name: str, reason: str) -> JsonObject | None:
    condition = (await conditions(client, name)).get("Blocked") or {}
    return condition if condition.get("reason") == reason else None


@pytest.mark.asyncio(loop_scope="module")
async def test_an_indexed_job_trains_in_place_of_a_jobset(cluster: KubeClient) -> None:
    """Two nodes of torch that find each other; it is suspended at first, as a queue of Kueue would do it."""
    (job,) = files("indexed-job", "trainjob.yaml")
    await cluster.create(TRAINJOBS, {**job, "spec": {**job["spec"], "suspend": True}})

    async def suspended() -> bool:
        return "Suspended" in await conditions(cluster, "plain")

    await until(suspended)
    assert (await until(lambda: found(cluster, JOBS, "plain-node-0")))["spec"]["suspend"] is True
    await cluster.patch(TRAINJOBS, "default", "plain", {"spec": {"suspend": False}})
    assert (await ended(cluster, "plain"))["type"] == "Complete"
    assert await found(cluster, JOBSETS, "plain") is None
    first = next(each for each in await pods(cluster, "plain") if "plain-node-0-0-" in each["metadata"]["name"])
    assert await log_of(cluster, first["metadata"]["name"]) == "trained with rank 1\n"
    (counts,) = (await cluster.get(TRAINJOBS, "default", "plain"))["status"]["jobsStatus"]
    assert (counts["name"], counts["succeeded"], counts["active"]) == ("node", 1, 0)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_company_demands_is_in_force(cluster: KubeClient) -> None:
    with pytest.raises(KubeError) as refused:
        await submit(cluster, "company-policy", namespace="kube-public", image="evil/train")
    assert "spec.trainer.image: Forbidden: must be an image of registry.acme.example, ghcr.io/acme" in str(
        refused.value
    )
    name = await submit(cluster, "company-policy", namespace="kube-public")
    network = await until(lambda: found(cluster, NETWORK_POLICIES, name, namespace="kube-public"))
    budget = await until(lambda: found(cluster, BUDGETS, name, namespace="kube-public"))
    for made in (network, budget):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("TrainJob", name)
    assert budget["spec"]["minAvailable"] == 2

    async def paid() -> bool:
        selector = "acme.example/cost-centre=robotics"
        return len((await cluster.list(PODS, "kube-public", label_selector=selector))["items"]) == 2

    await until(paid)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_trainjob_waits_for_its_queue_and_goes_on_by_itself(cluster: KubeClient) -> None:
    """First for the kind, then for the queue that its runtime names; others train meanwhile."""
    name = await submit(cluster, "gang-scheduler", command=python("print('trained in a queue')"))
    told = await until(lambda: blocked(cluster, name, "KindNotServed"))
    assert "Queue (scheduling.run.ai/v2), which the plugin kai needs" in told["message"]
    other = await submit(cluster, "framework", command=["true"])
    assert (await ended(cluster, other))["type"] == "Complete"
    for definition in files("gang-scheduler", "crd.yaml"):
        await cluster.create(DEFINITIONS, definition)
    told = await until(lambda: blocked(cluster, name, "BuildRejected"))
    assert told["message"] == "KAI Scheduler has no queue 'research' (there are none)"
    for queue in files("gang-scheduler", "queue.yaml"):
        await cluster.create(QUEUES, queue)
    assert (await ended(cluster, name))["type"] == "Complete"
    assert {each["metadata"]["labels"]["kai.scheduler/queue"] for each in await pods(cluster, name)} == {"research"}
    await cluster.delete(TRAINJOBS, "default", other)


@pytest.mark.asyncio(loop_scope="module")
async def test_nodes_of_deepspeed_meet_without_a_hostfile(cluster: KubeClient, installed: Path) -> None:
    """By what the launcher is told, with Trainmaster's own Python in place of an image with DeepSpeed."""
    directories = f"{installed}:{Path(sys.prefix)}"
    (job,) = files("framework", "trainjob.yaml")
    job["metadata"]["name"] = "meeting"
    job["spec"]["trainer"]["env"] = [{"name": "PYTHONPATH", "value": directories}]
    await cluster.create(TRAINJOBS, job)
    assert (await ended(cluster, "meeting"))["type"] == "Complete"
    first = next(each for each in await pods(cluster, "meeting") if "meeting-node-0-0-" in each["metadata"]["name"])
    assert await log_of(cluster, first["metadata"]["name"]) == dedent(
        """\
        node 0 of {'0': [0, 1], '1': [0, 1]} met node 1 for train.py --deepspeed_config ds_config.json
        """
    )
