"""The webhooks of jobs of `kubeflow.org/v1`, called by an API server: every rule with its text, kind by kind."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from support.admission import (
    CONFIGURATIONS,
    Requests,
    answering,
    configurations,
    job_manifest,
    requests_to,
    served,
    serving_certificates,
)
from support.commands import eventually
from support.job_kinds import job_object, replica
from support.resolutions import KnownServer
from support.reviews import review_of
from support.stack import Stack, api_server, manager

from trainmaster.controller.configuration import Tls, Webhook
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.webhooks import AdmissionHandlers, WebhookServer, Workers
from trainmaster.controller.webhooks.handlers import validate_job_path
from trainmaster.controller.webhooks.review import AdmissionRequest
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject

KINDS = {kind.kind: kind for kind in load_job_kinds()}
JUDGED = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
MERGE = "application/merge-patch+json"


def path_of(kind: JobKind) -> str:
    return f"/apis/{kind.api_version}/namespaces/default/{kind.plural}"


def handlers(*kinds: JobKind) -> AdmissionHandlers:
    return AdmissionHandlers(Framework([]), {}, KnownServer(), job_kinds=kinds, workers=Workers(), clock=SystemClock())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with api_server(tmp_path_factory.mktemp("stack")) as stack:
        if stack.cluster is not None:
            await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
        yield stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def requests(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Requests]:
    """An API server that asks our webhooks, which nothing else of a manager stands behind."""
    directory, port = tmp_path_factory.mktemp("serving"), free_port()
    certificates = serving_certificates(directory)
    settings = Webhook(host="127.0.0.1", port=port, cert_dir=str(directory))
    server = WebhookServer(handlers(*KINDS.values()).handlers(), Workers(), settings, Tls(), clock=SystemClock())
    serving = asyncio.create_task(server.run(_at_once))
    async with requests_to(stack) as requests:
        await answering(port, certificates)
        (configuration,) = configurations(certificates, port=port, made=job_manifest())
        resource = f"{CONFIGURATIONS}/{configuration['kind'].lower()}s"
        assert (await requests.send("POST", resource, configuration)).code == 201
        probe = job_object(KINDS["JAXJob"], {"Worker": 1}, name="1bad", namespace="default")

        async def is_refused() -> bool:
            return (await requests.send("POST", path_of(KINDS["JAXJob"]), probe, dry=True)).code == 403

        await eventually(is_refused)  # an API server takes a moment to notice
        yield requests
        await requests.send("DELETE", f"{resource}/{configuration['metadata']['name']}")
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


async def _at_once() -> None:
    """Nothing to wait for."""


pytestmark = pytest.mark.asyncio(loop_scope="module")

LEAST: dict[str, dict[str, Any]] = {
    "PyTorchJob": {"Master": 1, "Worker": 2},
    "TFJob": {"Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 1},
    "PaddleJob": {"Worker": 1},
    "JAXJob": {"Worker": 1},
}
DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
MANAGERS = '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'
TYPES = {
    "PyTorchJob": '"Master", "Worker"',
    "XGBoostJob": '"Master", "Worker"',
    "PaddleJob": '"Master", "Worker"',
    "JAXJob": '"Worker"',
}


def least(kind: str, **spec: Any) -> JsonObject:
    return job_object(KINDS[kind], LEAST[kind], namespace="default", **spec)


def denied(kind: str, message: str) -> str:
    name = f"validator.{kind.lower()}.training-operator.kubeflow.org"
    return f'admission webhook "{name}" denied the request: {message}'


def _first(kind: str) -> str:
    return next(iter(LEAST[kind]))


def _replica_of(obj: JsonObject, kind: str) -> JsonObject:
    found: JsonObject = obj["spec"][KINDS[kind].replica_specs_field][_first(kind)]
    return found


def _container_of(obj: JsonObject, kind: str) -> JsonObject:
    found: JsonObject = _replica_of(obj, kind)["template"]["spec"]["containers"][0]
    return found


RULES: dict[str, tuple[Callable[[JsonObject, str], object], str]] = {
    "name": (lambda obj, kind: obj["metadata"].update(name="1bad"),
        f'metadata.name: Invalid value: "1bad": should match: {DNS_1035}'),
    "no spec": (lambda obj, kind: obj.pop("spec"), "{specs}: Required value: must be required"),
    "no containers": (lambda obj, kind: _replica_of(obj, kind)["template"]["spec"].update(containers=[]),
        "[{containers}: Required value: must be specified, {containers}: Required value: {lacks}]"),
    "no image": (lambda obj, kind: _container_of(obj, kind).pop("image"),
        "{containers}[0].image: Required value: must be required"),
    "wrong container": (lambda obj, kind: _container_of(obj, kind).update(name="main"),
        "{containers}: Required value: {lacks}"),
    "manager": (lambda obj, kind: obj["spec"].update(runPolicy={"managedBy": "a/b"}),
        f'spec.runPolicy.managedBy: Unsupported value: "a/b": supported values: {MANAGERS}'),
    "unknown type": (
        lambda obj, kind: obj["spec"][KINDS[kind].replica_specs_field].update(Tracker=replica(KINDS[kind], 1)),
        '{specs}[Tracker]: Unsupported value: "Tracker": supported values: {types}',
    ),
    "restart policy": (lambda obj, kind: _replica_of(obj, kind).update(restartPolicy="garbage"),
        ('{specs}[{first}].restartPolicy: Unsupported value: "garbage": supported values: "Always", "OnFailure", '
         '"Never", "ExitCode"')),
}  # fmt: skip
"""What is wrong, and the text by the table of the original's webhooks."""


