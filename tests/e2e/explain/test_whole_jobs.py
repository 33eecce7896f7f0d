"""Jobs that somebody or something keeps from running as a whole, or ends: explain finds the reason in first place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.commands import client_of
from support.explained import explained, runtime_with
from support.training import apply_runtime, conditions, python, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.cluster import NODE_NAME
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
SLEEPS = python("import time; time.sleep(600)")
FAILS = python("raise ValueError('my loss is NaN')")


def gang(name: str, policy: JsonObject, scheduler: str, cpus: str) -> JsonObject:
    """A runtime whose pods start together, each of which takes the whole node."""
    obj = runtime_with(name, schedulerName=scheduler, container={"resources": {"requests": {"cpu": cpus}}})
    obj["spec"]["podGroupPolicy"] = policy
    return obj


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    """A cluster on which all the jobs are side by side."""
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        node = await client.get(NODES, None, NODE_NAME)
        cpus: str = node["status"]["allocatable"]["cpu"]
        await apply_runtime(client, runtime_with("whole"))
        await apply_runtime(client, runtime_with("whole-again", backoff_limit=2))
        await apply_runtime(
            client, gang("whole-coscheduling", {"coscheduling": {}}, "scheduler-plugins-scheduler", cpus)
        )
        await apply_runtime(client, gang("whole-volcano", {"volcano": {}}, "volcano", cpus))
        for name, on, spec in (
            ("on-hold", "whole", {"suspend": True}),
            ("too-slow", "whole", {"activeDeadlineSeconds": 1}),
            ("too-often", "whole-again", {"trainer": {"command": FAILS}}),
            ("elsewhere", "whole", {"managedBy": "kueue.x-k8s.io/multikueue"}),
            ("together", "whole-coscheduling", {"trainer": {"numNodes": 3, "command": SLEEPS}}),
            ("at-once", "whole-volcano", {"trainer": {"numNodes": 3, "command": SLEEPS}}),
            ("short", "whole", {"trainer": {"command": ["true"]}, "ttlSecondsAfterFinished": 0}),
        ):
            await client.create(TRAINJOBS, trainjob(name, on=on, **{"trainer": {"command": SLEEPS}, **spec}))
        yield client
        for name in ("on-hold", "too-slow", "too-often", "elsewhere", "together", "at-once"):
            await client.delete(TRAINJOBS, "default", name)


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("on-hold", "Suspended", ("trainmaster resume on-hold",)),
        ("elsewhere", "AnotherManagerLeads", ("spec.managedBy is kueue.x-k8s.io/multikueue",)),
        ("together", "GangIncomplete", ("starts when 3 of its pods can", "Insufficient cpu")),
        ("at-once", "GangIncomplete", ("starts when 3 of its pods can", "overused")),
        ("too-slow", "DeadlineExceeded", ("activeDeadlineSeconds",)),
        ("short", "TimeToLiveExpired", ()),
    ],
)
async def test_the_reason_comes_first(
    client: KubeClient, cluster_home: Path, name: str, cause: str, words: tuple[str, ...]
) -> None:
    await explained(cluster_home, name, cause, *words)


async def test_a_limit_of_restarts_is_no_cause_where_the_last_failure_is_known(
    client: KubeClient, cluster_home: Path
) -> None:
    async def has_failed() -> bool:
        return "Failed" in await conditions(client, "too-often")

    await until(has_failed)
    said = await explained(cluster_home, "too-often", "ContainerFailed", "my loss is NaN")
    assert [each["cause"] for each in said["causes"]] == ["ContainerFailed"]
