"""The Training Operator V1 is replaced by kubectl, and comes back: definitions, webhooks, and what it has stored."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.kubectl import Kubectl
from support.manifests import MANAGER, NEEDS_KUBECTL, overlay
from support.original_crds import original_job_definitions
from support.stack import api_server

from trainmaster.runtime.jsontree import JsonObject, copy_tree

pytestmark = [*NEEDS_KUBECTL, pytest.mark.asyncio(loop_scope="module")]

WEBHOOKS = "validator.training-operator.kubeflow.org"
KINDS = ("jax", "paddle", "pytorch", "tf", "xgboost")
STATUS: JsonObject = {
    "conditions": [
        {"type": "Created", "status": "True", "reason": "TFJobCreated", "message": "TFJob demo is created."},
        {"type": "Running", "status": "True", "reason": "TFJobRunning", "message": "TFJob demo is running."},
    ],
    "replicaStatuses": {"Worker": {"active": 1}},
    "startTime": "2026-01-01T00:00:00Z",
}
JOB: JsonObject = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "demo", "namespace": "default"},
    "spec": {
        "runPolicy": {"cleanPodPolicy": "None", "suspend": False},
        "tfReplicaSpecs": {
            "Worker": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}},
            }
        },
    },
}


class Server(Kubectl):
    """An API server, and kubectl."""

    async def callees(self) -> set[tuple[str, str, str]]:
        """Return the Services that the webhooks of jobs lead to, and what they trust."""
        configuration = await self.get("validatingwebhookconfiguration", WEBHOOKS)
        clients = [each["clientConfig"] for each in configuration["webhooks"]]
        assert len(clients) == len(KINDS)
        return {(each["service"]["namespace"], each["service"]["name"], each["caBundle"]) for each in clients}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    directory = tmp_path_factory.mktemp("apply")
    async with api_server(directory, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("a shared cluster is no place for another manager")
        yield Server(directory / "cluster/kubeconfig", directory)


def training_operator() -> list[JsonObject]:
    """What its manifests install, as far as ours have the same."""
    definitions = [copy_tree(each) for each in original_job_definitions().values()]
    hooks = [
        {
            "name": f"validator.{kind}job.training-operator.kubeflow.org",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "service": {
                    "name": "training-operator",
                    "namespace": "kubeflow",
                    "path": f"/validate-kubeflow-org-v1-{kind}job",
                }
            },
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "rules": [
                {
                    "apiGroups": ["kubeflow.org"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [f"{kind}jobs"],
                }
            ],
        }
        for kind in KINDS
    ]
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": WEBHOOKS, "labels": {"control-plane": "kubeflow-training-operator"}},
        "webhooks": hooks,
    }
    return [*definitions, configuration]


async def inject(server: Server, bundle: str) -> None:
    """What its rotator does."""
    patch = [{"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": bundle} for place in range(5)]
    await server("patch", "validatingwebhookconfiguration", WEBHOOKS, "--type=json", "-p", json.dumps(patch))


async def test_what_it_has_stored_stays_and_its_webhooks_lead_to_our_service_and_back(server: Server) -> None:
    theirs, ours = training_operator(), overlay("standalone")
    await server.apply(theirs[:-1])
    await server("create", "-f", "-", stdin=json.dumps(JOB))
    status = json.dumps({"status": STATUS})
    await server("patch", "tfjob", "demo", "--subresource=status", "--type=merge", "-p", status)
    await server.apply(theirs[-1:])
    await inject(server, "Z28=")
    before = await server.get("tfjob", "demo")

    await server.apply(ours.values())
    assert await server.get("tfjob", "demo") == before, "nothing is pruned, defaulted or written"
    assert before["status"] == STATUS
    # The bundle is that of the other one until our manager, to whom they lead now, puts its own there.
    assert await server.callees() == {("kubeflow", MANAGER, "Z28=")}
    counted = {"status": {"replicaStatuses": {"Worker": {"restarts": 1, "restartedPodUIDs": ["a"]}}}}
    patch = ("patch", "tfjob", "demo", "--subresource=status", "--type=merge", "-p", json.dumps(counted))
    await server(*patch)
    worker = (await server.get("tfjob", "demo"))["status"]["replicaStatuses"]["Worker"]
    assert worker == {"active": 1, "restarts": 1, "restartedPodUIDs": ["a"]}

    await server.apply(theirs)
    assert await server.callees() == {("kubeflow", "training-operator", "Z28=")}
    found = await server.get("tfjob", "demo")
    assert found["status"] == STATUS, "what only ours know is dropped, and nothing else"
    assert found["spec"] == before["spec"]