def message_of(rule: str, kind: str) -> str:
    specs, first = f"spec.{KINDS[kind].replica_specs_field}", _first(kind)
    if (kind, rule) == ("XGBoostJob", "no spec"):
        return f"[{specs}: Required value: must be required, {specs}[Master]: Required value: must be present]"
    name = '"paddle"' if kind == "PaddleJob" else KINDS[kind].container_name
    _, text = RULES[rule]
    texts = {
        "{specs}": specs,
        "{first}": first,
        "{containers}": f"{specs}[{first}].template.spec.containers",
        "{lacks}": f"must have at least one container with name {name}",
        "{types}": TYPES.get(kind, ""),
    }
    for key, value in texts.items():
        text = text.replace(key, value)
    return text


@pytest.mark.parametrize("kind", JUDGED)
async def test_what_can_never_work_is_refused(kind: str, requests: Requests) -> None:
    for rule, (break_, _) in RULES.items():
        if (kind, rule) == ("TFJob", "unknown type"):
            continue
        obj = least(kind)
        break_(obj, kind)
        answer = await requests.send("POST", path_of(KINDS[kind]), obj)
        assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
        assert answer.message == denied(kind, message_of(rule, kind))


ELASTIC = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}
TWICE = {"elasticPolicy": {**ELASTIC["elasticPolicy"], "nProcPerNode": 1}, "nprocPerNode": "1"}
OF_ONE_KIND: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("PyTorchJob", {"Master": 2}, {}, "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    ("PyTorchJob", {"Worker": 0}, {}, "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"),
    ("PyTorchJob", {"Master": 1}, ELASTIC,
     "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used"),
    ("PyTorchJob", {"Worker": 1}, TWICE,
     "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"),
    ("XGBoostJob", {"Worker": 1}, {}, "spec.xgbReplicaSpecs[Master]: Required value: must be present"),
    ("XGBoostJob", {"Master": 2}, {}, "spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    ("TFJob", {"Chief": 1, "Master": 1}, {},
     "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "replicas", "spec", "message"), OF_ONE_KIND)
async def test_what_can_never_work_of_one_kind_is_refused(
    kind: str, replicas: dict[str, Any], spec: dict[str, Any], message: str, requests: Requests
) -> None:
    obj = job_object(KINDS[kind], replicas, namespace="default", **spec)
    answer = await requests.send("POST", path_of(KINDS[kind]), obj)
    assert (answer.code, answer.message) == (403, denied(kind, message))


@pytest.mark.defect("V1-B16")
@pytest.mark.parametrize("kind", JUDGED)
async def test_what_defaulting_completes_is_admitted(kind: str, requests: Requests) -> None:
    field = KINDS[kind].replica_specs_field
    lower, without_replicas = least(kind), least(kind)
    lower["spec"][field] = {name.lower(): value for name, value in lower["spec"][field].items()}
    for each in without_replicas["spec"][field].values():
        del each["replicas"]
    for obj in (lower, without_replicas):
        answer = await requests.send("POST", path_of(KINDS[kind]), obj, dry=True)
        assert (answer.code, answer.warnings) == (201, [])


WARNED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "cleanPodPolicy": ("JAXJob", {"Worker": 1}, {"runPolicy": {"cleanPodPolicy": "garbage"}},
        'spec.runPolicy.cleanPodPolicy: "garbage" is none of All, Running, None, and is taken for All'),
    "type of a TFJob": ("TFJob", {"Worker": 1, "Wroker": 1}, {},
        "spec.tfReplicaSpecs[Wroker]: its pods run, and have no part in how the job fares; known are: Chief, "),
    "deprecated": ("PyTorchJob", {"Worker": 1},
        {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "nProcPerNode": 1}},
        "spec.elasticPolicy.nProcPerNode: is deprecated, use spec.nprocPerNode instead"),
}  # fmt: skip


