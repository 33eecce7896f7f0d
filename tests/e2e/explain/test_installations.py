"""Clusters that lack something or refuse something: explain finds the reason in first place.

They are API servers on which no controllers work, but for a manager where a test starts one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.explained import explanation, says
from support.faulty_plugins import faulty, raise_key_error
from support.stack import Stack, api_server, manager
from support.training import apply_runtime, runtime, trainjob, until

from trainmaster.controller.kube.rest.resources import LEASES, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

CRDS = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
KUEUE = "kueue.x-k8s.io"
WORKLOADS = Resource(KUEUE, "v1beta1", "Workload", "workloads", namespaced=True)
LOCAL_QUEUES = Resource(KUEUE, "v1beta1", "LocalQueue", "localqueues", namespaced=True)
CLUSTER_QUEUES = Resource(KUEUE, "v1beta1", "ClusterQueue", "clusterqueues", namespaced=False)


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


@pytest.fixture
def a_minute_ago(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server stamps is a minute old: what should follow within half a minute is missed at once."""
    assert stack.cluster is not None
    monkeypatch.setattr(stack.cluster.api._writer, "_clock", lambda: datetime.now(UTC) - timedelta(minutes=1))


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


@pytest.mark.usefixtures("a_minute_ago")
async def test_no_manager_is_at_work(stack: Stack, home: Path) -> None:
    await stack.client.create(TRAINJOBS, trainjob("waits"))
    await first(home, "waits", "ManagerAbsent", "has no status, no snapshot and no JobSet", "trainmaster doctor")


@pytest.mark.usefixtures("a_minute_ago")
async def test_another_manager_leads(stack: Stack, home: Path) -> None:
    """It renews the lease for which managers compete, and does nothing about the job."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    held = {"holderIdentity": "somebody_1", "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": held}
    await stack.client.create(LEASES, {**lease, "metadata": {"name": "trainer.kubeflow.org", "namespace": "default"}})
    await stack.client.create(TRAINJOBS, trainjob("waits"))
    await first(home, "waits", "AnotherManagerLeads", "is held by somebody_1")


@pytest.mark.usefixtures("a_minute_ago")
async def test_the_controller_of_jobsets_is_absent(stack: Stack, home: Path) -> None:
    async with manager(stack.access):
        await stack.client.create(TRAINJOBS, trainjob("waits"))
        await first(home, "waits", "JobSetControllerAbsent", "jobset-system")


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
    definition = await stack.client.get(CRDS, None, "jobsets.jobset.x-k8s.io")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["replicatedJobs"]["maxItems"] = 0
    await stack.client.update(CRDS, definition)
    await stack.client.create(TRAINJOBS, trainjob("waits"))
    async with manager(stack.access):
        await first(home, "waits", "Refused", "spec.replicatedJobs")


async def test_a_plugin_fails(stack: Stack, home: Path) -> None:
    plugin = faulty("enforce_ml_policy", raise_key_error)
    await stack.client.create(TRAINJOBS, trainjob("bad"))
    async with manager(stack.access, framework=Framework([*load_plugins(), plugin])):
        await first(home, "bad", "PluginFailed", "acme")


async def define_kueue(stack: Stack) -> None:
    """Kueue is not there: its definitions take anything, and what it writes is written as it writes it."""
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": open_schema}}
    for resource in (WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES):
        names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
        scope = "Namespaced" if resource.namespaced else "Cluster"
        spec = {"group": KUEUE, "names": {**names, "listKind": f"{resource.kind}List"}, "scope": scope}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": CRDS.kind, "metadata": {"name": resource.name}}
        await stack.client.create(CRDS, {**definition, "spec": {**spec, "versions": [version]}})


async def make(stack: Stack, resource: Resource, name: str, **fields: Any) -> None:
    metadata: JsonObject = {"name": name, **({"namespace": "default"} if resource.namespaced else {})}
    metadata |= fields.pop("metadata", {})
    await stack.client.create(
        resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
    )


def owned_by(job: JsonObject) -> JsonObject:
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True}
    return {"ownerReferences": [{**owner, "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}]}


def in_queue(name: str, queue: str) -> JsonObject:
    job: JsonObject = trainjob(name, suspend=True)
    job["metadata"]["labels"] = {f"{KUEUE}/queue-name": queue}
    return job


async def test_a_queue_of_kueue_has_no_room_or_does_not_exist(stack: Stack, home: Path) -> None:
    await define_kueue(stack)
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    cpus = [{"name": "cpu", "nominalQuota": "8", "total": "8"}]
    flavors = [{"name": "default", "resources": cpus}]
    await make(stack, LOCAL_QUEUES, "team", spec={"clusterQueue": "everybody"})
    await make(
        stack,
        CLUSTER_QUEUES,
        "everybody",
        spec={"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]},
        status={"flavorsReservation": flavors, "pendingWorkloads": 1},
    )
    greedy = await stack.client.create(TRAINJOBS, trainjob("greedy", suspend=True))
    admitted = {
        "admission": {
            "clusterQueue": "everybody",
            "podSetAssignments": [{"name": "node", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "8"}}],
        },
        "conditions": [{"type": kind, "status": "True", **since} for kind in ("QuotaReserved", "Admitted")],
    }
    spec = {"queueName": "team"}
    await make(stack, WORKLOADS, "trainjob-greedy-9f8e7", metadata=owned_by(greedy), spec=spec, status=admitted)
    queued = await stack.client.create(TRAINJOBS, in_queue("queued", "team"))
    message = "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor default"
    pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message, **since}
    status = {"conditions": [pending]}
    await make(stack, WORKLOADS, "trainjob-queued-1a2b3", metadata=owned_by(queued), spec=spec, status=status)
    lost = await stack.client.create(TRAINJOBS, in_queue("lost", "nobody-made-it"))
    said = {**pending, "reason": "Inadmissible", "message": "LocalQueue doesn't exist"}
    spec, status = {"queueName": "nobody-made-it"}, {"conditions": [said]}
    await make(stack, WORKLOADS, "trainjob-lost-2b3c4", metadata=owned_by(lost), spec=spec, status=status)
    async with manager(stack.access):
        await first(
            home,
            "queued",
            "QuotaExceeded",
            message,
            "has given away 8 of 8 cpu in flavor default; 1 workload waits for it",
            "holds 8 cpu of the ClusterQueue everybody, for TrainJob greedy in namespace default",
            "kubectl describe localqueue team",
        )
        await first(home, "lost", "QuotaExceeded", "LocalQueue doesn't exist", "does not exist")
