"""Metrics of TrainJobs as one manager serves them, which are of the namespaces that it serves and of no others."""

from __future__ import annotations

import pytest
from support.failing_pods import show_counts
from support.installations import create_namespace
from support.objects import trainjob_object
from support.scraped import scrape, total
from support.stack import QUIET, api_server, manager
from support.training import apply_runtime, found, runtime, until

from trainmaster.controller.configuration import Metrics
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

SERVED, OTHER = "served", "other"


def training(name: str, namespace: str) -> JsonObject:
    job = trainjob_object(name, runtimeRef={"name": "processes"})
    return {**job, "metadata": {"name": name, "namespace": namespace}}


@pytest.mark.guarantee("K-15")
async def test_of_other_namespaces_nothing_is_counted_and_a_new_manager_counts_nothing_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What is deleted while no manager runs is gone for the next one."""
    async with api_server(tmp_path_factory.mktemp("metrics")) as stack:
        if stack.cluster is None:
            pytest.skip("the states of JobSets belong to others on a foreign cluster")
        await apply_runtime(stack.client, runtime())
        for namespace in (SERVED, OTHER):
            await create_namespace(stack.client, namespace)
            await stack.client.create(TRAINJOBS, training("runs", namespace))
        await stack.client.create(TRAINJOBS, training("waits", SERVED))
        port = free_port()
        configuration = QUIET.model_copy(
            update={
                "watch_namespaces": [SERVED],
                "metrics": Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False),
            }
        )
        async with manager(stack.access, configuration=configuration):
            await until(lambda: found(stack.client, JOBSETS, "runs", namespace=SERVED))
            await show_counts(stack.client, SERVED, "runs", active=1, ready=1)
            await until(lambda: states_are(port, Running=1, Waiting=1))
            report = {"trainerStatus": {"progressPercentage": 5, "lastUpdatedTime": "2126-01-01T00:00:00Z"}}
            reported = "trainmaster_trainjob_time_to_progress_seconds_count"
            before = total(await scrape(port), reported)
            for _ in range(2):
                await stack.client.patch(TRAINJOBS, SERVED, "runs", {"status": report}, subresource="status")
                report["trainerStatus"] = {"progressPercentage": 6, "lastUpdatedTime": "2126-01-01T00:01:00Z"}
            await until(lambda: has_counted(port, reported, before + 1))
            first = await scrape(port)
        counted = "trainmaster_trainjob_time_to_running_seconds_count"
        await stack.client.delete(TRAINJOBS, SERVED, "waits")
        async with manager(stack.access, configuration=configuration):
            await until(lambda: states_are(port, Running=1))
            second = await scrape(port)
            assert total(second, counted, runtime="processes") == total(first, counted, runtime="processes")
            assert total(second, reported) == before + 1
            assert total(second, "trainmaster_trainjob_nodes", state="Running") == 1


async def has_counted(port: int, name: str, value: float) -> bool:
    return total(await scrape(port), name) == value


async def states_are(port: int, **expected: int) -> bool:
    """Whether so many TrainJobs are in these states, and none in others."""
    samples = [each for each in await scrape(port) if each.name == "trainmaster_trainjobs" and each.value]
    return {each.labels["state"]: each.value for each in samples} == expected
