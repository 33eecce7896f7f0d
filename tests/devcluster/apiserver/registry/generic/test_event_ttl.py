"""The time to live of events."""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import EVENTS, EVENTS_V1, NAMESPACES
from trainmaster.devcluster.apiserver.storage import Journal, Store
from trainmaster.runtime.jsontree import copy_tree


def old_style(name: str = "old") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "hello",
        "reason": "Pulled",
        "type": "Normal",
        "source": {"component": "kubelet"},
    }


async def test_events_live_for_an_hour_after_their_last_write(api: Api, clock: Any) -> None:
    await api.create(EVENTS, old_style("first"), namespace="default")
    made = copy_tree(await api.create(EVENTS, old_style("second"), namespace="default"))
    clock.advance(minutes=30)
    await api.update(EVENTS, {**made, "count": 2}, namespace="default")
    clock.advance(minutes=30)
    watch = api.watch(EVENTS, since=api.revision - 1)
    assert [record.metadata["name"] for record in api.list(EVENTS)[0]] == ["second"]
    clock.advance(minutes=30)
    assert api.list(EVENTS_V1)[0] == []
    watch.close()


async def test_events_grow_old_across_restarts(tmp_path: Any, clock: Any) -> None:
    store = Store(journal=Journal(tmp_path / "journal"))
    api = Api(store, builtin_registry(), clock=clock)
    await api.create(NAMESPACES, {"metadata": {"name": "default"}})
    await api.create(EVENTS, {**old_style(), "lastTimestamp": "2026-01-02T03:04:05Z"}, namespace="default")
    store.close()
    clock.advance(minutes=59)
    store = Store(journal=Journal(tmp_path / "journal"))
    api = Api(store, builtin_registry(), clock=clock)
    assert len(api.list(EVENTS)[0]) == 1
    clock.advance(minutes=1)
    assert api.list(EVENTS)[0] == []
    store.close()
