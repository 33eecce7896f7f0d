"""Clusters that lack something or refuse something: explain finds the reason in first place.

They are API servers on which no controllers work, but for a manager where a test starts one.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.explained import says
from support.job_faces import explanation
from support.processes import DEFINITIONS
from support.stack import Stack, api_server, manager
from support.training import apply_runtime, runtime, trainjob, until
from support.vandal import faulty, raise_key_error

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        await apply_runtime(stack.client, runtime())
        yield stack


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The state directory of the API server is where commands look for it."""
    (tmp_path / ".trainmaster").symlink_to(tmp_path / "cluster")
    return tmp_path


async def first(home: Path, name: str, cause: str, *words: str) -> None:
    """Wait until a cause comes first."""
    last: list[JsonObject] = []

    async def found() -> bool:
        last[:] = (await explanation(home, name))["causes"]
        return bool(last) and last[0]["cause"] == cause and says(last[0], *words)

    try:
        await until(found, timeout=25)
    except TimeoutError:
        raise AssertionError(last) from None


async def test_the_runtime_is_missing(stack: Stack, home: Path) -> None:
    """The webhook of a whole installation would refuse the job; here the manager comes after it."""
    await stack.client.create(TRAINJOBS, trainjob("waits", on="nobody-made-it"))
    async with manager(stack.access):
        await first(home, "waits", "RuntimeMissing", "nobody-made-it")


async def test_a_webhook_refuses_what_the_job_is_made_of(stack: Stack, home: Path) -> None:
    """One of somebody else, whose service is gone."""
    service = {"name": "policies", "namespace": "default", "path": "/validate"}
    rule = {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}
    webhook = {
        "name": "policies.example.com",
        "clientConfig": {"service": service},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": WEBHOOKS.kind, "webhooks": [webhook]}
    await stack.client.create(WEBHOOKS, {**configuration, "metadata": {"name": "policies"}})
    await stack.client.create(TRAINJOBS, trainjob("waits"))
    async with manager(stack.access):
        await first(
            home,
            "waits",
            "Refused",
            "its webhook policies.example.com calls Service default/policies/validate; failurePolicy Fail",
            "in namespace default has no endpoints, or does not exist",
        )


async def test_the_schema_refuses_what_the_job_is_made_of(stack: Stack, home: Path) -> None:
    """The definition of JobSets is one that knows less: of somebody else, or of an older release."""
    definition = await stack.client.get(DEFINITIONS, None, "jobsets.jobset.x-k8s.io")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["replicatedJobs"]["maxItems"] = 0
    await stack.client.update(DEFINITIONS, definition)
    await stack.client.create(TRAINJOBS, trainjob("waits"))
    async with manager(stack.access):
        await first(home, "waits", "Refused", "spec.replicatedJobs")


async def test_a_plugin_fails(stack: Stack, home: Path) -> None:
    plugin = faulty("enforce_ml_policy", raise_key_error)
    await stack.client.create(TRAINJOBS, trainjob("bad"))
    async with manager(stack.access, framework=Framework([*load_plugins(), plugin])):
        await first(home, "bad", "PluginFailed", "acme")
