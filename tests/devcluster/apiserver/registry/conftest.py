"""An Api with a clock that tests move, the seeded namespaces, and a small custom resource."""

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CRDS
from trainmaster.devcluster.apiserver.storage import Store


class MovableClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def api(clock: MovableClock) -> Api:
    api = Api(Store(), builtin_registry(), clock=clock, chooser=random.Random(1))
    await create_system_namespaces(api)
    return api


Define = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def define(api: Api) -> Define:
    """Create the definition of widgets, a kind with a status and one immutable field."""

    async def create(**names: Any) -> dict[str, Any]:
        plural = names.get("plural", "widgets")
        schema = {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["size"],
                    "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "mode": {"type": "string", "default": "fast", "enum": ["fast", "slow"]},
                        "owner": {
                            "type": "string",
                            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "owner is immutable"}],
                        },
                    },
                },
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        }
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": "Widget"} | names,
                "versions": [version],
            },
        }
        return await api.create(CRDS, definition)

    return create
