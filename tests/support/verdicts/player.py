"""Plays recorded cases over HTTP against an API server on which nothing else runs.

It is the embedded one, with nothing but the admission that belongs to kinds, or the one of the kubeconfig that
TRAINMASTER_TEST_KUBECONFIG names; that one must be bare as well.
"""

import os
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.conformance import JSON, Client, connected
from support.devcluster.envtest import start_environment
from support.stack import KUBECONFIG_VARIABLE
from support.verdicts.answers import Answer, recorded_form
from support.verdicts.cases import in_namespace

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.runtime.jsontree import JsonObject

_PLURALS: Mapping[str, str] = {
    "ConfigMap": "configmaps",
    "Event": "events",
    "Job": "jobs",
    "Lease": "leases",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "Secret": "secrets",
    "Service": "services",
}
_CLUSTER_SCOPED: Mapping[str, str] = {"PriorityClass": "priorityclasses", "RuntimeClass": "runtimeclasses"}
_PATCHES: Mapping[str, str] = {
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


@asynccontextmanager
async def bare_server(directory: Path) -> AsyncIterator["Player"]:
    """Start the embedded API server alone, or turn to the given one."""
    async with AsyncExitStack() as stack:
        kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
        if not kubeconfig:
            await stack.enter_async_context(start_environment(directory))
        access = await load_config(kubeconfig=kubeconfig or str(directory / "kubeconfig"))
        yield Player(await stack.enter_async_context(connected(access)), embedded=not kubeconfig)


class Player:
    """Sends the requests of cases, each in a namespace of its own."""

    def __init__(self, client: Client, *, embedded: bool) -> None:
        self._client = client
        self._embedded = embedded
        self._run = secrets.token_hex(3)
        self._number = 0

    @asynccontextmanager
    async def cluster_objects(self, cases: Iterable[JsonObject]) -> AsyncIterator[None]:
        """Have the objects without a namespace that cases want as given; admission must know them before."""
        wanted = [obj for case in cases for obj in case.get("given") or () if obj["kind"] in _CLUSTER_SCOPED]
        for obj in wanted:
            assert (await self._create(obj, ""))[0] == 201, obj
        try:
            yield
        finally:
            for obj in wanted:
                await self._send("DELETE", _path(obj, "", obj["metadata"]["name"]))

    async def play(self, case: JsonObject) -> JsonObject:
        """Play a case and return the answer in its recorded form."""
        self._number += 1
        namespace = f"api-{self._run}-{self._number:04d}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        assert (await self._send("POST", "/api/v1/namespaces", body))[0] == 201
        try:
            for obj in case.get("given") or ():
                if obj["kind"] not in _CLUSTER_SCOPED:
                    answer = await self._create(in_namespace(obj, namespace), namespace, fieldManager="given")
                    assert answer[0] == 201, answer
            for action in case.get("setup") or ():
                prepared = await self._act(action, namespace, {})
                assert prepared.code < 300, prepared
            query = dict(case.get("query") or {})
            if not case.get("persist"):
                query["dryRun"] = "All"
            return recorded_form(await self._act(case["request"], namespace, query), namespace)
        finally:
            if not self._embedded:
                await self._remove(namespace)

    async def _act(self, action: JsonObject, namespace: str, query: dict[str, str]) -> Answer:
        query = {"fieldManager": "golden"} | query
        action = in_namespace(action, namespace)
        if "create" in action:
            obj, to = action["create"], action.get("to") or action["create"]
            name = action["to"].get("name") if "to" in action else None
            path = _path(to, namespace, name, action.get("to", {}).get("subresource"))
            return Answer(*await self._send("POST", path, obj, query=query), sent=obj, before=None)
        ((verb, target),) = action.items()
        path = _path(target, namespace, target["name"], target.get("subresource"))
        code, found, _ = await self._send("GET", _path(target, namespace, target["name"]))
        before = found if code == 200 else None
        if verb == "update":
            body = dict(target["body"])
            if before is not None:
                version = {"resourceVersion": before["metadata"]["resourceVersion"]}
                body["metadata"] = version | (body.get("metadata") or {})
            return Answer(*await self._send("PUT", path, body, query=query), sent=target["body"], before=None)
        body = target["ops" if verb == "json" else "body"]
        answer = await self._send("PATCH", path, body, content_type=_PATCHES[verb], query=query)
        return Answer(*answer, sent=body if isinstance(body, dict) else {}, before=before)

    async def _create(self, obj: JsonObject, namespace: str, **query: str) -> tuple[int, JsonObject, tuple[str, ...]]:
        return await self._send("POST", _path(obj, namespace), obj, query=query)

    async def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        query: Mapping[str, Any] | None = None,
    ) -> tuple[int, JsonObject, tuple[str, ...]]:
        answer = await self._client.send(method, path, body, content_type=content_type, **(query or {}))
        is_json = answer.headers["Content-Type"].startswith(JSON)
        return answer.status, answer.json if is_json else {"message": answer.body.decode()}, answer.warnings

    async def _remove(self, namespace: str) -> None:
        """Remove what a case made; nobody else does on a server without controllers."""
        for plural in ("pods", "services", "configmaps", "secrets", "persistentvolumeclaims"):
            path = f"/api/v1/namespaces/{namespace}/{plural}"
            await self._send("DELETE", path, query={"gracePeriodSeconds": "0"})
        await self._send(
            "DELETE", f"/apis/batch/v1/namespaces/{namespace}/jobs", query={"propagationPolicy": "Background"}
        )
        code, found, _ = await self._send("DELETE", f"/api/v1/namespaces/{namespace}")
        if code == 200:
            path = f"/api/v1/namespaces/{namespace}/finalize"
            await self._send("PUT", path, found | {"spec": {"finalizers": []}})


def _path(target: JsonObject, namespace: str, name: object = None, subresource: str | None = None) -> str:
    version, kind = target["apiVersion"], target["kind"]
    parts = ["/apis" if "/" in version else "/api", version]
    parts += [_CLUSTER_SCOPED[kind]] if kind in _CLUSTER_SCOPED else ["namespaces", namespace, _PLURALS[kind]]
    parts += [quote(str(part), safe="") for part in (name, subresource) if part]
    return "/".join(parts)
