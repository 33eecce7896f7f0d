"""The webhooks of a manager, called by an API server, and the registration that is deployed.

- H-5: that says how long a response may take, and what happens without one.
- H-9: it names nothing that the manager needs to start.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from support.admission import (
    CONFIGURATIONS,
    Answer,
    Requests,
    accepted,
    admitting,
    answering,
    job_manifest,
    manifest,
    requests_to,
    served,
    serving_certificates,
)
from support.commands import eventually
from support.devcluster.faultycluster import FaultyCluster
from support.job_kinds import job_object
from support.objects import replicated_job, runtime_object
from support.resolutions import KnownServer
from support.reviews import review_of
from support.stack import Stack, api_server, manager

from trainmaster.controller.configuration import LeaderElection
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import LEASES, Resource
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import USER_AGENT, WEBHOOKS_SUFFIX, Setup
from trainmaster.controller.resources import TRAINING_RUNTIMES
from trainmaster.controller.webhooks import AdmissionHandlers, Workers
from trainmaster.controller.webhooks.handlers import VALIDATE_TRAINJOB
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
from trainmaster.devcluster.listener import free_port
from trainmaster.devcluster.settings import CONTROLLERS, MANAGER, ClusterSettings
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject

TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes"
DENIED = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
MERGE = "application/merge-patch+json"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with api_server(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def requests(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Requests]:
    async with admitting(stack, tmp_path_factory.mktemp("serving")) as requests:
        await requests.send("POST", RUNTIMES, runtime())
        await eventually(lambda: accepted(requests, "POST", TRAINJOBS, job("probe"), dry=True))
        yield requests


def runtime(name: str = "rt") -> JsonObject:
    obj = runtime_object(replicated_job(), policy={"torch": {}})
    obj["metadata"] = {"name": name}
    return obj


def job(name: str, **spec: object) -> JsonObject:
    reference = {"name": "rt", "kind": "TrainingRuntime"}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": reference, **spec},
    }


@pytest.mark.asyncio(loop_scope="module")
async def test_denials_are_those_of_the_original(requests: Requests) -> None:
    env = [{"name": "PET_NNODES", "value": "1"}]
    answer = await requests.send("POST", TRAINJOBS, job("denied", trainer={"env": env}))
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert answer.message == (
        f'{DENIED}spec.trainer.env: Invalid value: [{{"name":"PET_NNODES","value":"1"}}]: '
        "must not have reserved envs, invalid envs configured: [PET_NNODES]"
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_resilience_policy_is_judged_by_its_schema_and_its_sense(requests: Requests) -> None:
    path = "spec.resiliencePolicy"
    for policy, code, told in (
        ({"maxRestarts": -1}, 422, "spec.resiliencePolicy.maxRestarts"),
        ({"gracePeriod": "soon"}, 422, "spec.resiliencePolicy.gracePeriod"),
        ({"gracePeriod": "0s"}, 403, f'{DENIED}{path}.gracePeriod: Invalid value: "0s": must be between'),
        ({"restartWindow": "5m"}, 201, "spec.resiliencePolicy.restartWindow: has no effect without maxRestarts"),
    ):
        obj = job("resilient")
        obj["spec"]["resiliencePolicy"] = policy
        answer = await requests.send("POST", TRAINJOBS, obj, dry=True)
        assert answer.code == code, answer.message
        assert told in "".join((answer.message, *answer.warnings))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def elastic(requests: Requests) -> Requests:
    """TrainJobs whose number of nodes may change, and such whose may not."""
    policy = {"minNodes": 1, "maxNodes": 4}
    ranged = runtime("ranged")
    ranged["spec"]["mlPolicy"] = {"torch": {"elasticPolicy": {"minNodes": 2, "maxNodes": 4}}}
    await requests.send("POST", RUNTIMES, ranged)
    by_runtime = {"name": "ranged", "kind": "TrainingRuntime"}
    for made in (
        *(job(name, trainer={"numNodes": 2, "elasticPolicy": policy}) for name in ("elastic", "ended")),
        job("suspended", suspend=True, trainer={"numNodes": 2, "elasticPolicy": policy}),
        job("unsized", trainer={"elasticPolicy": policy}),
        job("fixed", trainer={"numNodes": 2}),
        job("bare"),
        job("by-runtime", trainer={"numNodes": 2}, runtimeRef=by_runtime),
    ):
        answer = await requests.send("POST", TRAINJOBS, made)
        assert answer.code == 201, answer.message
    end = {"type": "Complete", "status": "True", "reason": "Done", "message": ""}
    end["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    body = {"status": {"conditions": [end]}}
    assert (await requests.send("PATCH", f"{TRAINJOBS}/ended/status", body, kind=MERGE)).code == 200
    scale = {"metadata": {"name": "by-runtime"}, "spec": {"replicas": 3}}
    await eventually(lambda: accepted(requests, "PUT", f"{TRAINJOBS}/by-runtime/scale", scale, dry=True))
    return requests


NODES = "spec.trainer.numNodes: Invalid value: "
INELASTIC = "field is immutable: only a job with an elasticPolicy of mlPolicy.torch changes its size"
SIZES: list[tuple[str, int, int, str]] = [
    ("elastic", 1, 200, ""),
    ("elastic", 4, 200, ""),
    ("elastic", 5, 403, f"{DENIED}{NODES}5: must be between 1 and 4, the limits of elasticPolicy"),
    ("elastic", 0, 422, f"{NODES}0: must be greater than or equal to 1"),
    ("by-runtime", 4, 200, ""),
    ("by-runtime", 1, 403, f"{DENIED}{NODES}1: must be between 2 and 4, the limits of elasticPolicy"),
    ("unsized", 3, 200, ""),
    ("unsized", 5, 403, "must be between 1 and 4"),
    ("suspended", 4, 200, ""),
    ("suspended", 5, 403, "must be between 1 and 4"),
    ("ended", 4, 403, f"{DENIED}{NODES}4: field is immutable: the job has ended"),
    ("fixed", 2, 200, ""),
    ("fixed", 3, 403, f"{DENIED}{NODES}3: {INELASTIC}"),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scales", [False, True], ids=["patch", "scale"])
@pytest.mark.parametrize("case", SIZES, ids=lambda case: f"{case[0]}-{case[1]}")
async def test_which_sizes_are_admitted(elastic: Requests, case: tuple[str, int, int, str], scales: bool) -> None:
    name, nodes, code, told = case
    path = f"{TRAINJOBS}/{name}/scale" if scales else f"{TRAINJOBS}/{name}"
    spec = {"replicas": nodes} if scales else {"trainer": {"numNodes": nodes}}
    answer = await elastic.send("PATCH", path, {"spec": spec}, kind=MERGE, dry=True)
    assert (answer.code, answer.warnings) == (code, []), answer.message
    assert told in answer.message


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("name", "trainer", "code", "told"),
    [
        ("elastic", {"numNodes": None}, 403, f"{NODES}null: {INELASTIC}"),
        ("elastic", {"numNodes": 3, "image": "other"}, 422, "spec.trainer: Invalid value"),
        ("elastic", {"elasticPolicy": {"maxNodes": 8}}, 422, "field is immutable"),
        ("elastic", {"elasticPolicy": None}, 422, "field is immutable"),
        ("fixed", {"elasticPolicy": {"maxNodes": 8}}, 422, "field is immutable"),
    ],
)
async def test_nothing_else_of_a_trainer_changes(
    elastic: Requests, name: str, trainer: JsonObject, code: int, told: str
) -> None:
    patch = {"spec": {"trainer": trainer}}
    answer = await elastic.send("PATCH", f"{TRAINJOBS}/{name}", patch, kind=MERGE, dry=True)
    assert answer.code == code, answer.message
    assert told in answer.message


@pytest.mark.asyncio(loop_scope="module")
async def test_a_scale_needs_a_number_to_start_from_or_to_set(elastic: Requests) -> None:
    """Without a trainer of its own nothing says that a job is elastic but its runtime; this one's does not."""
    for name in ("bare", "unsized"):
        answer = await elastic.send("GET", f"{TRAINJOBS}/{name}/scale")
        assert (answer.code, '".spec.trainer.numNodes" does not exist' in answer.message) == (500, True)
    answer = await elastic.send("PATCH", f"{TRAINJOBS}/bare/scale", {"spec": {"replicas": 3}}, kind=MERGE, dry=True)
    assert (answer.code, INELASTIC in answer.message) == (403, True)


