"""Managers of named namespaces (`watchNamespaces`), with the rights that are generated for them and no others."""

from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from support.admission import NAMESPACE
from support.certificate_installation import CertificateInstallation
from support.installations import Installation, create_namespace, grant, install
from support.stack import Stack, api_server, manager
from support.training import conditions_of, found, runtime, trainjob, until

from trainmaster.controller.configuration import Webhook
from trainmaster.controller.kube.rest.resources import EVENTS, LEASES
from trainmaster.controller.manager import other_leaders
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("impatient")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    directory: Path = tmp_path_factory.mktemp("namespaces")
    async with api_server(directory, rbac=True) as stack:
        if stack.cluster is None:
            pytest.skip("roles and namespaces are those of the cluster")
        await stack.client.create(CLUSTER_TRAINING_RUNTIMES, runtime("shared"))
        yield stack


async def install_in(stack: Stack, home: str, namespaces: Sequence[str], **more: Any) -> Installation:
    return await install(stack.client, stack.access, home, watch_namespaces=namespaces, **more)


def of_cluster(objects: Sequence[JsonObject]) -> list[JsonObject]:
    return [each for each in objects if each["kind"].startswith("Cluster")]


def of_namespaces(objects: Sequence[JsonObject], *namespaces: str) -> list[JsonObject]:
    return [each for each in objects if each["metadata"].get("namespace") in namespaces]


async def train(stack: Stack, namespace: str, name: str = "job", *, kind: str = "ClusterTrainingRuntime") -> None:
    job = trainjob(name)
    job["metadata"]["namespace"] = namespace
    job["spec"]["runtimeRef"] = {"name": "shared", "kind": kind}
    await stack.client.create(TRAINJOBS, job)


def jobset_of(stack: Stack, namespace: str, name: str = "job") -> Coroutine[Any, Any, JsonObject | None]:
    return found(stack.client, JOBSETS, name, namespace=namespace)


async def blocked(stack: Stack, namespace: str, name: str) -> JsonObject | None:
    return conditions_of(await stack.client.get(TRAINJOBS, namespace, name)).get("Blocked")


async def test_two_installations_side_by_side_serve_each_its_own_namespaces(stack: Stack) -> None:
    """Both lead at the same time, since each has the lease of its own namespace."""
    for namespace in ("team-a", "team-b", "team-c"):
        await create_namespace(stack.client, namespace)
        await train(stack, namespace)
    first = await install_in(stack, "trainer-a", ["team-a"])
    second = await install_in(stack, "trainer-b", ["team-b"])
    for each in (first, second):
        await grant(stack.client, each.objects)
    with capture_logs() as logs:
        async with (
            manager(first.access, configuration=first.configuration),
            manager(second.access, configuration=second.configuration),
        ):
            for namespace in ("team-a", "team-b"):
                await until(partial(jobset_of, stack, namespace))
            holders = [
                (await stack.client.get(LEASES, home, "trainer.kubeflow.org"))["spec"]["holderIdentity"]
                for home in ("trainer-a", "trainer-b")
            ]
            await train(stack, "team-a", "another")
            await until(lambda: jobset_of(stack, "team-a", "another"))
    assert all(holders)
    assert len(set(holders)) == 2
    assert await jobset_of(stack, "team-c") is None
    assert "status" not in await stack.client.get(TRAINJOBS, "team-c", "job")
    assert [each for each in logs if each["log_level"] in {"warning", "error"}] == []