@pytest.mark.defect("V1-B17")
@pytest.mark.parametrize(("kind", "replicas", "spec", "warning"), WARNED.values(), ids=WARNED)
async def test_what_behaves_otherwise_than_its_author_may_think_is_a_warning(
    kind: str, replicas: dict[str, Any], spec: dict[str, Any], warning: str, requests: Requests
) -> None:
    obj = job_object(KINDS[kind], replicas, namespace="default", **spec)
    answer = await requests.send("POST", path_of(KINDS[kind]), obj, dry=True)
    assert answer.code == 201, answer.message
    (told,) = answer.warnings
    assert told.startswith(warning)


@pytest.mark.defect("V1-B13")
async def test_an_empty_rdzv_conf_is_none_and_an_mpijob_is_not_asked_about(requests: Requests) -> None:
    policy = {"minReplicas": 1, "maxReplicas": 2, "rdzvConf": []}
    elastic = job_object(KINDS["PyTorchJob"], {"Worker": 1}, namespace="default", elasticPolicy=policy)
    launchers = job_object(KINDS["MPIJob"], {"Launcher": 2}, namespace="default")
    for kind, obj in (("PyTorchJob", elastic), ("MPIJob", launchers)):
        answer = await requests.send("POST", path_of(KINDS[kind]), obj, dry=True)
        assert (answer.code, answer.warnings) == (201, [])


async def test_a_resilience_policy_is_judged_also_if_nothing_else_changes(requests: Requests) -> None:
    annotation, path, obj = "trainmaster.dev/resilience-policy", path_of(KINDS["PyTorchJob"]), least("PyTorchJob")
    obj["metadata"]["name"] = "resilient"
    assert (await requests.send("POST", path, obj)).code == 201
    for policy, code, told in (
        ('{"maxRestarts": -1}', 403, "].maxRestarts: Invalid value: -1: must be between 0 and 999999"),
        ("maxRestarts=3", 403, "]: Forbidden: must be a policy as JSON, as spec.resiliencePolicy is: "),
        ('{"maxRestarts": 3, "worldSize": "Verify"}', 200, "].worldSize: has no effect on jobs of kubeflow.org/v1"),
        ('{"nodes": {"avoidAfter": 2}}', 200, "].nodes: has no effect without maxRestarts, disruptions or exitCodes"),
    ):
        change = {"metadata": {"annotations": {annotation: policy}}}
        answer = await requests.send("PATCH", f"{path}/resilient", change, kind=MERGE)
        assert answer.code == code, answer.message
        assert f"metadata.annotations[{annotation}{told}" in "".join((answer.message, *answer.warnings))


@pytest.mark.defect("V1-B4")
@pytest.mark.parametrize("kind", JUDGED)
async def test_who_manages_a_job_cannot_change(kind: str, requests: Requests) -> None:
    path, obj = path_of(KINDS[kind]), least(kind)
    obj["metadata"]["name"] = "managed"
    assert (await requests.send("POST", path, obj)).code == 201
    body = {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}}
    answer = await requests.send("PATCH", f"{path}/managed", body, kind=MERGE)
    assert (answer.code, answer.message) == (
        403,
        denied(kind, 'spec.runPolicy.managedBy: Invalid value: "kueue.x-k8s.io/multikueue": field is immutable'),
    )


