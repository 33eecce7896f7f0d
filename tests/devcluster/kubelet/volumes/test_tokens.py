"""Tokens of service accounts in pods: bound to the pod, renewed in time, and accepted by the server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.commands import TIMEOUT

from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens, SigningKey
from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.resources import PODS, SERVICE_ACCOUNTS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.controllers.serviceaccount import ServiceAccountController
from trainmaster.devcluster.kubelet.container import CreateContainerError, PodRejectedError
from trainmaster.devcluster.kubelet.environment import PodInfo
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.volumes import VolumeManager
from trainmaster.runtime.jsontree import JsonObject

_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}


def _pod(command: list[str], **spec: Any) -> JsonObject:
    containers = [{"name": "c", "image": "i", "command": command}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {**spec, "containers": containers}}


class Pods:
    """One pod under the account `me`, and a clock that tests set."""

    def __init__(self, directory: Path) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.api = Api(Store(), builtin_registry(), clock=lambda: self.now)
        self.tokens = ServiceAccountTokens(self.api, SigningKey())
        self._directory = directory

    async def volume_manager(self, *sources: JsonObject, tokens: bool = True) -> VolumeManager:
        spec = {"serviceAccountName": "me", "volumes": [{"name": "v", "projected": {"sources": list(sources)}}]}
        pod = await self.api.create(PODS, _pod([], **spec), namespace="default")
        return VolumeManager(
            PodInfo(pod=pod, pod_ip="127.1.1.1", capacity={}),
            directory=self._directory,
            claims=self._directory,
            lookup=lambda *_: None,
            rewrite=str,
            tokens=self.tokens if tokens else None,
        )


@pytest.fixture
async def pods(tmp_path: Path) -> Pods:
    made = Pods(tmp_path)
    await create_system_namespaces(made.api)
    await made.api.create(SERVICE_ACCOUNTS, _ACCOUNT, namespace="default")
    return made


def source(**more: Any) -> JsonObject:
    return {"serviceAccountToken": {"path": "token", **more}}


async def test_a_projected_token_is_for_its_audience_and_bound_to_the_pod(pods: Pods) -> None:
    volume_manager = await pods.volume_manager(source(audience="reports", expirationSeconds=600))
    token = (volume_manager.mount_all()["v"] / "token").read_text()
    user, _ = pods.tokens.authenticate_token(token, audiences=["reports"])
    assert user.name == "system:serviceaccount:default:me"
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)


async def test_it_is_renewed_when_most_of_its_life_is_over(pods: Pods) -> None:
    volume_manager = await pods.volume_manager(
        source(expirationSeconds=1000), source(path="longer", expirationSeconds=5000)
    )
    place = volume_manager.mount_all()["v"]
    first = (place / "token").read_text()
    assert volume_manager.refresh_at == pods.now + timedelta(seconds=800)
    pods.now += timedelta(seconds=800)
    volume_manager.refresh(now=pods.now)
    assert (place / "token").read_text() != first
    assert volume_manager.refresh_at == pods.now + timedelta(seconds=800)
    pods.now += timedelta(seconds=900)
    pods.tokens.authenticate_token((place / "token").read_text())


async def test_a_renewal_that_fails_is_tried_again_and_leaves_the_token(pods: Pods) -> None:
    volume_manager = await pods.volume_manager(source())
    token = volume_manager.mount_all()["v"] / "token"
    before = token.read_text()
    await pods.api.delete(SERVICE_ACCOUNTS, "default", "me")
    pods.now += timedelta(hours=1)
    volume_manager.refresh(now=pods.now)
    assert token.read_text() == before
    assert volume_manager.refresh_at is not None
    assert volume_manager.refresh_at > pods.now
    await pods.api.create(SERVICE_ACCOUNTS, _ACCOUNT, namespace="default")
    volume_manager.refresh(now=volume_manager.refresh_at)
    assert token.read_text() != before


async def test_without_its_account_a_pod_waits(pods: Pods) -> None:
    volume_manager = await pods.volume_manager(source())
    await pods.api.delete(SERVICE_ACCOUNTS, "default", "me")
    with pytest.raises(CreateContainerError, match='failed to fetch token: serviceaccounts "me" not found'):
        volume_manager.mount_all()


async def test_a_kubelet_without_tokens_says_so(pods: Pods) -> None:
    with pytest.raises(PodRejectedError, match="serviceAccountToken is not supported"):
        (await pods.volume_manager(source(), tokens=False)).mount_all()


@asynccontextmanager
async def serving(
    directory: Path, *, ahead: timedelta = timedelta()
) -> AsyncIterator[tuple[Api, ServiceAccountTokens, Kubelet]]:
    """A kubelet with tokens, whose clock may be ahead, and the controller that gives pods their accounts."""
    api = Api(Store(), builtin_registry())
    tokens = ServiceAccountTokens(api, SigningKey())
    await create_system_namespaces(api)
    controller = ServiceAccountController(api, root_ca="PEM")
    kubelet = Kubelet(
        api,
        node_name="laptop",
        root_dir=directory / "state",
        server_url="https://127.0.0.1:16443",
        clock=lambda: datetime.now(UTC) + ahead,
        tokens=tokens,
    )
    tasks = [asyncio.create_task(part.run()) for part in (controller, kubelet)]
    try:
        yield api, tokens, kubelet
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Api, ServiceAccountTokens, Kubelet]]:
    async with serving(tmp_path) as parts:
        yield parts


async def _finished(api: Api) -> JsonObject:
    async with asyncio.timeout(TIMEOUT), api.watch(PODS, since=None) as changes:
        async for change in changes:
            if change.object and change.object["status"].get("phase") in {"Succeeded", "Failed"}:
                return change.object
    raise AssertionError("the watch ended")


@pytest.mark.nightly
async def test_each_container_has_the_token_of_its_account(running: tuple[Api, ServiceAccountTokens, Kubelet]) -> None:
    """At the usual place, which the kubelet rewrites where it stands in a command."""
    api, tokens, _ = running
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = f"cd {place}; cat token; echo; cat ca.crt namespace; echo; echo $$KUBERNETES_SERVICE_PORT"
    command = ["/bin/sh", "-c", f"({script}) > /dev/termination-log"]
    await api.create(PODS, _pod(command, restartPolicy="Never", nodeName="laptop"), namespace="default")
    ended = await _finished(api)
    message = ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    token, files, port = message.splitlines()
    assert (files, port) == ("PEMdefault", "16443")
    user, _ = tokens.authenticate_token(token)
    assert user.name == "system:serviceaccount:default:default"
    assert user.extra["authentication.kubernetes.io/pod-uid"] == (ended["metadata"]["uid"],)
    await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))


@pytest.mark.nightly
async def test_the_token_of_a_running_pod_is_renewed(tmp_path: Path) -> None:
    """Within a second, because the shortest token of ten minutes is eight minutes old when the kubelet gets it."""
    projected = {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]}
    account = {"serviceAccountName": "default", "automountServiceAccountToken": False}
    volumes = [{"name": "v", "projected": projected}]
    pod = _pod(["sleep", "60"], nodeName="laptop", volumes=volumes, **account)
    seen: set[str] = set()
    async with serving(tmp_path, ahead=timedelta(minutes=8)) as (api, _, _), asyncio.timeout(TIMEOUT):
        await api.create(PODS, pod, namespace="default")
        while len(seen) < 3:
            seen |= {path.read_text() for path in tmp_path.glob("state/pods/*/volumes/v/token")}
            await asyncio.sleep(0.02)
