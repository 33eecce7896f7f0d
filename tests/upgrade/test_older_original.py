"""What earlier versions left, of the Go controller and of Trainmaster: it is read, and goes on."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.objects import COMPLETE, SUSPENDED, runtime_object, trainjob_object
from support.original_crds import definitions_of, install, install_older_definitions
from support.stack import Stack, api_server, manager
from support.takeover import written_by_a_new_manager
from support.training import until

from trainmaster.controller.kube.rest.resources import CONFIGMAPS, NAMESPACES, Resource
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

TEAM = "team"
OVERRIDES = [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"pool": "gpu"}}}]
JOBS: dict[str, dict[str, Any]] = {
    # With ours a word would end all updates, also of the status: a rule of the definition cannot read it as a number.
    "running": {"trainer": {"numNodes": 2, "numProcPerNode": 4}, "podTemplateOverrides": OVERRIDES},
    "suspended": {"suspend": True, "trainer": {"numNodes": 2, "numProcPerNode": "auto"}, "labels": {"team": "vision"}},
    "complete": {"trainer": {"numProcPerNode": "gpu"}, "annotations": {"cost": "7"}},
}
STATUS: dict[str, JsonObject] = {"suspended": {"conditions": [SUSPENDED]}, "complete": {"conditions": [COMPLETE]}}


async def left_by_the_older_version(stack: Stack) -> None:
    """What is in the cluster: runtime and TrainJobs, and the JobSets that were built; there were no snapshots yet."""
    client = stack.client
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    await client.create(TRAINING_RUNTIMES, runtime_object(policy={"torch": {"numProcPerNode": "auto"}}))
    for name, spec in JOBS.items():
        obj = trainjob_object(name, **spec)
        obj["metadata"] = {"name": name, "namespace": TEAM}
        job = await client.create(TRAINJOBS, obj)
        if name in STATUS:
            await client.patch(TRAINJOBS, TEAM, name, {"status": STATUS[name]}, subresource="status")
        await client.apply(JOBSETS, jobset(job), field_manager="trainer", force=True)


def jobset(job: JsonObject) -> JsonObject:
    """The JobSet of a TrainJob, with the node selector of its overrides."""
    pod = {"nodeSelector": {"pool": "gpu"}, "containers": [{"name": "node", "image": "train:1"}]}
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": "TrainJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": owner["name"], "namespace": TEAM, "ownerReferences": [owner]},
        "spec": {
            "suspend": job["spec"].get("suspend", False),
            "replicatedJobs": [
                {"name": "node", "replicas": 1, "template": {"spec": {"template": {"spec": pod}, "completions": 2}}}
            ],
        },
    }


@pytest.fixture(params=["theirs", "ours"])
async def stack(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stack]:
    """A cluster with the older version's objects, before and after its definitions have been replaced by ours."""
    async with api_server(tmp_path) as stack:
        if stack.cluster is None:
            pytest.skip("the definitions of a foreign cluster stay as they are")
        ours = await definitions_of(stack)
        await install_older_definitions(stack)
        await left_by_the_older_version(stack)
        if request.param == "ours":
            await install(stack, ours)
        yield stack


async def held(stack: Stack, name: str) -> list[str]:
    status = (await stack.client.get(TRAINJOBS, TEAM, name)).get("status") or {}
    return [each["type"] for each in status.get("conditions", []) if each["status"] == "True"]


async def versions(stack: Stack, resource: Resource) -> dict[str, str]:
    items = (await stack.client.list(resource, TEAM))["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


async def test_jobs_of_an_older_version_run_on_until_they_end(stack: Stack) -> None:
    """What is written are the snapshots, which the older version did not make, and the end of the job that ends."""
    client = stack.client
    jobs, jobsets = await versions(stack, TRAINJOBS), await versions(stack, JOBSETS)

    async def has_snapshots() -> bool:
        return {"running-runtime-snapshot", "suspended-runtime-snapshot"} <= (await versions(stack, CONFIGMAPS)).keys()

    async def has_ended() -> bool:
        return "Complete" in await held(stack, "running")

    async with manager(stack.access):
        await until(has_snapshots)
        completed = {**COMPLETE, "type": "Completed"}
        ended = await client.patch(
            JOBSETS, TEAM, "running", {"status": {"conditions": [completed]}}, subresource="status"
        )
        await until(has_ended)
    assert await held(stack, "running") == ["Complete"]
    jobs_now, jobsets_now = await versions(stack, TRAINJOBS), await versions(stack, JOBSETS)
    assert jobs_now == {**jobs, "running": jobs_now["running"]}
    assert (await versions(stack, CONFIGMAPS)).keys() == {"running-runtime-snapshot", "suspended-runtime-snapshot"}
    assert jobsets_now == {
        **jobsets,
        "suspended": jobsets_now["suspended"],
        "running": ended["metadata"]["resourceVersion"],
    }


RECORDED = sorted(Path(__file__).parent.glob("*.journal.gz"))


@pytest.mark.parametrize("definitions", ["theirs", "ours"])
@pytest.mark.parametrize("journal", RECORDED, ids=lambda path: path.name.removesuffix(".journal.gz"))
async def test_nothing_is_written_after_an_upgrade(tmp_path: Path, journal: Path, definitions: str) -> None:
    async with api_server(tmp_path / "new") as stack:
        if stack.cluster is None:
            pytest.skip("the records are in the format of the embedded cluster")
        ours = await definitions_of(stack)
    recorded = tmp_path / "recorded/cluster"
    recorded.mkdir(parents=True, mode=0o700)
    (recorded / "journal").write_bytes(gzip.decompress(journal.read_bytes()))
    async with api_server(tmp_path / "recorded") as stack:
        if definitions == "ours":
            await install(stack, ours)
        assert await written_by_a_new_manager(stack, "upgrade-") == set()


def test_a_version_was_recorded() -> None:
    assert RECORDED