@pytest.mark.defect("V1-B36")
async def test_the_scale_subresource_makes_what_may_still_be_labelled_and_deleted(requests: Requests) -> None:
    """It asks no webhook (V1-B17), so a PyTorchJob without workers may be stored."""
    path, obj = path_of(KINDS["PyTorchJob"]), least("PyTorchJob")
    obj["metadata"] |= {"name": "scaled", "finalizers": ["acme.io/keep"]}
    assert (await requests.send("POST", path, obj)).code == 201
    job = f"{path}/scaled"
    assert (await requests.send("PATCH", f"{job}/scale", {"spec": {"replicas": 0}}, kind=MERGE)).code == 200
    changes: list[JsonObject] = [{"metadata": {"labels": {"a": "b"}}}, {"spec": {"runPolicy": {"suspend": True}}}]
    for body in changes:
        answer = await requests.send("PATCH", job, body, kind=MERGE)
        assert answer.code == 200, answer.message
    answer = await requests.send("PATCH", job, {"spec": {"nprocPerNode": "2"}}, kind=MERGE)
    assert answer.code == 403, "a change of what is judged"
    assert (await requests.send("DELETE", job)).code == 200
    body = {"metadata": {"finalizers": None}, "spec": {"nprocPerNode": "2"}}
    answer = await requests.send("PATCH", job, body, kind=MERGE)
    assert answer.code == 200, answer.message
    assert (await requests.send("GET", job)).code == 404


async def test_the_deployed_webhooks_are_those_of_the_original(stack: Stack) -> None:
    (configuration,) = job_manifest()
    assert configuration["metadata"]["name"] == "validator.training-operator.kubeflow.org"
    paths_served = handlers(*(KINDS[kind] for kind in JUDGED)).handlers()
    paths = []
    for webhook in configuration["webhooks"]:
        (rule,) = webhook["rules"]
        kind = webhook["name"].split(".")[1]
        assert webhook["name"] == f"validator.{kind}.training-operator.kubeflow.org"
        assert rule == {
            "apiGroups": ["kubeflow.org"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": [f"{kind}s"],
        }
        assert (webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]) == ("Fail", "None", 10)
        assert webhook["admissionReviewVersions"] == ["v1"]
        paths.append(webhook["clientConfig"]["service"]["path"])
    assert sorted(paths) == sorted(path for path in paths_served if "-kubeflow-org-v1-" in path)


async def test_jobs_are_judged_also_where_their_definitions_are_not_installed(tmp_path: Path) -> None:
    """By a whole manager: they may come a moment later, and nobody's job is to wait for a webhook."""
    certificates, port = serving_certificates(tmp_path), free_port()
    context = ssl.create_default_context(cafile=str(certificates.authority))
    body = BytesIO(review_of(job_object(KINDS["JAXJob"], {"Worker": 1}, name="1bad"), "u"))
    async with (
        api_server(tmp_path, definitions=True) as stack,
        manager(stack.access, configuration=served(tmp_path, port)),
        aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session,
    ):
        await answering(port, certificates)
        path, headers = validate_job_path(KINDS["JAXJob"]), {"Content-Type": "application/json"}
        async with session.post(path, data=body, headers=headers, ssl=context) as answer:
            response = (await answer.json())["response"]
    assert (response["allowed"], "metadata.name" in response["status"]["message"]) == (False, True)


async def test_only_kinds_that_are_enabled_are_served_and_deletions_are_not_judged(stack: Stack) -> None:
    kind = KINDS["JAXJob"]
    served = handlers(kind).handlers()
    assert [path for path in served if "-v1-" in path] == ["/validate-kubeflow-org-v1-jaxjob"]
    assert not [path for path in handlers().handlers() if "-v1-" in path]
    judged = await served[validate_job_path(kind)](AdmissionRequest("u", "DELETE", None, {"kind": "JAXJob"}))
    assert judged.allowed
