"""First failures of TrainJobs on an API server, also when managers follow each other."""

import pytest
from support.failing_pods import show_failure
from support.installations import create_namespace
from support.objects import runtime_object, trainjob_object
from support.stack import Stack, manager
from support.training import conditions_of, found, until

from trainmaster.controller.kube.rest.resources import EVENTS
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

TEAM = "team"


@pytest.fixture(autouse=True)
async def namespace(stack: Stack) -> None:
    await create_namespace(stack.client, TEAM)
    await stack.client.create(TRAINING_RUNTIMES, runtime_object())


async def show(stack: Stack, message: str, *, attempt: int = 0) -> None:
    """Let the TrainJob fail, once it has its JobSet."""
    await until(lambda: found(stack.client, JOBSETS, "demo", namespace=TEAM))
    await show_failure(stack.client, TEAM, "demo", message=message, attempt=attempt)


async def told(stack: Stack) -> list[str]:
    """The lines of the condition."""
    held = conditions_of(await stack.client.get(TRAINJOBS, TEAM, "demo")).get("ContainerFailed")
    return held["message"].split("\n") if held else []


async def test_managers_that_follow_each_other_tell_each_attempt_once(stack: Stack) -> None:
    async def number_is(number: int) -> bool:
        return len(await told(stack)) == number

    async def events() -> list[JsonObject]:
        return [each for each in (await stack.client.list(EVENTS, TEAM))["items"] if each["type"] == "Warning"]

    async def are_three() -> bool:
        return len(await events()) == 3

    job = trainjob_object()
    await stack.client.create(TRAINJOBS, {**job, "metadata": {"name": "demo", "namespace": TEAM}})
    async with manager(stack.access):
        await show(stack, "ValueError: my loss is NaN")
        await until(lambda: number_is(1))
        (first,) = await told(stack)
        assert first.endswith("exit code 1: ValueError: my loss is NaN")
    async with manager(stack.access):
        await show(stack, "ValueError: again", attempt=1)
        await until(lambda: number_is(2))
        assert (await told(stack))[0] == first
    async with manager(stack.access):
        await show(stack, "ValueError: thrice", attempt=2)
        await until(lambda: number_is(3))
        await until(are_three)
    lines = await told(stack)
    assert {each["note"] for each in await events()} == set(lines)
    assert [line.partition(":")[0] for line in lines] == ["attempt 0", "attempt 1", "attempt 2"]
    about = {(each["reason"], each["regarding"]["kind"], each["regarding"]["name"]) for each in await events()}
    assert about == {("ContainerFailed", "TrainJob", "demo")}
