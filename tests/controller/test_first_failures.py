"""First failures of TrainJobs on an API server, also when managers follow each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.failing_pods import show_counts, show_failure, show_unschedulable
from support.objects import runtime_object, trainjob_object
from support.stack import Stack, api_server, manager
from support.training import until

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import EVENTS, NAMESPACES
from trainmaster.controller.reconciling.trainjobs import first_failure_reporter, waiting
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.testing.faults import Delay
from trainmaster.runtime.jsontree import JsonObject

TEAM = "team"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        if stack.cluster is None:
            pytest.skip("the states of pods and JobSets belong to others on a foreign cluster")
        await stack.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        await stack.client.create(TRAINING_RUNTIMES, runtime_object())
        yield stack


async def create(stack: Stack, name: str = "demo") -> None:
    job = trainjob_object()
    job["metadata"] = {"name": name, "namespace": TEAM}
    await stack.client.create(TRAINJOBS, job)

    async def has_jobset() -> bool:
        try:
            await stack.client.get(JOBSETS, TEAM, name)
        except NotFound:
            return False
        return True

    await until(has_jobset)


async def told(stack: Stack, *, lines: int) -> list[str]:
    """Wait until the condition has so many lines."""

    async def ask() -> list[str] | None:
        conditions = ((await stack.client.get(TRAINJOBS, TEAM, "demo")).get("status") or {}).get("conditions") or ()
        found = [
            line for each in conditions if each["type"] == "ContainerFailed" for line in each["message"].split("\n")
        ]
        return found if len(found) == lines else None

    found: list[str] = await until(ask)
    return found


async def events(stack: Stack, *, number: int) -> list[JsonObject]:
    """Wait until there are so many of them."""

    async def ask() -> list[JsonObject] | None:
        found = [each for each in (await stack.client.list(EVENTS, TEAM))["items"] if each["type"] == "Warning"]
        return found if len(found) == number else None

    found: list[JsonObject] = await until(ask)
    return found


async def test_managers_that_follow_each_other_tell_each_attempt_once(stack: Stack) -> None:
    async with manager(stack.access):
        await create(stack)
        await show_failure(stack.client, TEAM, "demo", message="ValueError: my loss is NaN")
        (first,) = await told(stack, lines=1)
        assert first.endswith("exit code 1: ValueError: my loss is NaN")
    async with manager(stack.access):
        await show_failure(stack.client, TEAM, "demo", message="ValueError: again", attempt=1)
        assert (await told(stack, lines=2))[0] == first
    async with manager(stack.access):
        await show_failure(stack.client, TEAM, "demo", message="ValueError: thrice", attempt=2)
        lines = await told(stack, lines=3)
        notes = {each["note"] for each in await events(stack, number=3)}
    assert notes == set(lines)
    assert [line.partition(":")[0] for line in lines] == ["attempt 0", "attempt 1", "attempt 2"]


async def test_a_job_whose_pods_do_not_start_says_why_until_they_do(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits are shortened: a second instead of ten, and none instead of half a minute."""
    monkeypatch.setattr(first_failure_reporter, "FIRST_LOOK", 1.0)
    monkeypatch.setattr(waiting, "PATIENCE", timedelta())
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."

    async def waits() -> JsonObject | None:
        listed = ((await stack.client.get(TRAINJOBS, TEAM, "demo")).get("status") or {}).get("conditions") or ()
        return next((each for each in listed if each["type"] == "Waiting"), None)

    async with manager(stack.access):
        await create(stack)
        await show_unschedulable(stack.client, TEAM, "demo", message=message)
        told: JsonObject = await until(waits)
        assert told["reason"] == "Unschedulable"
        assert message in told["message"]
    async with manager(stack.access):
        await show_counts(stack.client, TEAM, "demo", active=1, ready=1)

        async def is_gone() -> bool:
            return await waits() is None

        await until(is_gone)


async def test_the_event_is_a_warning_about_the_trainjob(stack: Stack) -> None:
    async with manager(stack.access):
        await create(stack)
        await show_failure(stack.client, TEAM, "demo", message="ValueError: my loss is NaN")
        (event,) = await events(stack, number=1)
    regarding = {name: event["regarding"][name] for name in ("kind", "name")}
    assert (event["type"], event["reason"], regarding) == (
        "Warning",
        "ContainerFailed",
        {"kind": "TrainJob", "name": "demo"},
    )


async def test_healthy_jobs_cost_no_request_for_pods(stack: Stack) -> None:
    """Twenty come and end well; then one fails, so that this test could see a request."""
    assert stack.cluster is not None
    async with manager(stack.access):
        lists = stack.cluster.faults.add(Delay(0.0), verb="list", resource="pods", user_agent="trainmaster/")
        done = {
            "type": "Completed",
            "status": "True",
            "reason": "AllJobsCompleted",
            "message": "jobset completed successfully",
            "lastTransitionTime": "2026-01-01T00:05:00Z",
        }
        for number in range(20):
            name = f"fine-{number}"
            await create(stack, name)
            await show_counts(stack.client, TEAM, name, active=1)
            await show_counts(stack.client, TEAM, name, active=1, ready=1)
            await show_counts(stack.client, TEAM, name, succeeded=1)
            await stack.client.patch(JOBSETS, TEAM, name, {"status": {"conditions": [done]}}, subresource="status")

        async def all_complete() -> bool:
            jobs = (await stack.client.list(TRAINJOBS, TEAM))["items"]
            return all((job.get("status") or {}).get("conditions") for job in jobs)

        await until(all_complete)
        assert lists.count == 0
        await create(stack)
        await show_failure(stack.client, TEAM, "demo", message="ValueError: my loss is NaN")
        await told(stack, lines=1)
        assert lists.count == 1