@pytest.mark.asyncio(loop_scope="module")
async def test_limits_that_cross_are_refused(requests: Requests) -> None:
    crossed = job("crossed", trainer={"elasticPolicy": {"minNodes": 5, "maxNodes": 4}})
    answer = await requests.send("POST", TRAINJOBS, crossed)
    assert "minNodes must not be greater than maxNodes" in answer.message


@pytest.mark.guarantee("H-3")
@pytest.mark.asyncio(loop_scope="module")
async def test_times_are_stored_and_kept(requests: Requests) -> None:
    patch = {"manager": "acme.io/a", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    created = await requests.send("POST", TRAINJOBS, job("stamped", suspend=True, runtimePatches=[patch]))
    assert created.code == 201, created.message
    (stored,) = created.body["spec"]["runtimePatches"]
    assert datetime.fromisoformat(stored["time"]) <= datetime.now(UTC)
    resumed = await requests.send("PATCH", f"{TRAINJOBS}/stamped", {"spec": {"suspend": False}}, kind=MERGE)
    assert resumed.body["spec"]["runtimePatches"] == [stored]
    await requests.send("DELETE", f"{TRAINJOBS}/stamped")


@pytest.mark.guarantee("H-6")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_dry_run_is_answered_and_leaves_nothing(requests: Requests) -> None:
    assert (await requests.send("POST", TRAINJOBS, job("dry"), dry=True)).code == 201
    refused = await requests.send("POST", TRAINJOBS, job("dry", trainer={"numNodes": 0}), dry=True)
    assert refused.message == f"{DENIED}spec.trainer.numNodes: Invalid value: 0: must be greater than or equal to 1"
    assert (await requests.send("GET", f"{TRAINJOBS}/dry")).code == 404


@pytest.mark.guarantee("H-8")
@pytest.mark.asyncio(loop_scope="module")
async def test_warnings_reach_the_user(requests: Requests) -> None:
    reference = {"name": "rt", "kind": "TrainingRuntime", "apiGroup": "kubeflow.org"}
    obj = job("former")
    obj["spec"]["runtimeRef"] = reference
    answer = await requests.send("POST", TRAINJOBS, obj)
    assert answer.code == 201, answer.message
    assert answer.warnings == [
        'spec.runtimeRef.apiGroup: "kubeflow.org" is taken for "trainer.kubeflow.org"; write that instead'
    ]
    # Stored as it was written, and built all the same.
    assert answer.body["spec"]["runtimeRef"]["apiGroup"] == "kubeflow.org"
    jobsets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/former"
    await eventually(lambda: accepted(requests, "GET", jobsets))
    await requests.send("DELETE", f"{TRAINJOBS}/former")


@pytest.mark.defect("B13")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_trainjob_outlives_its_runtime(requests: Requests) -> None:
    await requests.send("POST", RUNTIMES, runtime("short-lived"))
    obj = job("survivor", suspend=True)
    obj["spec"]["runtimeRef"]["name"] = "short-lived"
    await eventually(lambda: accepted(requests, "POST", TRAINJOBS, obj))
    snapshot = "/api/v1/namespaces/default/configmaps/survivor-runtime-snapshot"
    await eventually(lambda: accepted(requests, "GET", snapshot))
    await requests.send("DELETE", f"{RUNTIMES}/short-lived")
    patch = {"manager": "acme.io/a", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    for change in ({"suspend": False}, {"suspend": True}, {"runtimePatches": [patch]}):
        answer = await requests.send("PATCH", f"{TRAINJOBS}/survivor", {"spec": change}, kind=MERGE)
        assert answer.code == 200, answer.message
    await requests.send("DELETE", f"{TRAINJOBS}/survivor")


@pytest.mark.guarantee("H-13")
@pytest.mark.asyncio(loop_scope="module")
async def test_a_follower_answers_as_well(stack: Stack, tmp_path: Path) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    held = {"holderIdentity": "other", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
    lease = {"metadata": {"name": "held", "namespace": "default"}, "spec": held}
    await stack.client.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    certificates, port = serving_certificates(tmp_path), free_port()
    election = LeaderElection(leader_elect=True, resource_namespace="default", resource_name="held")
    configuration = served(tmp_path, port).model_copy(update={"leader_election": election})
    async with manager(stack.access, configuration=configuration):
        await answering(port, certificates)
        assert (await stack.client.get(LEASES, "default", "held"))["spec"]["holderIdentity"] == "other"


@pytest.mark.guarantee("H-17")
@pytest.mark.asyncio(loop_scope="module")
async def test_webhooks_ask_by_a_client_that_no_reconcile_waits_for(stack: Stack, tmp_path: Path) -> None:
    asked: list[str] = []

    class NotingClient(KubeClient):
        """Notes who reads runtimes."""

        def __init__(self, *, user_agent: str, **options: Any) -> None:
            super().__init__(stack.access, user_agent=user_agent, **options)
            self.name = user_agent

        async def get(
            self, resource: Resource, namespace: str | None, name: str, *, metadata_only: bool = False
        ) -> JsonObject:
            if resource == TRAINING_RUNTIMES:
                asked.append(self.name)
            return await super().get(resource, namespace, name, metadata_only=metadata_only)

    certificates, port, stop = serving_certificates(tmp_path), free_port(), asyncio.Event()
    setup = Setup(
        stack.access, served(tmp_path, port), Framework(load_plugins()), new_client=NotingClient, elect_in_thread=False
    )
    task = asyncio.create_task(Manager(setup).run(stop))
    await answering(port, certificates)
    trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(certificates.authority)))
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=trust) as session:
        obj = job("nowhere")
        obj["metadata"]["namespace"] = "default"
        obj["spec"]["runtimeRef"]["name"] = "nothing"
        async with session.post(
            VALIDATE_TRAINJOB, data=review_of(obj, "u"), headers={"Content-Type": "application/json"}
        ) as response:
            assert (await response.json())["response"]["status"]["code"] == 403
    stop.set()
    await task
    assert asked == [f"{USER_AGENT}{WEBHOOKS_SUFFIX}"]


