"""The Secrets of TrainJobs are made by requests that can do nothing else: no right to change Secrets is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.stack import Stack, api_server, manager
from support.training import until

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import NAMESPACES, SECRETS
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.testing.faults import Refuse, StallWatch
from trainmaster.runtime.jsontree import JsonObject

TEAM, KEYS = "team", "demo-mpi-ssh-auth"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        if stack.cluster is None:
            pytest.skip("requests of a foreign cluster cannot be refused")
        stack.cluster.faults.add(Refuse(403, message="no"), verb="patch", resource="secrets")
        await stack.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        jobs = (replicated_job("launcher"), replicated_job(ancestor=None))
        await stack.client.create(TRAINING_RUNTIMES, runtime_object(*jobs, policy={"mpi": {}}))
        yield stack


async def create_job(stack: Stack) -> None:
    job = trainjob_object()
    job["metadata"] = {"name": "demo", "namespace": TEAM}
    await stack.client.create(TRAINJOBS, job)


def has_jobset(stack: Stack) -> Callable[[], Any]:
    async def ask() -> bool:
        try:
            await stack.client.get(JOBSETS, TEAM, "demo")
        except NotFound:
            return False
        return True

    return ask


async def test_a_job_with_keys_is_built_without_the_right_to_change_secrets(stack: Stack) -> None:
    async with manager(stack.access):
        await create_job(stack)
        await until(has_jobset(stack))
        secret = await stack.client.get(SECRETS, TEAM, KEYS)
        assert secret["immutable"] is True
        assert {entry["manager"] for entry in secret["metadata"]["managedFields"]} == {"trainer"}
        # One that is lost is made again.
        await stack.client.delete(SECRETS, TEAM, KEYS)

        async def is_back() -> bool:
            return KEYS in {item["metadata"]["name"] for item in (await stack.client.list(SECRETS, TEAM))["items"]}

        await until(is_back)


async def test_somebody_elses_secret_of_the_name_is_told_though_no_cache_shows_it(stack: Stack) -> None:
    """It is not used: whoever made it knows the key."""
    assert stack.cluster is not None
    # The snapshot, that there are none, still arrives.
    stack.cluster.faults.add(StallWatch(after=1), verb="watch", resource="secrets")
    foreign: JsonObject = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEYS, "namespace": TEAM},
        "stringData": {"ssh-privatekey": "theirs"},
    }

    async def is_blocked() -> str | None:
        status = (await stack.client.get(TRAINJOBS, TEAM, "demo")).get("status") or {}
        return next((each["message"] for each in status.get("conditions", []) if each["reason"] == "NameTaken"), None)

    async with manager(stack.access):
        await stack.client.create(SECRETS, foreign)
        await create_job(stack)
        assert f'Secret "{KEYS}" exists and does not belong to this TrainJob' in await until(is_blocked)
        assert not await has_jobset(stack)()
