"""The rights of the manager: with exactly the roles that are generated for it everything works, and none is idle.

The API server enforces RBAC, and OwnerReferencesPermissionEnforcement as OpenShift does.
"""

from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.devcluster.faults import Delay, Refuse, StallWatch
from support.enforcement import NAMESPACE, Enforced, enforced, roles_for, shipped_configuration, shipped_objects
from support.failing_pods import show_failure
from support.golden import POD_GROUPS, VOLCANO_POD_GROUPS
from support.installations import create_namespace
from support.objects import COMPLETE, replicated_job, runtime_object, trainjob_object
from support.series import series
from support.stack import manager
from support.training import conditions_of, found, until
from support.web import probed

from trainmaster.controller.conditions import JOB_CREATION_FAILED
from trainmaster.controller.configuration import Metrics, MetricsAuth, Plugins, TrainingOperator, Webhook
from trainmaster.controller.diagnosis import diagnosis, reading
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS, LEASES, SECRETS, Resource
from trainmaster.controller.resources import JOBSETS, RUNTIMES, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.api.constants import LEGACY_FINALIZER
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

TEAM = "team"

CACHED = (
    *("trainjobs", "trainingruntimes", "clustertrainingruntimes", "configmaps", "jobsets"),
    *("podgroups", "limitranges", "runtimeclasses", "priorityclasses", "resourceclaims", "resourceclaimtemplates"),
    "pods",
)


@pytest.fixture
async def cluster(tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Enforced]:
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)
    async with enforced(tmp_path) as cluster:
        await create_namespace(cluster.client, TEAM)
        yield cluster


def refused() -> float:
    """How many requests of this process were refused so far."""
    return sum(
        sample.value for sample in series("rest_client_requests_total") if sample.labels.get("code") in ("401", "403")
    )


def runtime(name: str, *jobs: JsonObject, gang: str = "", **policy: Any) -> JsonObject:
    obj = runtime_object(*jobs, policy=policy)
    obj["metadata"]["name"] = name
    if gang:
        obj["spec"]["podGroupPolicy"] = {gang: {}}
    return obj


RUNTIMES_BY_NAME = {
    "torch": runtime("torch", torch={}),
    "mpi": runtime("mpi", replicated_job("launcher"), replicated_job("node", ancestor=None), mpi={}),
    "flux": runtime("flux", flux={}),
    "coscheduling": runtime("coscheduling", torch={}, gang="coscheduling"),
    "volcano": runtime("volcano", torch={}, gang="volcano"),
}

BUILT: dict[str, list[tuple[Resource, str]]] = {
    "torch": [(CONFIGMAPS, "{}-runtime-snapshot"), (JOBSETS, "{}")],
    "mpi": [(SECRETS, "{}-mpi-ssh-auth"), (CONFIGMAPS, "{}-mpi-hostfile"), (JOBSETS, "{}")],
    "flux": [(SECRETS, "{}-flux-curve"), (CONFIGMAPS, "{}-flux-entrypoint"), (JOBSETS, "{}")],
    "coscheduling": [(POD_GROUPS, "{}"), (JOBSETS, "{}")],
    "volcano": [(VOLCANO_POD_GROUPS, "{}"), (JOBSETS, "{}")],
}
"""What a TrainJob on each of them becomes."""


async def create(cluster: Enforced, name: str, *, on: str, **spec: Any) -> None:
    obj = trainjob_object(name, **spec, runtimeRef={"kind": "TrainingRuntime", "name": on})
    obj["metadata"] = {"name": name, "namespace": TEAM}
    await cluster.client.create(TRAINJOBS, obj)


def there(cluster: Enforced, resource: Resource, name: str) -> Coroutine[Any, Any, JsonObject | None]:
    return found(cluster.client, resource, name, namespace=TEAM)


async def appears(cluster: Enforced, resource: Resource, name: str) -> None:
    await until(lambda: there(cluster, resource, name))


async def vanishes(cluster: Enforced, resource: Resource, name: str) -> None:
    async def is_gone() -> bool:
        return await there(cluster, resource, name) is None

    await until(is_gone)


