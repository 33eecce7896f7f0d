"""Training that survives, on a whole cluster with real processes: what is restarted, what is charged, what is told."""

import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from support.commands import eventually, processes_of
from support.running_jobs import job, jobs
from support.team import Team, team
from support.training import conditions_of, python

from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.api.constants import RESILIENCE_POLICY_ANNOTATION, RESILIENCE_STATUS_ANNOTATION
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEGIN = """
import os, pathlib, signal, sys, time
place, rank = pathlib.Path(os.environ["PLACE"]), os.environ.get("RANK") or os.environ["PET_NODE_RANK"]
signal.signal(signal.SIGTERM, lambda *_: ((place / "gone").touch(), os._exit(143)))
def count():
    name = place / ("ran-" + rank)
    attempt = len(name.read_text()) if name.exists() else 0
    name.write_text("x" * (attempt + 1))
    return attempt
def barrier():
    while True:
        time.sleep(0.05)
attempt = count()
"""
ENDS = """
if attempt < {times}:
    if rank == "0":
        barrier()
    time.sleep({pause})
    {how}
"""
LAST_ENDS = """
def all_have(prefix):
    while not all((place / (prefix + each)).exists() for each in "012"):
        time.sleep(0.01)
all_have("ran-")
if attempt < {times}:
    if rank != "2":
        barrier()
    raise ValueError("my loss is NaN")
(place / ("back-" + rank)).touch()
all_have("back-")
"""
LOSES_ITS_PEER = """
if attempt == 0:
    (place / ("up-" + rank)).touch()
    if rank == "1":
        barrier()
    while not (place / "gone").exists():
        time.sleep(0.01)
    raise RuntimeError("[gloo] Connection closed by peer")
"""
WAITS = """
(place / f"up-{attempt}").touch()
while not (place / f"go-{attempt}").exists():
    time.sleep(0.05)
if rank == "0":
    barrier()
raise ValueError("my loss is NaN")
"""
TRAINS_IN_STEP = """
for step in range(60):
    (place / f"{attempt}-{step}-{rank}").touch()
    while not (place / f"{attempt}-{step}-{1 - int(rank)}").exists():
        time.sleep(0.01)
    print("step", step, flush=True)
    if attempt == 0 and step == 30 and rank == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.1)
"""
WRITES = """
print({line!r}, flush=True)
barrier()
"""


def ends(how: str = "raise ValueError('my loss is NaN')", *, times: int = 99, pause: int = 0) -> str:
    """A script whose second node ends its first attempts."""
    return ENDS.format(how=how, times=times, pause=pause)


V1_JOBS: dict[str, tuple[str, JsonObject]] = {
    "v1-within": (LAST_ENDS.format(times=1), {"maxRestarts": 1}),
    "v1-exceeded": (LAST_ENDS.format(times=99), {"maxRestarts": 1}),
    "v1-evicted": (LOSES_ITS_PEER, {"maxRestarts": 0}),
}