@pytest.mark.nightly
async def test_the_embedded_cluster_registers_the_webhooks_of_its_manager(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "cluster")
    for _ in range(2):  # the second time with what the first has left
        async with FaultyCluster(
            ClusterSettings(state=state, port=0, parts=frozenset({CONTROLLERS, MANAGER}))
        ) as cluster:
            access = await load_config(kubeconfig=str(state.kubeconfig))
            async with (
                KubeClient(access, user_agent="tests") as client,
                requests_to(Stack(access, client, cluster)) as requests,
            ):
                validator = f"{CONFIGURATIONS}/validatingwebhookconfigurations/validator.trainer.kubeflow.org"
                await eventually(partial(accepted, requests, "GET", validator))
                answer = await requests.send("POST", TRAINJOBS, job("lonely"))
    assert answer.message.startswith(f"{DENIED}spec.runtimeRef: Invalid value: ")


WEBHOOKS = [webhook for configuration in manifest() for webhook in configuration["webhooks"]]


def test_names_and_order_are_those_of_the_original() -> None:
    configurations = ["defaulter.trainer.kubeflow.org", "validator.trainer.kubeflow.org"]
    assert [configuration["metadata"]["name"] for configuration in manifest()] == configurations
    assert [webhook["name"].removesuffix(".trainer.kubeflow.org") for webhook in WEBHOOKS] == [
        *("defaulter.trainjob", "validator.clustertrainingruntime", "validator.trainingruntime", "validator.trainjob")
    ]


