"""Tokens of service accounts: what is signed, and only that, is believed."""

import base64
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import (
    ISSUER,
    BadSignature,
    InvalidToken,
    ServiceAccountTokens,
    SigningKey,
)
from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.resources import NODES, PODS, SERVICE_ACCOUNTS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.runtime.jsontree import JsonObject

_POD = {"kind": "Pod", "apiVersion": "v1", "name": "p"}


class Cluster:
    """An API with the account `me`, and a clock that tests set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.api = Api(Store(), builtin_registry(), clock=lambda: self.now)
        self.key = SigningKey()
        self.tokens = ServiceAccountTokens(self.api, self.key)

    async def create_account(self) -> JsonObject:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
        return await self.api.create(SERVICE_ACCOUNTS, account, namespace="default")

    async def create_pod(self, *, account: str = "me", **metadata: Any) -> JsonObject:
        spec = {"serviceAccountName": account, "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}
        return await self.api.create(PODS, pod, namespace="default")

    def token(self, **spec: Any) -> str:
        token: str = self.tokens.create("default", "me", {"spec": spec})["status"]["token"]
        return token

    def refusal(self, token: str, **options: Any) -> str:
        with pytest.raises(InvalidToken) as refused:
            self.tokens.authenticate_token(token, **options)
        return str(refused.value)


@pytest.fixture
async def cluster() -> Cluster:
    made = Cluster()
    await create_system_namespaces(made.api)
    await made.create_account()
    return made


async def test_a_token_names_its_account(cluster: Cluster) -> None:
    answer = cluster.tokens.create("default", "me", {})
    assert answer["status"]["expirationTimestamp"] == "2026-01-01T01:00:00Z"
    assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None}
    user, audiences = cluster.tokens.authenticate_token(answer["status"]["token"])
    assert user.name == "system:serviceaccount:default:me"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
    assert user.uid == cluster.api.get(SERVICE_ACCOUNTS, "default", "me")["metadata"]["uid"]
    assert audiences == [ISSUER]


async def test_the_claims_are_those_of_kubernetes(cluster: Cluster) -> None:
    await cluster.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    pod = await cluster.create_pod()
    claims = cluster.key.verify(cluster.token(audiences=["a", "b"], boundObjectRef=_POD))
    private = claims["kubernetes.io"]
    assert claims["sub"] == "system:serviceaccount:default:me"
    assert claims["aud"] == ["a", "b"]
    assert claims["iss"] == ISSUER
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["nbf"] == claims["iat"]
    assert private["namespace"] == "default"
    assert private["pod"] == {"name": "p", "uid": pod["metadata"]["uid"]}
    assert private["node"]["name"] == "n"
    assert private["serviceaccount"]["name"] == "me"


async def test_a_token_expires(cluster: Cluster) -> None:
    token = cluster.token(expirationSeconds=600)
    cluster.now += timedelta(seconds=600)
    cluster.tokens.authenticate_token(token)
    cluster.now += timedelta(seconds=1)
    assert "expired" in cluster.refusal(token)


async def test_a_token_is_for_its_audiences_only(cluster: Cluster) -> None:
    token = cluster.token(audiences=["a", "b"])
    assert cluster.tokens.authenticate_token(token, audiences=["b", "c"])[1] == ["b"]
    expected = f'token audiences ["a" "b"] is invalid for the target audiences ["{ISSUER}"]'
    assert cluster.refusal(token) == expected


async def test_a_token_ends_with_its_pod(cluster: Cluster) -> None:
    await cluster.create_pod()
    token = cluster.token(boundObjectRef=_POD)
    await cluster.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    assert "invalidated" in cluster.refusal(token)
    await cluster.create_pod()
    assert "invalidated" in cluster.refusal(token), "a pod of the same name is another pod"


async def test_a_pod_that_is_being_deleted_keeps_its_token_for_a_minute(cluster: Cluster) -> None:
    await cluster.create_pod(finalizers=["example.com/hold"])
    token = cluster.token(boundObjectRef=_POD)
    await cluster.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    cluster.tokens.authenticate_token(token)
    cluster.now += timedelta(seconds=61)
    assert "invalidated" in cluster.refusal(token)


async def test_a_node_beside_a_pod_may_go(cluster: Cluster) -> None:
    await cluster.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    await cluster.create_pod()
    with_pod = cluster.token(boundObjectRef=_POD)
    to_node = cluster.token(boundObjectRef={"kind": "Node", "apiVersion": "v1", "name": "n"})
    await cluster.api.delete(NODES, None, "n")
    cluster.tokens.authenticate_token(with_pod)
    assert "invalidated" in cluster.refusal(to_node)


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        ({"spec": {"expirationSeconds": 599}}, 422, "may not specify a duration less than 10 minutes"),
        ({"spec": {"expirationSeconds": 2**32 + 1}}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"spec": {"expirationSeconds": "1h"}}, 400, "whole number"),
        ({"spec": {"audiences": "me"}}, 400, "list of strings"),
        ({"spec": ["x"]}, 400, "must be objects"),
        ({"metadata": {"name": "you"}}, 400, "name in URL does not match"),
        ({"metadata": {"namespace": "other"}}, 400, "namespace in URL does not match"),
        ({"spec": {"boundObjectRef": {**_POD, "name": "none"}}}, 404, 'pods "none" not found'),
        ({"spec": {"boundObjectRef": {**_POD, "uid": "other"}}}, 409, "does not match the UID in record"),
        ({"spec": {"boundObjectRef": {"kind": "ConfigMap", "name": "p"}}}, 400, "cannot bind token to object"),
    ],
)
async def test_requests_that_make_no_sense(cluster: Cluster, request_: JsonObject, code: int, text: str) -> None:
    await cluster.create_pod()
    with pytest.raises(StatusError) as refused:
        cluster.tokens.create("default", "me", request_)
    assert refused.value.code == code
    assert text in refused.value.message


async def test_a_token_is_bound_only_to_pods_of_the_account(cluster: Cluster) -> None:
    await cluster.create_pod(account="you")
    with pytest.raises(StatusError, match="different serviceaccount name"):
        cluster.token(boundObjectRef=_POD)


async def test_an_account_that_does_not_exist_has_no_tokens(cluster: Cluster) -> None:
    with pytest.raises(StatusError, match='serviceaccounts "you" not found'):
        cluster.tokens.create("default", "you", {})
    with pytest.raises(StatusError, match='serviceaccounts "you" not found'):
        cluster.tokens.issue_for_pod(await cluster.create_pod(account="you"))


def test_the_key_outlives_a_restart_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "pki" / "key"
    token = SigningKey.ensure(path).sign({"sub": "me"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.ensure(path).verify(token) == {"sub": "me"}


def test_a_damaged_key_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("damaged")
    first = SigningKey.ensure(path)
    assert SigningKey.ensure(path).id == first.id


def _forged(key: SigningKey, what: str) -> str:
    header, payload, signature = key.sign({"sub": "me"}).split(".")

    def encode(content: object) -> str:
        return base64.urlsafe_b64encode(orjson.dumps(content)).rstrip(b"=").decode()

    match what:
        case "claims":
            return f"{header}.{encode({'sub': 'you'})}.{signature}"
        case "algorithm none":
            return f"{encode({'alg': 'none', 'kid': key.id})}.{payload}."
        case "other key":
            return SigningKey().sign({"sub": "me"})
        case "short signature":
            return f"{header}.{payload}.{signature[:20]}"
        case "not base64":
            return f"{header}.{payload}.{'*' * len(signature)}"
    return what


@pytest.mark.parametrize(
    "what", ["claims", "algorithm none", "other key", "short signature", "not base64", "", "..", "a.b.c", "ü.ü.ü"]
)
def test_forgeries_are_refused(what: str) -> None:
    key = SigningKey()
    with pytest.raises(BadSignature):
        key.verify(_forged(key, what))
