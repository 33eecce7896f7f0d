"""`trainmaster explain`, of jobs that run as processes, and of what is left of those that are gone."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.running_jobs import job, jobs
from support.team import IN_PLACE, Team
from support.training import apply_runtime, runtime, until

from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.crds.install import install_definitions
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly


async def explain(mine: Team, name: str) -> JsonObject:
    done = await mine.cli("explain", name, "-o", "json")
    assert (done.code, done.err) == (0, "")
    found: JsonObject = json.loads(done.out)
    return found


def phases(mine: Team, name: str, wanted: list[str]) -> Callable[[], Awaitable[bool]]:
    """Whether the pods of a job have these phases."""

    async def reached() -> bool:
        return [pod["status"].get("phase") for pod in await mine.pods(name)] == wanted

    return reached


async def test_a_job_that_runs_is_well_and_one_that_is_complete_too(mine: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await mine.submit("fine", f"while ! [ -e {gate} ]; do sleep 0.05; done", nodes=2)
    await until(phases(mine, "fine", ["Running", "Running"]))
    done = await mine.cli("explain", "fine")
    lines = done.out.splitlines()
    assert re.fullmatch(rf"TrainJob {mine.name}/fine: Running for \d+s \(2 pods\)", lines[0])
    assert lines[1] == "  all is well"
    assert any(re.fullmatch(r"  \d\d:\d\d:\d\d  \+\d+s +2 pods are started.*", line) for line in lines)

    gate.touch()
    await mine.condition("fine", "Complete")
    before = await mine.client.get(TRAINJOBS, mine.name, "fine")
    found = await explain(mine, "fine")
    assert (found["state"]["name"], found["causes"], found["failedContainer"]) == ("Complete", [], None)
    assert found["timeline"][-1]["text"].startswith("it is complete")
    assert await mine.client.get(TRAINJOBS, mine.name, "fine") == before, "a look writes nothing"


async def test_the_failing_rank_is_shown_with_its_code_and_its_last_lines(mine: Team) -> None:
    script = "if [ $JOB_COMPLETION_INDEX = 1 ]; then echo loading; echo no such file >&2; exit 3; fi; sleep 600"
    await mine.submit("fails", script, nodes=2)
    await mine.condition("fails", "Failed")
    done = await mine.cli("explain", "fails")
    assert done.code == 0
    told = done.out.partition("first failure: ")[2].splitlines()
    assert re.fullmatch(r"rank 1: container node of pod fails-node-0-1-\w+ ended with exit code 3, \d+s ago", told[0])
    assert told[1:4] == ["  its last lines:", "  | loading", "  | no such file"]
    found = await explain(mine, "fails")
    assert found["failedContainer"]["exitCode"] == 3
    assert found["failedContainer"]["lastLines"] == ["loading", "no such file"]


async def test_a_container_that_is_restarted_in_place_is_shown_while_it_waits(mine: Team) -> None:
    await mine.submit("crashes", "echo broken; exit 1", on=IN_PLACE)

    async def waits() -> bool:
        statuses = [each for pod in await mine.pods("crashes") for each in pod["status"].get("containerStatuses") or ()]
        return any((each["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff" for each in statuses)

    await until(waits)
    found = await explain(mine, "crashes")
    assert found["failedContainer"]["lastLines"] == ["broken"]


async def test_a_runtime_that_is_gone_is_missed_and_a_near_one_offered(quiet: tuple[Team, Cluster]) -> None:
    """No manager works there, so that nobody else says it."""
    mine, _ = quiet
    await apply_runtime(mine.client, runtime("torch-small"))
    await mine.submit("lost", "true", on="torch-smal")
    done = await mine.cli("explain", "lost")
    assert "1. RuntimeMissing (certain)" in done.out
    assert "ClusterTrainingRuntime torch-smal: does not exist" in done.out
    assert "did you mean 'torch-small'?" in done.out


async def test_a_job_that_does_not_exist_is_told_as_others_are(mine: Team) -> None:
    await mine.submit("digits", "true", suspend=True)
    done = await mine.cli("explain", "digit")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"trainmaster: no job 'digit' in namespace {mine.name}; did you mean 'digits'?",
        "trainmaster:   jobs there: digits",
    ]


async def test_of_a_job_that_was_deleted_events_still_tell(mine: Team) -> None:
    await mine.submit("gone", "exit 1")
    await mine.condition("gone", "Failed")
    await mine.client.delete(TRAINJOBS, mine.name, "gone")

    async def collected() -> bool:
        return not await mine.pods("gone")

    await until(collected)
    done = await mine.cli("explain", "gone")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == f"TrainJob {mine.name}/gone: Deleted"
    assert "1. ContainerFailed (certain)" in done.out
    assert re.search(r"TrainJob gone: rank 0 \(pod gone-node-0-0-\w+, container node\) failed at", done.out)
    assert re.search(r"  ContainerFailed: attempt 0: rank 0", done.out), done.out


async def test_a_worker_of_a_job_of_kubeflow_org_that_fails_is_named_also_when_the_job_is_gone(mine: Team) -> None:
    failing = job(
        "PyTorchJob", "ddp", {"Master": (1, ["sleep", "600"]), "Worker": (1, ["sh", "-c", "echo no data; exit 3"])}
    )
    failing["metadata"]["namespace"] = mine.name
    await mine.client.create(jobs("PyTorchJob"), failing)

    async def failed() -> bool:
        status = (await mine.client.get(jobs("PyTorchJob"), mine.name, "ddp")).get("status") or {}
        return any((each["type"], each["status"]) == ("Failed", "True") for each in status.get("conditions") or ())

    await until(failed)
    found = await explain(mine, "pytorchjob/ddp")
    assert found["causes"][0]["cause"] == "ContainerFailed"
    shown = found["failedContainer"]
    assert (shown["role"], shown["exitCode"], shown["lastLines"]) == ("worker 0", 3, ["no data"])

    await mine.client.delete(jobs("PyTorchJob"), mine.name, "ddp")

    async def collected() -> bool:
        return not (await mine.client.list(PODS, mine.name))["items"]

    await until(collected)
    for name in ("pytorchjob/ddp", "ddp"):
        done = await mine.cli("explain", name)
        assert done.code == 0, done.err
        assert done.out.splitlines()[0] == f"PyTorchJob {mine.name}/ddp: Deleted"
        assert "1. ContainerFailed (certain)" in done.out
        assert "Pod ddp-worker-0: exited with code 3" in done.out
    done = await mine.cli("explain", "trainjob/ddp")
    assert (done.code, done.out) == (2, ""), "no event tells of a TrainJob"


async def test_what_the_api_server_does_not_take_is_refused(mine: Team) -> None:
    """A runtime without an image: JobSet takes it, and its Jobs are refused."""
    bare = runtime(f"bare-{mine.name}")
    (replicated_job,) = bare["spec"]["template"]["spec"]["replicatedJobs"]
    del replicated_job["template"]["spec"]["template"]["spec"]["containers"][0]["image"]
    await apply_runtime(mine.client, bare)
    await mine.submit("imageless", "true", on=bare["metadata"]["name"])

    await mine.condition("imageless", "Blocked")
    done = await mine.cli("explain", "imageless")
    assert "1. Refused (certain)" in done.out
    assert "image: Required value" in done.out
    assert mine.advised("restart", "imageless") in done.out


async def test_a_job_of_kubeflow_org_is_explained_too(quiet: tuple[Team, Cluster]) -> None:
    mine, cluster = quiet
    await install_definitions(cluster.api, ("kubeflow.org_pytorchjobs.yaml",))
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    kind = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
    suspended = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "ddp", "namespace": mine.name},
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}},
        },
    }
    await mine.client.create(kind, suspended)
    done = await mine.cli("explain", "pytorchjob/ddp")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith(f"PyTorchJob {mine.name}/ddp: Suspended")
    assert f"   - resume it: {mine.advised('resume', 'pytorchjob/ddp')}" in lines