async def has_condition(cluster: Enforced, name: str, type_: str, *, text: str = "") -> None:
    async def holds() -> bool:
        held = conditions_of(await there(cluster, TRAINJOBS, name) or {})
        return type_ in held and text in held[type_]["message"]

    await until(holds)


async def events_about(cluster: Enforced, name: str) -> list[JsonObject]:
    listed = (await cluster.client.list(EVENTS, TEAM))["items"]
    return [event for event in listed if event["regarding"]["name"] == name]


async def test_with_exactly_its_roles_a_manager_serves_trainjobs_of_all_kinds(
    cluster: Enforced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "FIRST_LOOK_FOR_JOBS", 1.0)
    await cluster.apply(shipped_objects())
    for obj in RUNTIMES_BY_NAME.values():
        await cluster.client.create(TRAINING_RUNTIMES, obj)
    port, before = free_port(), refused()
    metrics = Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False, auth=MetricsAuth(enabled=True))
    async with manager(cluster.access, configuration=shipped_configuration(metrics=metrics)):
        for name in RUNTIMES_BY_NAME:
            await create(cluster, f"{name}-job", on=name)
        for name, objects in BUILT.items():
            for resource, pattern in objects:
                await appears(cluster, resource, pattern.format(f"{name}-job"))
        secret = await cluster.client.get(SECRETS, TEAM, "mpi-job-mpi-ssh-auth")
        assert secret["immutable"] is True
        assert {entry["manager"] for entry in secret["metadata"]["managedFields"]} == {"trainer"}
        lease = await cluster.client.get(LEASES, NAMESPACE, "trainer.kubeflow.org")
        assert lease["spec"]["holderIdentity"]
        await _a_whole_life(cluster)
        await _an_exceeded_deadline(cluster)
        await _events_that_repeat(cluster)
        await _a_finalizer_of_the_past(cluster)
        await _refused_jobs(cluster)
        await _a_failing_container(cluster, "fails")
        await has_condition(cluster, "fails", "ContainerFailed", text="my loss is NaN")
        assert await metrics_status(port) == 401
        own = (await cluster.access.headers())["Authorization"].removeprefix("Bearer ")
        assert await metrics_status(port, token=own) == 403, "it is authenticated, and may not read metrics itself"
    assert refused() == before


async def end(cluster: Enforced, name: str, condition: JsonObject) -> None:
    """Let a JobSet end."""
    status = {"status": {"conditions": [condition]}}
    await cluster.client.patch(JOBSETS, TEAM, name, status, subresource="status")


async def _a_whole_life(cluster: Enforced) -> None:
    """The status follows the JobSet, and the TrainJob is deleted when its time to live has passed."""
    await create(cluster, "short", on="torch", ttlSecondsAfterFinished=0)
    await appears(cluster, JOBSETS, "short")
    await end(cluster, "short", COMPLETE | {"type": "Completed"})
    await vanishes(cluster, TRAINJOBS, "short")


async def _an_exceeded_deadline(cluster: Enforced) -> None:
    await create(cluster, "late", on="torch", activeDeadlineSeconds=1)
    await has_condition(cluster, "late", "Failed")
    await vanishes(cluster, JOBSETS, "late")


async def _events_that_repeat(cluster: Enforced) -> None:
    """Looked for past the cache, a runtime is not there; it comes, and goes with its snapshot: the same event again."""
    for kind, resource in RUNTIMES.items():
        name = f"early-{kind.lower()}"
        obj = trainjob_object(name, runtimeRef={"kind": kind, "name": name})
        obj["metadata"] = {"name": name, "namespace": TEAM}
        await cluster.client.create(TRAINJOBS, obj)
        await has_condition(cluster, name, "Blocked", text="not found")
        late = runtime(name, torch={}) | {"kind": kind}
        if not resource.namespaced:
            del late["metadata"]["namespace"]
        await cluster.client.create(resource, late)
        await appears(cluster, JOBSETS, name)
        await cluster.client.delete(resource, late["metadata"].get("namespace"), name)

        async def is_counted(name: str = name) -> bool:
            snapshot = f"{name}-runtime-snapshot"
            if await there(cluster, CONFIGMAPS, snapshot) is not None:
                await cluster.client.delete(CONFIGMAPS, TEAM, snapshot)
            return any((event.get("series") or {}).get("count") == 2 for event in await events_about(cluster, name))

        await until(is_counted)


