"""Metrics of TrainJobs that run, fail, are restarted, suspended and deleted, as two managers expose them.

The managers are processes of their own, as replicas are; what counts are sums over both.
"""

import asyncio
import re
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from prometheus_client.samples import Sample
from support.debian import program
from support.processes import ClusterProcess, ManagerProcess, account_token, cluster_process
from support.series import fetch, scrape, total
from support.training import apply_runtime, ended, python, runtime, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.devcluster.settings import PARTS
from trainmaster.metrics.families import families
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

ROOT: Final = Path(__file__).resolve().parents[2]
ENDLESS = "import time; time.sleep(600)"
ELECTION = {"leaderElect": True, "leaseDuration": "4s", "renewDeadline": "2.5s", "retryPeriod": "0.5s"}


@dataclass
class Replicas:
    """Two managers; the first one leads."""

    client: KubeClient
    managers: dict[int, ManagerProcess]
    """By the port of their metrics."""

    async def scrape(self) -> list[Sample]:
        """Read the series of all that run."""
        return [each for port, manager in self.managers.items() if manager.code is None for each in await scrape(port)]

    async def until(self, holds: Callable[[list[Sample]], bool]) -> list[Sample]:
        """Scrape until something holds of all series; returns them."""
        samples: list[Sample] = []
        try:
            async with asyncio.timeout(60):
                while not holds(samples := await self.scrape()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError([each for each in samples if each.name.startswith("trainmaster_trainjob")]) from None
        return samples

    async def create(self, name: str, script: str = "", *, on: str = "processes", **spec: Any) -> None:
        trainer = {"command": python(script), "numNodes": 1}
        await self.client.create(TRAINJOBS, trainjob(name, on=on, trainer=trainer, **spec))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replicas]:
    parts = frozenset(PARTS) - {"manager"}
    async with cluster_process(tmp_path_factory.mktemp("metrics"), parts=parts) as (process, client):
        await apply_runtime(client, runtime())
        await apply_runtime(client, restarting())
        async with AsyncExitStack() as stack:
            managers: dict[int, ManagerProcess] = {}
            for name in ("first", "second"):
                manager = await start(stack, process, client, name, port=(port := free_port()))
                managers[port] = manager
            started = Replicas(client, managers)
            await create_jobs(started)
            yield started


async def start(
    stack: AsyncExitStack, process: ClusterProcess, client: KubeClient, name: str, *, port: int
) -> ManagerProcess:
    configuration = {
        "leaderElection": {**ELECTION, "resourceName": "metrics"},
        "metrics": {"bindAddress": f"127.0.0.1:{port}", "secureServing": False},
    }
    token = await account_token(client, f"metrics-{name}")
    manager = ManagerProcess(process, f"metrics-{name}", token=token, port=process.port, configuration=configuration)
    stack.push_async_callback(manager.kill)
    await manager.start()
    await manager.logged("lease acquired" if name == "first" else "waiting for the lease")
    return manager