async def test_without_a_right_beyond_the_namespaces_runtimes_of_the_namespaces_are_served(stack: Stack) -> None:
    """Who names a ClusterTrainingRuntime is told which right is missing, and served once it is granted."""
    await create_namespace(stack.client, "alone")
    installation = await install_in(stack, "trainer-alone", ["alone"])
    await grant(stack.client, of_namespaces(installation.objects, "alone", "trainer-alone"))
    own = {**runtime("shared"), "kind": TRAINING_RUNTIMES.kind}
    own["metadata"] = {**own["metadata"], "namespace": "alone"}
    await stack.client.create(TRAINING_RUNTIMES, own)
    with capture_logs() as logs:
        async with manager(installation.access, configuration=installation.configuration):
            await train(stack, "alone", "own", kind=TRAINING_RUNTIMES.kind)
            await until(lambda: jobset_of(stack, "alone", "own"))
            await train(stack, "alone", "foreign")
            condition = await until(lambda: blocked(stack, "alone", "foreign"))
            assert condition["reason"] == "RuntimeForbidden"
            assert condition["message"] == (
                'ClusterTrainingRuntime "shared" cannot be read: Trainmaster may not get '
                "clustertrainingruntimes.trainer.kubeflow.org here; name a TrainingRuntime of this namespace, or tell "
                "your administrator, for whom the log of the manager says what to grant"
            )
            told = [each for each in logs if each.get("resource") == CLUSTER_TRAINING_RUNTIMES.name]
            told = [each for each in told if each["log_level"] != "debug"]
            assert [(each["log_level"], each["verb"]) for each in told] == [("info", "watch"), ("info", "get")]
            await grant(stack.client, of_cluster(installation.objects))
            await until(lambda: jobset_of(stack, "alone", "foreign"))

            async def cleared() -> bool:
                return await blocked(stack, "alone", "foreign") is None

            await until(cleared)


async def test_a_namespace_without_rights_is_left_out_until_it_has_them(stack: Stack) -> None:
    """It may not exist yet, or be deleted, with its Role: the others are served, and it is when it is there."""
    await create_namespace(stack.client, "here")
    installation = await install_in(stack, "trainer-some", ["here", "later"])
    await grant(stack.client, of_cluster(installation.objects))
    await grant(stack.client, of_namespaces(installation.objects, "here", "trainer-some"))
    with capture_logs() as logs:
        async with manager(installation.access, configuration=installation.configuration):
            await train(stack, "here")
            await until(lambda: jobset_of(stack, "here"))
            told = [each for each in logs if each["event"].startswith("a namespace is not served")]
            assert [each["namespace"] for each in told] == ["later"]
            assert 'by a Role in namespace "later"' in told[0]["reason"]
            await create_namespace(stack.client, "later")
            await grant(stack.client, of_namespaces(installation.objects, "later"))
            await train(stack, "later")
            await until(lambda: jobset_of(stack, "later"))
            assert [each["namespace"] for each in logs if each["event"] == "the namespace is served now"] == ["later"]


async def test_what_becomes_of_its_certificate_is_told_in_its_own_namespace(stack: Stack, tmp_path: Path) -> None:
    """Which is none of those that it serves."""
    await create_namespace(stack.client, "served")
    installation = await install_in(stack, NAMESPACE, ["served"], webhook=Webhook())
    await grant(stack.client, installation.objects)
    certificates = CertificateInstallation(stack, tmp_path, access=installation.access)
    await certificates.create_secret()

    async def told() -> bool:
        events = (await stack.client.list(EVENTS, NAMESPACE))["items"]
        return {"AuthorityRotated", "CertificateRotated"} <= {each["reason"] for each in events}

    with capture_logs() as logs:
        election, served = installation.configuration.leader_election, installation.configuration.watch_namespaces
        async with certificates.manager(leader_election=election, watch_namespaces=served):
            await until(told)
    assert [each for each in logs if each["event"] == "a right is missing"] == []


async def test_two_managers_of_a_whole_cluster_tell_it(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both go on: whoever may write a lease somewhere must not be able to stop the manager of a cluster."""
    monkeypatch.setattr(other_leaders, "SECOND_LOOK", 0.5)
    monkeypatch.setattr(other_leaders, "LOOK_EVERY", 0.5)
    installations = [await install_in(stack, home, []) for home in ("trainer-one", "trainer-two")]
    for each in installations:
        await grant(stack.client, each.objects)
    one, two = installations
    with capture_logs() as logs:
        async with (
            manager(one.access, configuration=one.configuration),
            manager(two.access, configuration=two.configuration),
        ):

            async def both_told() -> bool:
                told = {lease for each in logs for lease in each.get("leases", ())}
                return {lease.partition("/")[0] for lease in told} == {"trainer-one", "trainer-two"}

            await until(both_told)
            await create_namespace(stack.client, "any")
            await train(stack, "any")
            await until(partial(jobset_of, stack, "any"))