JOBS: dict[str, tuple[str, JsonObject]] = {
    "within": (ends(times=1), {"maxRestarts": 1}),
    "exceeded": (ends(), {"maxRestarts": 1}),
    "evicted": (LOSES_ITS_PEER, {"maxRestarts": 1}),
    "evicted-at-zero": (LOSES_ITS_PEER, {"maxRestarts": 0}),
    "deleted": (LOSES_ITS_PEER, {"maxRestarts": 0}),
    "fail-code": (ends("os._exit(2)"), {"maxRestarts": 5, "exitCodes": {"fail": [2]}}),
    "retry-code": (ends("os._exit(75)", times=2), {"maxRestarts": 0, "exitCodes": {"retry": [75]}}),
    "hangs": (TRAINS_IN_STEP, {"maxRestarts": 1, "gracePeriod": "1s", "progress": {"within": "15s"}}),
    "is-nan": (
        WRITES.format(line="step 3 loss: nan"),
        {"maxRestarts": 1, "logs": [{"name": "loss-is-nan", "pattern": "loss[ =:]+nan", "action": "Fail"}]},
    ),
    "alone": (WRITES.format(line="  global_world_sizes=[1]"), {"worldSize": "Verify"}),
    "window": (ends(times=2, pause=4), {"maxRestarts": 1, "restartWindow": "3s"}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mine(cluster_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Team]:
    """A namespace in which all the jobs run side by side."""
    directory = tmp_path_factory.mktemp("resilience")
    async with team(cluster_home / ".trainmaster/kubeconfig", "surviving", directory) as mine:
        for name, (script, policy) in JOBS.items():
            await submit(mine, name, script, policy)
        for name, (script, policy) in V1_JOBS.items():
            await submit_v1(mine, name, script, policy)
        yield mine


async def submit(mine: Team, name: str, script: str, policy: JsonObject) -> None:
    """Start a job of two nodes, which share a directory."""
    place = mine.directory / name
    place.mkdir()
    job = mine.manifest(name, "", nodes=2, resiliencePolicy=policy)
    env = [{"name": "PLACE", "value": str(place)}]
    job["spec"]["trainer"] = {"numNodes": 2, "command": python(BEGIN + script), "env": env}
    await mine.client.create(TRAINJOBS, job)


async def submit_v1(mine: Team, name: str, script: str, policy: JsonObject) -> None:
    """Start a PyTorchJob of a master and two workers, which share a directory."""
    place = mine.directory / name
    place.mkdir()
    command = python(f"import os\nos.environ['PLACE'] = {str(place)!r}\n{BEGIN}{script}")
    obj = job("PyTorchJob", name, {"Master": (1, command), "Worker": (2, command)})
    annotations = {RESILIENCE_POLICY_ANNOTATION: orjson.dumps(policy).decode()}
    obj["metadata"] |= {"namespace": mine.name, "annotations": annotations}
    await mine.client.create(jobs("PyTorchJob"), obj)


async def v1_ended(mine: Team, name: str) -> tuple[JsonObject, JsonObject]:
    """Wait for the end of a PyTorchJob; returns the condition and its ledger."""

    async def end() -> tuple[JsonObject, JsonObject] | None:
        obj = await mine.client.get(jobs("PyTorchJob"), mine.name, name)
        held = conditions_of(obj)
        condition = held.get("Succeeded") or held.get("Failed")
        ledger = obj["metadata"]["annotations"].get(RESILIENCE_STATUS_ANNOTATION, "{}")
        return None if condition is None else (condition, orjson.loads(ledger))

    found: tuple[JsonObject, JsonObject] = await eventually(end)
    return found


async def both_up(mine: Team, name: str) -> str:
    """Wait until both nodes of a job train; returns the pod of the second one."""
    place = mine.directory / name
    await eventually(lambda: (place / "up-0").exists() and (place / "up-1").exists())
    [pod] = [each for each in await mine.pods(name) if each["metadata"]["name"].startswith(f"{name}-node-0-1-")]
    return str(pod["metadata"]["name"])


async def evict(mine: Team, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": mine.name}}
    status, _, answer = await mine.client.raw("POST", PODS.path(mine.name, pod, "eviction"), body=orjson.dumps(body))
    assert status == 201, answer


async def ended(mine: Team, name: str, kind: str) -> tuple[JsonObject, JsonObject]:
    """Wait for the end of a job; returns the condition and what became of its attempts."""
    condition = await mine.condition(name, kind)
    job = await mine.client.get(TRAINJOBS, mine.name, name)
    ledger = job["status"]["resilience"]
    assert job["status"].get("restarts", 0) == len(ledger.get("attempts", ())) - (kind == "Failed")
    return condition, ledger


def told(ledger: JsonObject) -> list[tuple[int, str, bool]]:
    return [(each["number"], each["reason"], each["charged"]) for each in ledger["attempts"]]


async def row(mine: Team, name: str) -> list[str]:
    """State, cause, nodes and restarts of a job, as `trainmaster list` shows them."""
    lines = [line.split() for line in (await mine.cli("list", code=0)).out.splitlines()]
    [found] = [line for line in lines if name in line]
    return found[found.index(name) + 1 :][:4]


async def test_a_crash_within_the_budget_costs_one_restart(mine: Team) -> None:
    _, ledger = await ended(mine, "within", "Complete")
    assert told(ledger) == [(0, "Failed", True)]
    assert ledger["chargedRestarts"] == 1
    [attempt] = ledger["attempts"]
    assert attempt["pod"].startswith("within-node-0-1-")
    assert attempt["node"]
    assert attempt["message"].endswith("with exit code 1: ValueError: my loss is NaN")
    assert await row(mine, "within") == ["Complete", "-", "2", "1"]
    assert "ValueError: my loss is NaN" in (await mine.cli("explain", "within")).out


async def test_over_its_budget_a_job_fails_with_the_cause(mine: Team) -> None:
    condition, ledger = await ended(mine, "exceeded", "Failed")
    assert told(ledger) == [(0, "Failed", True), (1, "Failed", True)]
    assert "attempt 1: rank 1 (pod exceeded-node-0-1-" in condition["message"]
    assert condition["message"].endswith("ValueError: my loss is NaN")
    assert await row(mine, "exceeded") == ["Failed", "ContainerFailed", "2", "1"]
    assert "ValueError: my loss is NaN" in (await mine.cli("explain", "exceeded")).out


@pytest.mark.parametrize("name", ["evicted", "evicted-at-zero"])
async def test_an_eviction_is_not_charged_though_the_peer_crashes_of_it(mine: Team, name: str) -> None:
    await evict(mine, await both_up(mine, name))
    _, ledger = await ended(mine, name, "Complete")
    assert told(ledger) == [(0, "Disrupted", False)]
    assert "EvictionByEvictionAPI" in ledger["attempts"][0]["message"]
    assert ledger.get("chargedRestarts", 0) == 0
    assert "replacedJobSet" not in ledger


async def test_a_pod_deleted_by_hand_is_not_charged(mine: Team) -> None:
    await mine.client.delete(PODS, mine.name, await both_up(mine, "deleted"))
    _, ledger = await ended(mine, "deleted", "Complete")
    assert told(ledger) == [(0, "Disrupted", False)]
    assert "it was deleted while it ran" in ledger["attempts"][0]["message"]


async def test_exit_codes_say_whether_the_job_goes_on(mine: Team) -> None:
    condition, ledger = await ended(mine, "fail-code", "Failed")
    assert condition["reason"] == "FailJobSetFailurePolicyAction"
    assert "failed at" in condition["message"]
    assert "with exit code 2" in condition["message"]
    assert told(ledger) == [(0, "Failed", True)]
    _, ledger = await ended(mine, "retry-code", "Complete")
    assert told(ledger) == [(0, "Retry", False), (1, "Retry", False)]


async def test_a_rank_that_hangs_is_named_and_the_job_is_restarted(mine: Team) -> None:
    _, ledger = await ended(mine, "hangs", "Complete")
    assert told(ledger) == [(0, "NoProgress", True)]
    found = re.fullmatch(r"no progress for (\d+) s, by what its nodes write: (.*)", ledger["attempts"][0]["message"])
    assert found is not None
    assert 15 <= int(found[1]) <= 25
    assert found[2].startswith(("nodes 0 and 1 wrote last", "nodes 1 and 0 wrote last", "node 1 wrote last"))
    assert "no progress for" in (await mine.cli("explain", "hangs")).out


@pytest.mark.parametrize(
    ("name", "reason", "message"),
    [
        ("is-nan", "LogRuleBroken", 'log rule loss-is-nan: node 0 wrote what must not appear: "step 3 loss: nan"'),
        ("alone", "WorldSizeMismatch", "1 process of 2 nodes with 1 process each train, as torchrun says"),
    ],
)
async def test_a_training_that_is_of_no_use_fails_at_once(mine: Team, name: str, reason: str, message: str) -> None:
    condition, ledger = await ended(mine, name, "Failed")
    assert (condition["reason"], condition["message"]) == (reason, message)
    assert told(ledger) == [(0, reason, True)]
    assert await row(mine, name) == ["Failed", reason, "2", "0"]
    assert message in (await mine.cli("explain", name)).out


async def test_only_restarts_within_the_window_count(mine: Team) -> None:
    _, ledger = await ended(mine, "window", "Complete")
    assert told(ledger) == [(0, "Failed", True), (1, "Failed", True)]


async def suspend(mine: Team, name: str, *, to: bool) -> None:
    await mine.client.patch(TRAINJOBS, mine.name, name, {"spec": {"suspend": to}})


async def test_the_budget_outlives_a_suspension_and_the_jobset(mine: Team) -> None:
    await submit(mine, "kept", WAITS, {"maxRestarts": 1})
    place = mine.directory / "kept"

    async def charged() -> Any:
        status = (await mine.client.get(TRAINJOBS, mine.name, "kept")).get("status") or {}
        return (status.get("resilience") or {}).get("chargedRestarts")

    await eventually((place / "up-0").exists)
    (place / "go-0").touch()
    await eventually((place / "up-1").exists)
    await eventually(charged)
    await suspend(mine, "kept", to=True)
    await mine.condition("kept", "Suspended")

    async def no_pods() -> bool:
        return not await mine.pods("kept")

    await eventually(no_pods)
    await mine.client.delete(JOBSETS, mine.name, "kept")
    await suspend(mine, "kept", to=False)
    await eventually((place / "up-2").exists)
    (place / "go-2").touch()
    _, ledger = await ended(mine, "kept", "Failed")
    assert told(ledger) == [(0, "Failed", True), (1, "Failed", True)]


async def test_a_manager_that_dies_meanwhile_goes_on_where_it_was(mine: Team) -> None:
    await submit(mine, "orphaned", LOSES_ITS_PEER, {"maxRestarts": 0})
    pod = await both_up(mine, "orphaned")
    managers = processes_of("trainmaster.controller.cli\0manager\0--kubeconfig\0" + str(mine.kubeconfig))
    assert len(managers) == 1
    await evict(mine, pod)
    os.kill(managers.pop(), signal.SIGKILL)
    _, ledger = await ended(mine, "orphaned", "Complete")
    assert [charged for _, _, charged in told(ledger)] == [False]
    assert (mine.directory / "orphaned/ran-0").read_text() == "xx"


async def test_a_crash_of_a_worker_restarts_the_whole_v1_job_and_is_charged_once(mine: Team) -> None:
    condition, ledger = await v1_ended(mine, "v1-within")
    assert condition["type"] == "Succeeded", condition
    assert told(ledger) == [(0, "Failed", True)]
    assert ledger["attempts"][0]["message"].endswith("with exit code 1: ValueError: my loss is NaN")
    assert ledger["attempts"][0]["node"]
    assert [(mine.directory / f"v1-within/ran-{rank}").read_text() for rank in range(3)] == ["xx"] * 3
    assert await row(mine, "v1-within") == ["Succeeded", "-", "3", "1"]


async def test_over_its_budget_a_v1_job_fails_with_the_cause(mine: Team) -> None:
    condition, ledger = await v1_ended(mine, "v1-exceeded")
    assert (condition["type"], condition["reason"]) == ("Failed", "PyTorchJobFailed")
    assert "worker 1 (pod v1-exceeded-worker-1, " in condition["message"]
    assert condition["message"].endswith("ValueError: my loss is NaN")
    assert told(ledger) == [(0, "Failed", True), (1, "Failed", True)]
    explained = (await mine.cli("explain", "pytorchjob/v1-exceeded")).out
    assert ", 1 restart)" in explained.splitlines()[0]
    assert "it said last: ValueError: my loss is NaN" in explained


async def test_an_eviction_of_a_v1_job_is_not_charged_though_its_peers_crash_of_it(mine: Team) -> None:
    place = mine.directory / "v1-evicted"
    await eventually(lambda: all((place / f"up-{rank}").exists() for rank in range(3)))
    await evict(mine, "v1-evicted-worker-0")
    condition, ledger = await v1_ended(mine, "v1-evicted")
    assert condition["type"] == "Succeeded", condition
    assert told(ledger) == [(0, "Disrupted", False)]
    assert "EvictionByEvictionAPI" in ledger["attempts"][0]["message"]
