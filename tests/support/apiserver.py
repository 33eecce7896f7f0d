"""Requests to the API server of the embedded cluster, and rights for those who make them."""

import io
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest
from support.devcluster.envtest import Environment
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PODS, ROLE_BINDINGS, ROLES
from trainmaster.runtime.jsontree import JsonObject

AS_ME = {"Impersonate-User": "system:serviceaccount:default:me"}
"""Headers that act as the account to which `grant` gives rights."""

CONFIGMAPS_PATH = "/api/v1/namespaces/default/configmaps"


async def call(
    server: Environment, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
) -> tuple[int, Any]:
    """Make a request as the administrator, or with other headers; returns status and body."""
    given = {"Authorization": f"Bearer {server.token}", **(headers or {})}
    async with server.session(headers=given) as session, session.request(method, path, **options) as response:
        return response.status, await response.json(content_type=None)


async def send(
    server: Environment,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "application/json",
    **query: str,
) -> tuple[int, Any, list[str]]:
    """Make a request as the administrator; returns status, body and warnings."""
    options: dict[str, Any] = {"params": query}
    if isinstance(body, bytes):
        options |= {"data": io.BytesIO(body), "headers": {"Content-Type": content_type}}
    elif body is not None:
        options["json"] = body
    async with server.session() as session, session.request(method, path, **options) as response:
        return response.status, await response.json(), response.headers.getall("Warning", [])


def configmap(name: str = "a", **data: str) -> dict[str, Any]:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def grant(api: Api, *rules: JsonObject, name: str = "r", user: str = "") -> None:
    """Give rules in the namespace `default` to the account `me`, or to a user."""
    version, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    role = {"apiVersion": version, "kind": "Role", "metadata": {"name": name}, "rules": list(rules)}
    await api.create(ROLES, role, namespace="default")
    subject: JsonObject = {"kind": "ServiceAccount", "name": "me", "namespace": "default"}
    if user:
        subject = {"kind": "User", "name": user, "apiGroup": group}
    binding = {
        "apiVersion": version,
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
    }
    await api.create(ROLE_BINDINGS, binding, namespace="default")


async def create_pod(
    cluster: Stepper, name: str = "p", *, resources: JsonObject | None = None, **spec: Any
) -> JsonObject:
    """Create a pod with one container."""
    container = {"name": "main", "image": "img", "resources": resources or {}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    return await cluster.api.create(PODS, body, namespace="default")


async def refusal(request: Awaitable[object]) -> tuple[int, str]:
    """Return code and message with which a request is refused."""
    with pytest.raises(StatusError) as caught:
        await request
    return caught.value.code, caught.value.message


async def assert_refused(request: Awaitable[object], code: int, *texts: str) -> None:
    """Assert that a request is refused with this code, and that the message has these texts."""
    with pytest.raises(StatusError) as caught:
        await request
    assert caught.value.code == code
    for text in texts:
        assert text in caught.value.message


async def mistakes_of(request: Awaitable[object]) -> set[tuple[str, str]]:
    """Return the fields and the types (`Required`, ...) of the mistakes for which a request is refused with 422."""
    with pytest.raises(StatusError) as caught:
        await request
    assert caught.value.code == 422
    assert caught.value.details is not None
    causes = caught.value.details["causes"]
    return {(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in causes}
