"""Trees of events that readers get, where no handler changes or keeps them."""

from __future__ import annotations

from typing import Any

import pytest
from support.informers import event, pod, pod_list, run_until

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS


@pytest.mark.guarantee("S-8")
async def test_the_first_reader_gets_the_tree_of_an_event_after_all_handlers(server: Any, client: KubeClient) -> None:
    server.on("list", server.reply(200, pod_list(5, pod("a", 1))))
    server.on("watch", server.stream(event("ADDED", pod("b", 6)), event("MODIFIED", pod("b", 7)), then="hang"))
    informer = Informer(client, PODS, reuse_trees=True)
    shown: list[Any] = []
    read: list[Any] = []

    def look(delta: Delta) -> None:
        shown.append(delta.new)
        read.append(informer.store.get(delta.key))

    informer.add_event_handler(look)
    await run_until(informer, lambda: len(shown) == 3)
    assert read == shown == [pod("a", 1), pod("b", 6), pod("b", 7)]
    assert all(one is not other for one, other in zip(read, shown, strict=True))
    assert informer.store.get("ns/b") is shown[2]
    assert informer.store.get("ns/b") == pod("b", 7)
    assert informer.store.get("ns/b") is not shown[2]
