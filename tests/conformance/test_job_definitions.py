"""The definitions of the Training Operator's six kinds on a server: what is stored, dropped, defaulted and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
from support.commands import eventually
from support.conformance import Client, Collection, Target, condition_of, connected, definitions, new_namespace
from support.original_crds import JOB_KINDS, definition

from trainmaster.runtime.jsontree import JsonObject

API_VERSION = "kubeflow.org/v1"
REPLICA_SPECS = {
    "JAXJob": ("jaxReplicaSpecs", ["Worker"]),
    "MPIJob": ("mpiReplicaSpecs", ["Launcher", "Worker"]),
    "PaddleJob": ("paddleReplicaSpecs", ["Master", "Worker"]),
    "PyTorchJob": ("pytorchReplicaSpecs", ["Master", "Worker"]),
    "TFJob": ("tfReplicaSpecs", ["Chief", "Worker", "PS", "Evaluator"]),
    "XGBoostJob": ("xgbReplicaSpecs", ["Master", "Worker"]),
}
SCALED = ["JAXJob", "PaddleJob", "PyTorchJob"]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

POD_TEMPLATE: JsonObject = {
    "metadata": {"name": "pod", "labels": {"team": "a"}, "annotations": {"a": "b"}, "finalizers": ["example.com/kept"]},
    "spec": {
        "containers": [
            {
                "name": "trainer",
                "image": "python:3.13-slim",
                "command": ["python3"],
                "args": ["-c", "pass"],
                "env": [
                    {"name": "PLAIN", "value": "1"},
                    {"name": "FROM_FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
                "ports": [{"name": "port", "containerPort": 23456, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "8"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "port"}, "periodSeconds": 5},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "initContainers": [{"name": "setup", "image": "alpine:3", "restartPolicy": "Always"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"team": "a"}}}
                ]
            }
        },
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"pool": "gpu"},
        "restartPolicy": "Never",
        "schedulerName": "volcano",
        "priorityClassName": "high",
        "serviceAccountName": "trainer",
        "terminationGracePeriodSeconds": 5,
        "imagePullSecrets": [{"name": "registry"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}],
    },
}
RUN_POLICY: JsonObject = {
    "cleanPodPolicy": "Running",
    "ttlSecondsAfterFinished": 100,
    "activeDeadlineSeconds": 3_000_000_000,
    "backoffLimit": 3,
    "suspend": True,
    "managedBy": "kubeflow.org/training-operator",
    "schedulingPolicy": {
        "minAvailable": 2,
        "queue": "q",
        "minResources": {"cpu": "3", "nvidia.com/gpu": 1},
        "priorityClass": "high",
        "scheduleTimeoutSeconds": 60,
    },
}
_METRIC: JsonObject = {"name": "queue_length", "selector": {"matchLabels": {"a": "b"}}}
METRICS: list[JsonObject] = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "memory",
            "container": "trainer",
            "target": {"type": "AverageValue", "averageValue": "1Gi"},
        },
    },
    {"type": "Pods", "pods": {"metric": _METRIC, "target": {"type": "AverageValue", "averageValue": 10}}},
    {"type": "External", "external": {"metric": _METRIC, "target": {"type": "Value", "value": "100m"}}},
    {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "queue"},
            "metric": _METRIC,
            "target": {"type": "Value", "value": 2},
        },
    },
]
ELASTIC: JsonObject = {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 10, "metrics": METRICS}
FIELDS: dict[str, JsonObject] = {
    "MPIJob": {"slotsPerWorker": 2, "cleanPodPolicy": "All", "mainContainer": "trainer"},
    "PaddleJob": {"elasticPolicy": ELASTIC},
    "PyTorchJob": {
        "nprocPerNode": "auto",
        "elasticPolicy": {
            **ELASTIC,
            "rdzvBackend": "c10d",
            "rdzvPort": 29400,
            "rdzvHost": "host",
            "rdzvId": "id",
            "rdzvConf": [{"key": "timeout", "value": "60"}, {"key": "timeout", "value": "61"}],
            "standalone": False,
            "nProcPerNode": 2,
        },
    },
    "TFJob": {"successPolicy": "AllWorkers", "enableDynamicWorker": True},
}
STATUS: JsonObject = {
    "conditions": [
        {
            "type": "Created",
            "status": "True",
            "reason": "JobCreated",
            "message": "made",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
        {"type": "Running", "status": "True"},
    ],
    "replicaStatuses": {
        "Worker": {
            "active": 2,
            "succeeded": 1,
            "failed": 1,
            "selector": "training.kubeflow.org/job-name=rich",
            "labelSelector": {"matchLabels": {"a": "b"}},
            "restarts": 4,
            "restartedPodUIDs": ["8b1f0d7e", "8b1f0d7e"],
        }
    },
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:00Z",
    "lastReconcileTime": "2026-01-01T00:00:00Z",
}


def job(kind: str, name: str = "job", **spec: Any) -> JsonObject:
    """A job with one pod of each type."""
    field, types = REPLICA_SPECS[kind]
    template = {"spec": {"containers": [{"name": "trainer", "image": "a"}]}}
    replicas = {each: {"replicas": 1, "template": deepcopy(template)} for each in types}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": {field: replicas, **spec}}


@pytest.fixture(scope="module")
def served(target: Target) -> Target:
    """The server, once it serves the six kinds."""

    async def install() -> None:
        async with connected(target.access) as client:
            crds = definitions(client)
            for kind in JOB_KINDS:
                crd = definition(kind)
                name, plural = crd["metadata"]["name"], crd["spec"]["names"]["plural"]
                if (await crds.get(name)).status == 404:
                    (await crds.apply(crd)).ok(201)

                async def answering(name: str = name, plural: str = plural) -> bool:
                    established = condition_of(await crds.read(name), "Established") == "True"
                    return established and (await client.collection(API_VERSION, plural).list()).status == 200

                await eventually(answering)

    target.run(install())
    return target


@pytest.fixture
async def client(served: Target) -> AsyncIterator[Client]:
    async with connected(served.access) as opened:
        yield opened


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    async with new_namespace(client) as name:
        yield name


@pytest.fixture(params=JOB_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each of the six kinds."""
    found: str = request.param
    return found