async def _a_finalizer_of_the_past(cluster: Enforced) -> None:
    for kind, resource in RUNTIMES.items():
        obj = runtime("past", torch={}) | {"kind": kind}
        obj["metadata"]["finalizers"] = [LEGACY_FINALIZER]
        namespace = TEAM if resource.namespaced else None
        if not namespace:
            del obj["metadata"]["namespace"]
        await cluster.client.create(resource, obj)

        async def is_free(resource: Resource = resource, namespace: str | None = namespace) -> bool:
            return "finalizers" not in (await cluster.client.get(resource, namespace, "past"))["metadata"]

        await until(is_free)


async def _refused_jobs(cluster: Enforced) -> None:
    """Why a JobSet has no Jobs is in an event of its controller."""
    imageless = replicated_job(containers=[{"name": "node"}])
    await cluster.client.create(TRAINING_RUNTIMES, runtime("imageless", imageless, torch={}))
    await create(cluster, "imageless", on="imageless")
    await appears(cluster, JOBSETS, "imageless")
    jobset = await cluster.client.get(JOBSETS, TEAM, "imageless")
    about = {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "name": "imageless", "namespace": TEAM}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "imageless.1", "namespace": TEAM},
        "involvedObject": about | {"uid": jobset["metadata"]["uid"]},
        "reason": JOB_CREATION_FAILED,
        "message": 'Job.batch "imageless-node-0" is invalid: spec.template.spec.containers[0].image: Required value',
        "type": "Warning",
    }
    await cluster.client.create(reading.CORE_EVENTS, event)
    await has_condition(cluster, "imageless", "Blocked", text="imageless-node-0")


async def _a_failing_container(cluster: Enforced, name: str) -> None:
    """A TrainJob whose JobSet and pod are in the state in which their controller and a kubelet leave them."""
    await create(cluster, name, on="torch")
    await appears(cluster, JOBSETS, name)
    await show_failure(cluster.client, TEAM, name, message="ValueError: my loss is NaN")


async def test_who_undoes_our_writes_is_looked_for_with_exactly_its_roles(cluster: Enforced) -> None:
    """Whatever somebody keeps deleting is read past the cache before its owner is told; keys are new each time."""
    await cluster.apply(shipped_objects())
    for each in RUNTIMES_BY_NAME.values():
        await cluster.client.create(TRAINING_RUNTIMES, each)
    before = refused()
    async with manager(cluster.access, configuration=shipped_configuration()):
        for on, resource, pattern in (
            (each_on, *each) for each_on, built in BUILT.items() for each in built if each[0] != SECRETS
        ):
            name = f"{on}-{resource.plural}"
            await create(cluster, name, on=on, suspend=True)

            async def is_contested(
                name: str = name, resource: Resource = resource, victim: str = pattern.format(name)
            ) -> bool:
                if await there(cluster, resource, victim) is not None:
                    await cluster.client.delete(resource, TEAM, victim)
                return any(
                    event["reason"] == "TrainJobResourceContested" for event in await events_about(cluster, name)
                )

            await until(is_contested)
    assert refused() == before


async def test_without_streaming_lists_its_roles_let_it_list(cluster: Enforced, tmp_path: Path) -> None:
    """Each watch that a manager opens fails at first, and those of its certificates by name as well."""
    await cluster.apply(shipped_objects())
    before = refused()
    assert cluster.stack.cluster is not None
    faults = cluster.stack.cluster.faults
    by_name = ("secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    failed = [
        faults.add(Refuse(500), verb="watch", resource=plural, user_agent="trainmaster/", times=2)
        for plural in (*CACHED, *by_name)
    ]
    listed = [faults.add(Delay(0.0), verb="list", resource=plural, user_agent="trainmaster/") for plural in by_name]
    webhook = Webhook(host="127.0.0.1", port=free_port(), cert_dir=str(tmp_path / "certs"))
    async with manager(
        cluster.access, configuration=shipped_configuration(webhook=webhook, shutdown_delay_duration="0s")
    ):
        assert all(fault.count for fault in failed[: len(CACHED)])
        await until(lambda: all(fault.count for fault in listed))
    assert refused() == before