def restarting() -> JsonObject:
    """A runtime whose JobSets are restarted once."""
    obj = runtime("restarting")
    obj["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 1}
    return obj


def states(samples: list[Sample]) -> dict[tuple[str, str], float]:
    """How many jobs there are by state and reason."""
    found: dict[tuple[str, str], float] = {}
    for each in samples:
        if each.name == "trainmaster_trainjobs" and each.value:
            key = each.labels["state"], each.labels.get("reason", "")
            found[key] = found.get(key, 0) + each.value
    return found


def counted(samples: list[Sample], what: str, **labels: str) -> float:
    return total(samples, f"trainmaster_trainjob_{what}", **labels)


JOBS = {
    ("Complete", ""): 1,
    ("Failed", "FailedJobs"): 1,
    ("Failed", "ReachedMaxRestarts"): 1,
    ("Suspended", ""): 1,
    ("Running", ""): 1,
    ("Waiting", "RuntimeNotFound"): 1,
}
"""What becomes of those that the fixture creates, by state and reason."""


async def create_jobs(replicas: Replicas) -> None:
    """Create TrainJobs that end in every way, and wait until they have."""
    await replicas.create("done")
    await replicas.create("crashes", "raise SystemExit(3)")
    await replicas.create("restarted", "import os; os.kill(os.getpid(), 11)", on="restarting")
    await replicas.create("held", suspend=True)
    await replicas.create("endless", ENDLESS)
    await replicas.create("foreign", managedBy="kueue.x-k8s.io/multikueue")
    await replicas.create("misspelt", on="procesess")
    for name in ("done", "crashes", "restarted"):
        await ended(replicas.client, name)
    await replicas.until(lambda found: states(found) == JOBS)


@pytest.mark.guarantee("K-15")
async def test_sums_over_replicas_tell_what_became_of_jobs(replicas: Replicas) -> None:
    samples = await replicas.scrape()
    assert states(samples) == JOBS
    assert counted(samples, "time_to_jobset_seconds_count") == 5
    assert counted(samples, "time_to_end_seconds_count", runtime="processes", result="Complete") == 1
    assert counted(samples, "time_to_end_seconds_count", result="Failed") == 2
    assert counted(samples, "failures_total", cause="ContainerFailed", exit_class="error", runtime="processes") == 1
    assert counted(samples, "failures_total", cause="ContainerFailed", exit_class="SIGSEGV", runtime="restarting") == 1
    assert counted(samples, "failures_total") == 2
    assert counted(samples, "restarts_total", runtime="restarting") == 1
    assert (counted(samples, "nodes", state="Running"), counted(samples, "nodes", state="Suspended")) == (1, 1)
    assert counted(samples, "nodes", state="Waiting") == 0
    named = {each.labels["runtime"] for each in samples if each.name == "trainmaster_trainjobs" and each.value}
    assert named == {"processes", "restarting", "other"}


@pytest.mark.guarantee("K-15")
async def test_after_a_failover_gauges_are_right_and_nothing_is_counted_again(replicas: Replicas) -> None:
    before = states(await replicas.scrape())
    (_, first), (port, second) = replicas.managers.items()
    assert states(await scrape(port)) == {}
    await first.kill()
    await second.logged("lease acquired")
    samples = await replicas.until(lambda found: states(found) == before)
    again = [each for each in samples if each.name.startswith("trainmaster_trainjob_") and is_count(each)]
    assert again == []
    await replicas.create("next")
    await ended(replicas.client, "next")
    samples = await replicas.until(lambda found: counted(found, "time_to_end_seconds_count") == 1)
    assert counted(samples, "time_to_jobset_seconds_count") == 1


def is_count(sample: Sample) -> bool:
    return sample.name.endswith(("_count", "_total")) and sample.value > 0


async def test_a_runtime_that_is_deleted_keeps_the_name_under_which_its_jobs_are_counted(replicas: Replicas) -> None:
    await replicas.client.delete(CLUSTER_TRAINING_RUNTIMES, None, "restarting")

    async def gone() -> bool:
        items = (await replicas.client.list(CLUSTER_TRAINING_RUNTIMES))["items"]
        return "restarting" not in [each["metadata"]["name"] for each in items]

    await until(gone)
    await apply_runtime(replicas.client, {**runtime("renamed")})
    await replicas.create("renamed", on="renamed")
    await ended(replicas.client, "renamed")
    samples = await replicas.until(lambda found: counted(found, "time_to_end_seconds_count", runtime="renamed") == 1)
    assert total(samples, "trainmaster_trainjobs", runtime="restarting", state="Failed") == 1


async def test_what_is_exposed_is_well_named_complete_documented_and_no_more_than_stated(replicas: Replicas) -> None:
    """Names, labels and types are what Prometheus recommends."""
    rows = re.findall(
        r"^- `(\w+)` \(\w+(?: by ([^;)]+))?(?:; ([^)]+))?\): ", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    )
    bounds = {name: bound for name, _, bound in rows}
    labels = {name: set(re.findall(r"`(\w+)`", named)) for name, named, _ in rows}
    numbers = {name: bound or ("" if labels[name] else "1") for name, bound in bounds.items()}
    stated = {name: int(bound.replace(",", "")) for name, bound in numbers.items() if re.fullmatch(r"[\d,]+", bound)}
    assert len(stated) > 20, "where the rest depends on the installation"
    for port in (port for port, manager in replicas.managers.items() if manager.code is None):
        text, _ = await fetch(port, accept="text/plain;version=0.0.4")
        assert {each.name for each in families()} == set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        checked = await asyncio.create_subprocess_exec(
            *(program("promtool"), "check", "metrics"), stdin=PIPE, stdout=PIPE, stderr=STDOUT
        )
        said, _ = await checked.communicate(text.encode())
        assert (checked.returncode, said.decode()) == (0, "")
        series: Counter[str] = Counter()
        for each in await scrape(port):
            family = each.name if each.name in bounds else re.sub("_(bucket|sum|count)$", "", each.name)
            assert family in bounds, each.name
            assert each.labels.keys() - {"le"} == labels[family], each
            series[family] += 1
        assert {name: series[name] for name, bound in stated.items() if series[name] > bound} == {}
