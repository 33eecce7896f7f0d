"""Fixtures of the conformance suite: one target for all tests of a process, one namespace for each test."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support.conformance import (
    Client,
    Collection,
    Target,
    connected,
    definition,
    definitions,
    install,
    new_namespace,
    running_target,
)
from support.samples import GROUP

from trainmaster.runtime.jsontree import JsonObject

WIDGET_SPEC: JsonObject = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100},
        "name": {"type": "string", "minLength": 2, "maxLength": 8},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "code": {"type": "string", "pattern": "^[a-z]+-[0-9]+$"},
        "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "step": {"type": "integer", "multipleOf": 5},
        "enabled": {"type": "boolean"},
        "when": {"type": "string", "format": "date-time"},
        "target": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "level": {"type": "integer", "default": 3},
        "nested": {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "default": "auto"},
                "limit": {"type": "integer"},
                "fixed": {
                    "type": "string",
                    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is fixed"}],
                },
            },
        },
        "defaulted": {"type": "object", "default": {}, "properties": {"mode": {"type": "string", "default": "manual"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 3},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            },
        },
        "steps": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
        "pair": {"type": "array", "minItems": 2, "items": {"type": "integer"}},
        "point": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        },
        "either": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "embedded": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}
"""A schema with one field for every keyword that the tests are about."""

WIDGET_COLUMNS: list[JsonObject] = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "The color", "priority": 1},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
]


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The server under test."""
    with running_target(tmp_path_factory.mktemp("conformance")) as running:
        yield running


@pytest.fixture
async def client(target: Target) -> AsyncIterator[Client]:
    async with connected(target.access) as opened:
        yield opened


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace that belongs to one test."""
    async with new_namespace(client) as name:
        yield name


def _collection(resource: str, api_version: str = "v1") -> Any:
    """A fixture: the objects of a resource in the namespace of a test."""

    @pytest.fixture
    def collection(client: Client, namespace: str) -> Collection:
        return client.collection(api_version, resource, namespace)

    return collection


configmaps, secrets, services = _collection("configmaps"), _collection("secrets"), _collection("services")
leases, jobs = _collection("leases", "coordination.k8s.io/v1"), _collection("jobs", "batch/v1")
core, events = _collection("events"), _collection("events", "events.k8s.io/v1")


@pytest.fixture
def namespaces(client: Client) -> Collection:
    return client.collection("v1", "namespaces")


@pytest.fixture
async def pods(client: Client, namespace: str) -> Collection:
    """Pods of a test that run under the service account `runner`: that of a new namespace comes a little later."""
    await client.collection("v1", "serviceaccounts", namespace).made({"metadata": {"name": "runner"}})
    return client.collection("v1", "pods", namespace)


@pytest.fixture(scope="session")
def widget_definition(target: Target) -> Iterator[JsonObject]:
    crd = definition(
        WIDGET_SPEC, kind="Widget", group=GROUP, columns=WIDGET_COLUMNS, selectableFields=[{"jsonPath": ".spec.color"}]
    )
    name = crd["metadata"]["name"]

    async def start() -> None:
        async with connected(target.access) as opened:
            await install(opened, crd)

    async def stop() -> None:
        async with connected(target.access) as opened:
            await definitions(opened).delete(name)

    target.run(start())
    yield crd
    target.run(stop())


@pytest.fixture
def widgets(client: Client, namespace: str, widget_definition: JsonObject) -> Collection:
    """Custom resources with a status subresource and a schema that has one of everything."""
    return client.collection(f"{GROUP}/v1", widget_definition["spec"]["names"]["plural"], namespace)
