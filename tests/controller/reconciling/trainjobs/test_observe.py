"""What a reconcile reads: from the caches once, from the server only what they lack."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World, world_with

from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.runtime.jsontree import JsonObject


async def test_each_object_is_decoded_once_in_a_reconcile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, status and plugins look at the same JobSet, and at the same moment of it."""
    world = world_with(suspend=True)
    await world.reconcile()
    reads: list[str] = []
    for (_, kind), store in world.stores.items():
        original = store.get

        def get(key: str, kind: str = kind, original: Any = original) -> JsonObject | None:
            found: JsonObject | None = original(key)
            if found is not None:
                reads.append(kind)
            return found

        monkeypatch.setattr(store, "get", get)
    await world.reconcile()
    assert sorted(reads) == ["ConfigMap", "JobSet", "TrainJob"]


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