NOT_DISABLED = {"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn", "values": ["disabled"]}
SELECTOR = {"matchExpressions": [NOT_DISABLED]}


@pytest.mark.guarantee("H-5", "H-6", "H-9")
def test_every_webhook_is_asked_about_one_kind_has_ten_seconds_no_side_effects_and_fails_closed() -> None:
    """Those of runtimes can be switched off by a label."""
    for webhook in WEBHOOKS:
        assert webhook["timeoutSeconds"] == 10
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == "None"
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert "matchConditions" not in webhook
        (rule,) = webhook["rules"]
        validated, kind, *_ = webhook["name"].split(".")
        scaled = ["trainjobs/scale"] if (validated, kind) == ("validator", "trainjob") else []
        assert rule == {
            "apiGroups": ["trainer.kubeflow.org"],
            "apiVersions": ["v1alpha1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": [f"{kind}s", *scaled],
        }
        assert webhook.get("objectSelector") == (SELECTOR if "runtime" in webhook["name"] else None)


def test_every_path_is_served_and_every_served_path_is_registered() -> None:
    served = AdmissionHandlers(Framework([]), {}, KnownServer(), workers=Workers(), clock=SystemClock())
    handlers = served.handlers()
    assert {webhook["clientConfig"]["service"]["path"] for webhook in WEBHOOKS} == set(handlers)


KINDS = {kind.kind: kind for kind in load_job_kinds()}
JUDGED = ("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")


@pytest.fixture
async def unanswered(tmp_path: Path) -> AsyncIterator[Requests]:
    """An API server that has jobs, and webhooks that lead nowhere."""
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("a real cluster may serve other jobs")
        await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
        async with requests_to(stack) as unanswered:
            for kind in JUDGED:
                job = made(kind)
                job["metadata"]["finalizers"] = ["example.com/kept"]
                assert (await unanswered.send("POST", path(kind), job)).code == 201
            [configuration] = job_manifest()
            assert (
                await unanswered.send("POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations", configuration)
            ).code == 201
            yield unanswered


def made(kind: str, name: str = "job") -> JsonObject:
    job = job_object(KINDS[kind], {"Worker": 1}, name=name, namespace="default")
    del job["metadata"]["uid"]
    return job


def path(kind: str, name: str = "") -> str:
    return f"/apis/kubeflow.org/v1/namespaces/default/{KINDS[kind].plural}{f'/{name}' if name else ''}"


async def patch(unanswered: Requests, kind: str, body: dict[str, Any]) -> Answer:
    return await unanswered.send("PATCH", path(kind, "job"), body, kind=MERGE)


@pytest.mark.defect("V1-B36")
async def test_what_is_not_the_spec_can_be_edited_and_the_spec_cannot(unanswered: Requests) -> None:
    for kind in JUDGED:
        refusals = [
            await unanswered.send("POST", path(kind), made(kind, "another")),
            await patch(unanswered, kind, {"spec": {"runPolicy": {"backoffLimit": 1}}}),
            await patch(unanswered, kind, {"spec": None}),
        ]
        for refusal in refusals:
            assert refusal.code == 500, kind
            assert (
                f'failed calling webhook "validator.{kind.lower()}.training-operator.kubeflow.org"' in refusal.message
            )
        assert (await patch(unanswered, kind, {"metadata": {"labels": {"a": "b"}}})).code == 200
        assert (await unanswered.send("DELETE", path(kind, "job"))).code == 200
        assert (await unanswered.send("GET", path(kind, "job"))).body["metadata"]["deletionTimestamp"]
        assert (await patch(unanswered, kind, {"metadata": {"finalizers": None}})).code == 200
        assert (await unanswered.send("GET", path(kind, "job"))).code == 404