@pytest.fixture
def jobs(client: Client, namespace: str, kind: str) -> Collection:
    return client.collection(API_VERSION, f"{kind.lower()}s", namespace)


async def test_everything_that_a_job_can_say_is_stored(jobs: Collection, kind: str) -> None:
    field, types = REPLICA_SPECS[kind]
    spec = {
        field: {each: {"replicas": 2, "restartPolicy": "ExitCode", "template": POD_TEMPLATE} for each in types},
        "runPolicy": RUN_POLICY,
        **FIELDS.get(kind, {}),
    }
    obj = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "rich"}, "spec": spec}
    answer = await jobs.create(obj, fieldValidation="Strict")
    made = answer.ok(201)
    assert made["spec"] == spec
    assert not answer.warnings
    assert (await jobs.put({**made, "status": STATUS})).ok(200).get("status") is None
    written = (await jobs.put({**made, "status": STATUS}, subresource="status", fieldValidation="Strict")).ok(200)
    assert written["status"] == STATUS
    assert (await jobs.read("rich"))["spec"] == spec


async def test_nothing_is_added_but_suspend_to_a_run_policy_and_the_protocol_to_a_port(
    jobs: Collection, kind: str
) -> None:
    """What a job is by default is known to the controller; `kubectl get -o yaml` shows what its author wrote."""
    field, _ = REPLICA_SPECS[kind]
    assert (await jobs.made(job(kind)))["spec"] == job(kind)["spec"]
    with_policy = await jobs.made(job(kind, "b", runPolicy={}))
    assert with_policy["spec"]["runPolicy"] == {"suspend": False}
    with_port = job(kind, "c")
    with_port["spec"][field]["Worker"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 1}]
    [container] = (await jobs.made(with_port))["spec"][field]["Worker"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 1, "protocol": "TCP"}]


