"""What the Training Operator V1 has left, or still does, in a cluster."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.explained import findings, only_finding
from support.original_crds import original_job_definitions
from support.stack import Stack, api_server

from trainmaster.controller.certificates.webhook_names import VALIDATING
from trainmaster.controller.cli.probes import DEFINITIONS, DEPLOYMENTS
from trainmaster.runtime.jsontree import JsonObject, copy_tree

PLURALS = ("jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs")
GO = {"controller-gen.kubebuilder.io/version": "v0.16.5"}
OFF: dict[str, Any] = {"trainingOperator": {"enabled": False}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with api_server(tmp_path_factory.mktemp("doctor"), definitions=False) as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="module")
async def stack(shared: Stack) -> AsyncIterator[Stack]:
    yield shared
    for plural in PLURALS:
        await _gone(shared, DEFINITIONS, None, f"{plural}.kubeflow.org")
    await _gone(shared, DEPLOYMENTS, "default", "training-operator")


async def _gone(stack: Stack, resource: Any, namespace: str | None, name: str) -> None:
    if any(each["metadata"]["name"] == name for each in (await stack.client.list(resource, namespace))["items"]):
        await stack.client.delete(resource, namespace, name)


async def told(stack: Stack, **sections: Any) -> list[str]:
    return (await findings(stack, **sections)).get("training-operator", [])


def go_definition(kind: str) -> JsonObject:
    definition: JsonObject = copy_tree(original_job_definitions()[kind])
    definition["metadata"]["annotations"] = GO
    return definition


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_definitions_that_are_there_are_told(stack: Stack) -> None:
    # Nothing is there.
    assert await told(stack) == [
        "ok: definitions of the Training Operator: none yet; `trainmaster crds` has them, and so have the manifests"
    ]
    assert await told(stack, **OFF) == []
    # Definitions of the go operator lack what backoff limits take.
    await stack.client.create(DEFINITIONS, go_definition("TFJob"))
    absent, found = await told(stack)
    assert absent.startswith("ok: definitions of the Training Operator: not jaxjobs.kubeflow.org, mpijobs.")
    assert found == (
        "warn: tfjobs.kubeflow.org is that of the Training Operator (controller-gen v0.16.5) and lacks "
        "status.replicaStatuses[*].restartedPodUIDs, status.replicaStatuses[*].restarts: what is written there is "
        "dropped, and backoffLimit counts no restart of a pod that is gone; trainmaster crds | kubectl apply "
        "--server-side --force-conflicts -f -"
    )
    assert await told(stack, **OFF) == [
        "ok: the kinds of the Training Operator V1 are there; trainingOperator.enabled is false: they are left"
    ]


@pytest.mark.defect("V1-B34")
async def test_the_definition_of_the_mpi_operator(stack: Stack) -> None:
    definition = go_definition("MPIJob")
    definition["spec"]["versions"][0]["name"] = "v2beta1"
    await stack.client.create(DEFINITIONS, definition)
    assert (await told(stack))[0] == (
        "fail: mpijobs.kubeflow.org is that of the MPI Operator (v2beta1), and a cluster has one definition of a name; "
        "leave it: set trainingOperator.enableScheme to [jaxjob, paddlejob, pytorchjob, tfjob, xgboostjob], and apply "
        "`trainmaster crds --without mpijobs`"
    )
    assert await told(stack, trainingOperator={"enableScheme": ["pytorchjob"]}) == [
        (
            "ok: mpijobs.kubeflow.org is that of the MPI Operator (v2beta1), and left to it: mpijob is not in "
            "trainingOperator.enableScheme"
        ),
        "ok: definitions of the Training Operator: none yet; `trainmaster crds` has them, and so have the manifests",
    ]


async def test_a_go_operator_that_is_installed(stack: Stack) -> None:
    image = "ghcr.io/kubeflow/training-v1/training-operator:v1.9.0"
    await stack.client.create(DEPLOYMENTS, deployment(1))
    (_, line) = await told(stack)
    assert line == (
        f"fail: the Training Operator ({image}) runs as default/training-operator; it knows no lease, and both would "
        "act on its jobs; kubectl scale deployment training-operator -n default --replicas=0 before, which jobs that "
        "run do not notice"
    )
    assert await told(stack, **OFF) == []
    await stack.client.patch(DEPLOYMENTS, "default", "training-operator", {"spec": {"replicas": 0}})
    (_, line) = await told(stack)
    assert line == (
        f"ok: the Training Operator ({image}) is installed as default/training-operator, with no replicas; delete it "
        "when nobody wants it back"
    )
    assert await told(stack, **OFF) == []


def deployment(replicas: int) -> JsonObject:
    labels = {"control-plane": "kubeflow-training-operator"}
    container = {"name": "training-operator", "image": "ghcr.io/kubeflow/training-v1/training-operator:v1.9.0"}
    return {
        "metadata": {"name": "training-operator", "namespace": "default", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def test_webhooks_that_lead_to_the_go_operator_are_told_where_jobs_are_served(stack: Stack) -> None:
    service = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate-kubeflow-org-v1-tfjob"}
    name = "validator.training-operator.kubeflow.org"
    hook = {
        "name": "validator.tfjob.training-operator.kubeflow.org",
        "clientConfig": {"service": service},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [
            {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["tfjobs"]}
        ],
    }
    await stack.client.create(VALIDATING, {"metadata": {"name": name}, "webhooks": [hook]})
    assert await only_finding(stack, "webhooks") == (
        f"warn: {name} leads to the Service kubeflow/training-operator, not to the Service "
        "kubeflow/kubeflow-trainer-controller-manager; applying our manifests changes that; whoever made it may "
        "change it back"
    )
    assert await only_finding(stack, "webhooks", **OFF) == "ok: none of our webhooks is registered yet"
    await stack.client.delete(VALIDATING, None, name)