async def test_without_plugins_what_they_needed_is_not_granted_and_not_missed(cluster: Enforced) -> None:
    disabled = ["mpi", "flux", "volcano", "coscheduling", "claims"]
    configuration = shipped_configuration(
        plugins=Plugins(disabled=disabled), training_operator=TrainingOperator(enabled=False)
    )
    granted = roles_for(configuration, disabled=disabled)
    everywhere = [rule for role in granted if role["kind"] == "ClusterRole" for rule in role["rules"]]
    assert not {"secrets", "podgroups"} & {resource for rule in everywhere for resource in rule["resources"]}
    await cluster.apply(granted)
    await cluster.client.create(TRAINING_RUNTIMES, RUNTIMES_BY_NAME["torch"])
    before = refused()
    framework = Framework(load_plugins(disabled=frozenset(disabled)))
    async with manager(cluster.access, configuration=configuration, framework=framework):
        await create(cluster, "plain", on="torch")
        await appears(cluster, JOBSETS, "plain")
    assert refused() == before


async def metrics_status(port: int, *, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics", headers=headers) as answer,
    ):
        return answer.status


def events_of(logs: list[Any], event: str) -> list[tuple[str, str]]:
    return [(line["verb"], line["resource"]) for line in logs if line["event"] == event]


async def test_without_any_right_each_is_told_once_and_taken_up_when_granted(cluster: Enforced) -> None:
    """That to the lease, which a Role grants, by readiness as well."""
    await cluster.client.create(TRAINING_RUNTIMES, RUNTIMES_BY_NAME["torch"])
    await create(cluster, "patient", on="torch")
    with capture_logs() as logs:
        async with probed(cluster.access, shipped_configuration()) as probes:
            await probes.until("readyz", "trainjobs.trainer.kubeflow.org (no permission to")
            await until(lambda: len(events_of(logs, "a right is missing")) >= len(CACHED) + 1)
            await cluster.apply([each for each in shipped_objects() if each["kind"] != "Role"])
            await probes.until("readyz", "leaderElection failed", "leases.coordination.k8s.io")
            await cluster.apply(shipped_objects())
            await appears(cluster, JOBSETS, "patient")
            await until(lambda: granted_of(logs) == missing_of(logs))
            assert await probes.ask("readyz") == (200, "ok")
    told = events_of(logs, "a right is missing")
    assert len(set(told)) == len(told)
    assert {resource.partition(".")[0] for _, resource in told} == {*CACHED, "leases"}
    assert ("get", "leases.coordination.k8s.io") in events_of(logs, "a right was granted")
    assert all(line["needed_by"] for line in logs if line["event"] == "a right is missing")
    loud = [
        line for line in logs if line["log_level"] in ("warning", "error") and line["event"] != "a right is missing"
    ]
    assert [line["event"] for line in loud] == ["caches are not filled yet"] * len(loud)


def missing_of(logs: list[Any]) -> set[str]:
    return {resource for _, resource in events_of(logs, "a right is missing")}


def granted_of(logs: list[Any]) -> set[str]:
    return {resource for _, resource in events_of(logs, "a right was granted")}