async def test_what_is_no_field_is_dropped_or_refused(jobs: Collection, kind: str) -> None:
    field, _ = REPLICA_SPECS[kind]
    odd = job(kind, mpiImplementation="OpenMPI")
    odd["spec"][field]["Worker"]["template"]["spec"]["containers"][0]["imagee"] = "a"
    refusal = (await jobs.create(odd, fieldValidation="Strict")).refused(400)
    for unknown in ("spec.mpiImplementation", f"spec.{field}.Worker.template.spec.containers[0].imagee"):
        assert f'unknown field "{unknown}"' in refusal["message"]
    answer = await jobs.create(odd, fieldValidation="Warn")
    assert answer.ok(201)["spec"] == job(kind)["spec"]
    assert len(answer.warnings) == 2


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        ({"backoffLimit": "3"}, ("backoffLimit", "FieldValueTypeInvalid")),
        ({"suspend": "no"}, ("suspend", "FieldValueTypeInvalid")),
        ({"ttlSecondsAfterFinished": 1.5}, ("ttlSecondsAfterFinished", "FieldValueTypeInvalid")),
        (
            {"schedulingPolicy": {"minResources": {"cpu": "much"}}},
            ("schedulingPolicy.minResources.cpu", "FieldValueInvalid"),
        ),
    ],
)
async def test_wrong_types_are_refused(jobs: Collection, kind: str, policy: JsonObject, cause: tuple[str, str]) -> None:
    field, reason = cause
    # More of them may follow, on what could not be checked therefore.
    assert (await jobs.create(job(kind, runPolicy=policy))).causes()[0] == (f"spec.runPolicy.{field}", reason)


async def test_a_job_without_replicas_of_any_type_is_refused(jobs: Collection, kind: str) -> None:
    obj = job(kind)
    obj["spec"] = {"runPolicy": {}}
    assert (await jobs.create(obj)).causes()[0] == (f"spec.{REPLICA_SPECS[kind][0]}", "FieldValueRequired")


async def test_words_of_policies_are_for_webhooks_to_refuse(jobs: Collection, kind: str) -> None:
    """The original stores them all, and what it could run with them has to go on running."""
    field, _ = REPLICA_SPECS[kind]
    obj = job(kind, runPolicy={"cleanPodPolicy": "garbage", "managedBy": "somebody", "backoffLimit": -1})
    obj["spec"][field]["worker"] = {"replicas": 0, "restartPolicy": "Sometimes"}
    stored = (await jobs.made(obj))["spec"]
    assert stored["runPolicy"]["cleanPodPolicy"] == "garbage"
    assert stored[field]["worker"] == {"replicas": 0, "restartPolicy": "Sometimes"}


async def test_the_queue_can_be_set_and_removed_but_not_changed(jobs: Collection, kind: str) -> None:
    def queue(name: str | None) -> JsonObject:
        return {"spec": {"runPolicy": {"schedulingPolicy": {"queue": name, "minAvailable": 1}}}}

    await jobs.made(job(kind, runPolicy={"schedulingPolicy": {}}))
    (await jobs.patch("job", queue("a"))).ok(200)
    refusal = await jobs.patch("job", queue("b"))
    assert refusal.causes() == [("spec.runPolicy.schedulingPolicy.queue", "FieldValueInvalid")]
    assert "spec.runPolicy.schedulingPolicy.queue is immutable" in refusal.json["message"]
    (await jobs.patch("job", queue(None))).ok(200)
    (await jobs.patch("job", queue("b"))).ok(200)


async def test_a_table_shows_the_last_condition(jobs: Collection, kind: str) -> None:
    await jobs.made(job(kind))
    (await jobs.patch("job", {"status": STATUS}, subresource="status")).ok(200)
    table = (await jobs.list(accept=TABLE)).ok(200)
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == (["Name", "Age", "State"] if kind == "MPIJob" else ["Name", "State", "Age"])
    [row] = table["rows"]
    assert row["cells"][names.index("State")] == "Running"


async def test_workers_are_scaled_where_the_original_lets_them_be(jobs: Collection, kind: str) -> None:
    await jobs.made(job(kind))
    (await jobs.patch("job", {"status": STATUS}, subresource="status")).ok(200)
    answer = await jobs.get("job", subresource="scale")
    if kind not in SCALED:
        assert answer.refused(404, "NotFound")["message"] == f'{kind.lower()}s.kubeflow.org "job" not found'
        return
    scale = answer.ok(200)
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 2, "selector": "training.kubeflow.org/job-name=rich"}
    (await jobs.patch("job", {"spec": {"replicas": 3}}, subresource="scale")).ok(200)
    field, _ = REPLICA_SPECS[kind]
    stored = (await jobs.read("job"))["spec"][field]
    assert stored["Worker"]["replicas"] == 3
    assert {each["replicas"] for name, each in stored.items() if name != "Worker"} <= {1}
