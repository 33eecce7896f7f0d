"""What the manager would write for the TrainJobs that are there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.doctor import findings, only_finding
from support.objects import COMPLETE, runtime_object, trainjob_object
from support.stack import Stack, api_server, manager
from support.training import until

from trainmaster.controller.cli.doctor.facts import DEFINITIONS, VOLCANO
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        await stack.client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await stack.client.create(TRAINING_RUNTIMES, runtime_object())
        yield stack


def new(name: str, **spec: Any) -> JsonObject:
    job = trainjob_object(name, **spec)
    return {**job, "metadata": {"name": name, "namespace": "team"}}


async def has_jobset(stack: Stack) -> bool:
    return bool((await stack.client.list(JOBSETS, "team"))["items"])


async def test_a_settled_trainjob_is_left_alone_and_a_new_one_is_not(stack: Stack) -> None:
    await stack.client.create(TRAINJOBS, new("old"))
    assert await only_finding(stack, "trainjobs") == (
        "warn: 1 TrainJob, 0 finished: the manager would write for 1 of them: team/old: ConfigMap "
        "old-runtime-snapshot, JobSet old; see whether that is wanted; for one that is new, or was "
        "changed just now, any manager writes"
    )
    async with manager(stack.access):
        await until(lambda: has_jobset(stack))
    assert await only_finding(stack, "trainjobs") == (
        "ok: 1 TrainJob, 0 finished: the manager would write nothing for them"
    )
    before = await stack.client.list(TRAINJOBS)
    await findings(stack)
    assert (await stack.client.list(TRAINJOBS))["items"] == before["items"], "it only looks"


async def test_those_of_others_those_that_ended_and_those_that_cannot_be_built(stack: Stack) -> None:
    await stack.client.create(TRAINJOBS, new("theirs", managedBy="kueue.x-k8s.io/multikueue"))
    lost = new("lost", runtimeRef={"kind": "TrainingRuntime", "name": "nowhere"})
    await stack.client.create(TRAINJOBS, lost)
    ended = await stack.client.create(TRAINJOBS, new("ended"))
    await stack.client.update(TRAINJOBS, {**ended, "status": {"conditions": [COMPLETE]}}, subresource="status")
    assert (await findings(stack))["trainjobs"] == [
        (
            "warn: 3 TrainJobs, 1 finished, 1 of other controllers: the manager would write for 1 of them: team/lost: "
            "its status; see whether that is wanted; for one that is new, or was changed just now, any manager writes"
        ),
        (
            "warn: 1 of them could not be built: team/lost: RuntimeNotFound: TrainingRuntime specified in TrainJob is "
            'not found: TrainingRuntime.trainer.kubeflow.org "nowhere" not found; correct them, or the plugins of the '
            "configuration"
        ),
    ]
    assert await only_finding(stack, "trainjobs", watchNamespaces=["other"]) == (
        "ok: 0 TrainJobs, 0 finished: the manager would write nothing for them"
    )


async def test_runtimes_whose_plugin_or_gang_scheduler_is_not_there(stack: Stack) -> None:
    # Runtimes whose plugin is not there.
    served = runtime_object()
    served["metadata"]["name"] = "served"
    served["spec"]["mlPolicy"] = {"custom": {"name": "acme", "config": {"deep": {"any": ["thing"]}}}}
    await stack.client.create(TRAINING_RUNTIMES, served)
    assert await only_finding(stack, "runtimes") == (
        "warn: TrainingRuntime team/served: spec.mlPolicy.custom.name: no plugin of the name 'acme' is loaded; "
        "until one serves it, TrainJobs of this runtime are not built; correct the runtime, or install the plugin "
        "that it is meant for in the image of the manager"
    )
    # Runtimes whose gang scheduler is not there.
    gang = runtime_object()
    gang["metadata"]["name"] = "gang"
    gang["spec"]["podGroupPolicy"] = {"volcano": {}}
    await stack.client.create(TRAINING_RUNTIMES, gang)
    assert "gang-scheduling" not in await findings(stack)
    await stack.client.delete(DEFINITIONS, None, VOLCANO)
    assert await only_finding(stack, "gang-scheduling") == (
        "warn: these runtimes have podGroupPolicy.volcano, and podgroups.scheduling.volcano.sh is not there: gang; "
        "install that scheduler, or their TrainJobs are not built"
    )