async def test_what_is_optional_and_not_granted_stops_nothing_else(cluster: Enforced) -> None:
    """Events, Secrets, gangs, claims, pods: a TrainJob that needs none of them is served, and each is told once.

    Those that fail do so as ever, without the words of their pods.
    """
    optional = {"secrets", "limitranges", "runtimeclasses", "priorityclasses", "podgroups", "resourceclaims", "events"}
    optional |= {"leases"}  # those of other namespaces: our own is granted by a Role
    optional |= {"tokenreviews", "subjectaccessreviews", "pods"}
    port = free_port()
    metrics = Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False, auth=MetricsAuth(enabled=True))
    objects = shipped_objects()
    for role in (each for each in objects if each["kind"] == "ClusterRole"):
        role["rules"] = [rule for rule in role["rules"] if not optional & set(rule["resources"])]
    await cluster.apply(objects)
    await cluster.client.create(TRAINING_RUNTIMES, RUNTIMES_BY_NAME["torch"])
    await cluster.client.create(TRAINING_RUNTIMES, RUNTIMES_BY_NAME["mpi"])
    with capture_logs() as logs:
        async with probed(cluster.access, shipped_configuration(metrics=metrics)) as probes:
            await probes.until("readyz", status=200)
            for number in range(3):
                assert await metrics_status(port, token=f"token-{number}") == 500
                await create(cluster, f"nowhere-{number}", on="nothing")
                await has_condition(cluster, f"nowhere-{number}", "Blocked", text="not found")
                await create(cluster, f"keys-{number}", on="mpi")
                await has_condition(cluster, f"keys-{number}", "Blocked", text="secrets")
            for name in ("one", "two"):
                await _a_failing_container(cluster, name)
                message = "jobset failed due to one or more job failures"
                await end(cluster, name, COMPLETE | {"type": "Failed", "reason": "FailedJobs", "message": message})
                await has_condition(cluster, name, "Failed", text=message)
            assert await probes.ask("readyz") == (200, "ok")
    told = events_of(logs, "a right is missing")
    assert len(set(told)) == len(told)
    # Who reads metrics is not known, so nobody asks whether they may.
    missing = {*optional, "resourceclaimtemplates"} - {"subjectaccessreviews"}
    assert {resource.partition(".")[0] for _, resource in told} == missing
    assert not [line for line in logs if line["event"].startswith("who reads metrics")]
    assert ("create", "events.events.k8s.io") in told
    assert ("create", "secrets") in told


NO_JOBSETS = (
    'Trainmaster may not patch jobsets.jobset.x-k8s.io in namespace "team", which it needs to build what a TrainJob '
    "consists of; tell your administrator, for whom the log of the manager says what to grant"
)


async def test_what_was_blocked_for_want_of_a_right_goes_on_when_it_is_granted(cluster: Enforced) -> None:
    objects = shipped_objects()
    for rule in (rule for each in objects for rule in each.get("rules", ())):
        if "jobsets" in rule["resources"]:
            rule["verbs"] = ["get", "list", "watch"]
    await cluster.apply(objects)
    await cluster.client.create(TRAINING_RUNTIMES, RUNTIMES_BY_NAME["torch"])
    with capture_logs() as logs:
        async with probed(cluster.access, shipped_configuration()) as probes:
            for number in range(3):
                await create(cluster, f"job-{number}", on="torch")
                await has_condition(cluster, f"job-{number}", "Blocked", text=NO_JOBSETS)
            told = "[+]rights ok: the service account may not patch jobsets.jobset.x-k8s.io; the log says what needs it"
            await probes.until("readyz?verbose", told, status=200)
            await cluster.apply(shipped_objects())
            for number in range(3):
                await appears(cluster, JOBSETS, f"job-{number}")
            await probes.until("readyz?verbose", "[+]rights ok\n", status=200)
    assert events_of(logs, "a right is missing") == [("patch", "jobsets.jobset.x-k8s.io")]
    assert events_of(logs, "a right was granted") == [("patch", "jobsets.jobset.x-k8s.io")]


async def test_somebody_elses_secret_is_told_with_exactly_its_roles_though_no_cache_shows_it(cluster: Enforced) -> None:
    """It is not used: whoever made it knows the key."""
    await cluster.apply(shipped_objects())
    await cluster.client.create(TRAINING_RUNTIMES, RUNTIMES_BY_NAME["mpi"])
    assert cluster.stack.cluster is not None
    # The snapshot, that there are none, still arrives.
    cluster.stack.cluster.faults.add(StallWatch(after=1), verb="watch", resource="secrets", user_agent="trainmaster/")
    metadata = {"name": "demo-mpi-ssh-auth", "namespace": TEAM}
    async with manager(cluster.access, configuration=shipped_configuration()):
        await cluster.client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        await create(cluster, "demo", on="mpi")
        taken = 'Secret "demo-mpi-ssh-auth" exists and does not belong to this TrainJob'
        await has_condition(cluster, "demo", "Blocked", text=taken)
        assert await there(cluster, JOBSETS, "demo") is None
