"""Runtimes that still carry the finalizer of earlier versions."""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.objects import runtime_object

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Conflict, NotFound
from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.controller.reconciling.runtimes import RuntimeReconciler
from trainmaster.controller.resources import TRAINING_RUNTIMES
from trainmaster.runtime.api.constants import LEGACY_FINALIZER
from trainmaster.runtime.jsontree import JsonObject

KEY = "team/rt"


class Client:
    def __init__(self) -> None:
        self.patches: list[Any] = []
        self.failure: Exception | None = None

    async def patch(self, resource: object, namespace: str, name: str, patch: Any) -> JsonObject:
        self.patches.append(patch)
        if self.failure is not None:
            raise self.failure
        return {}


def made(*finalizers: str) -> tuple[Client, RuntimeReconciler]:
    client, store = Client(), Store()
    runtime = runtime_object()
    runtime["metadata"] |= {"resourceVersion": "7", "uid": "r"}
    if finalizers:
        runtime["metadata"]["finalizers"] = list(finalizers)
    store.put(runtime)
    return client, RuntimeReconciler(cast("KubeClient", client), TRAINING_RUNTIMES, store)


@pytest.mark.guarantee("F-2")
@pytest.mark.parametrize(("others", "left"), [([], None), (["acme.io/keep"], ["acme.io/keep"])])
async def test_the_old_finalizer_goes_and_those_of_others_stay(others: list[str], left: list[str] | None) -> None:
    client, reconciler = made(LEGACY_FINALIZER, *others)
    assert await reconciler.reconcile(KEY) == DONE
    assert client.patches == [{"metadata": {"resourceVersion": "7", "finalizers": left}}]


@pytest.mark.guarantee("F-2")
async def test_a_runtime_without_it_is_left_alone() -> None:
    client, reconciler = made("acme.io/keep")
    assert await reconciler.reconcile(KEY) == DONE
    assert await reconciler.reconcile("team/unknown") == DONE
    assert client.patches == []


@pytest.mark.guarantee("F-2")
async def test_what_is_gone_meanwhile_is_done_and_what_changed_is_read_again() -> None:
    client, reconciler = made(LEGACY_FINALIZER)
    client.failure = NotFound(status=404)
    assert await reconciler.reconcile(KEY) == DONE
    client.failure = Conflict(status=409)
    with pytest.raises(Conflict):
        await reconciler.reconcile(KEY)
