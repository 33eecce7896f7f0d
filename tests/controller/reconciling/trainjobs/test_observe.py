"""What a reconcile reads: from the caches once, from the server only what they lack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World

from trainmaster.controller.plugins.guard import PluginGuard
from trainmaster.controller.reconciling.outcomes import DONE, Requeue


class Bystander:
    """A plugin of somebody else."""

    name = "bystander"

    def enforce_pod_spec(self, info: Any, job: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("foreign", "jobsets"), [(False, ["JobSet"]), (True, ["JobSet", "JobSet"])])
async def test_each_object_is_decoded_once_unless_a_plugin_of_others_may_change_it(
    foreign: bool, jobsets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JobSet is read by the plugin that reports the status, and by the plan, which compares with it."""
    guard = PluginGuard(time_limit=60.0, failures=3, period=60.0)
    world = World(Bystander(), guard=guard) if foreign else World()
    world.put(trainjob_object(suspend=True), runtime_object())
    await world.reconcile()
    reads: list[str] = []
    for (_, kind), store in world.stores.items():

        def noted(read: Callable[..., Any], kind: str = kind) -> Callable[..., Any]:
            def reading(*arguments: str) -> Any:
                found = read(*arguments)
                found = list(found) if isinstance(found, Iterator) else found
                reads.extend([kind] * (len(found) if isinstance(found, list) else found is not None))
                return found

            return reading

        for method in ("get", "by_index", "body"):
            monkeypatch.setattr(store, method, noted(getattr(store, method)))
    await world.reconcile()
    assert sorted(reads) == ["ConfigMap", *jobsets, "TrainJob"]


@pytest.mark.parametrize("error", [SystemExit("no licence"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_plugin_that_would_end_the_process_blocks_its_trainjob_only(error: BaseException) -> None:
    class Leaver:
        name = "leaver"

        def enforce_pod_spec(self, info: Any, job: Any) -> None:
            raise error

    world = World(Leaver())
    world.put(trainjob_object(), runtime_object())
    assert isinstance(await world.reconcile(), Requeue)
    (blocked,) = (each for each in world.patches[-1]["status"]["conditions"] if each["type"] == "Blocked")
    assert blocked["reason"] == "PluginFailed"
    assert blocked["message"].startswith(f"plugin leaver failed in enforce_pod_spec: {type(error).__name__}")


async def test_a_runtime_that_the_cache_has_not_seen_is_asked_for_before_it_is_missing() -> None:
    """Two watches have no common order: the TrainJob may be seen before the runtime that was created first."""
    world = World()
    world.put(trainjob_object())
    world.server["TrainingRuntime", "team/rt"] = runtime_object()
    assert await world.reconcile() == DONE
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]
    assert (world.events, world.patches) == ([], [])


async def test_a_finished_trainjob_asks_for_no_runtime() -> None:
    world = World()
    condition = {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "done"}
    world.put(trainjob_object(status={"conditions": [condition]}))
    await world.reconcile()
    assert "get TrainingRuntime" not in world.requests
