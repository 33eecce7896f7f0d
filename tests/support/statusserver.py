"""TrainJobs with pods and tokens, as far as the status server looks at them, and the server as trainers see it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestClient
from support.series import value_of

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists
from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.controller.statusserver.authorizer import JOBS, OwnerKinds
from trainmaster.runtime.api.constants import status_audience, status_path
from trainmaster.runtime.jsontree import JsonObject

NAMESPACE = "training"
ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)

REPORT: JsonObject = {
    "trainerStatus": {
        "progressPercentage": 45,
        "estimatedRemainingSeconds": 795,
        "metrics": [{"name": "loss", "value": "0.2347"}],
        "lastUpdatedTime": "2026-01-31T12:00:00Z",
    }
}


OWNERS = OwnerKinds(workloads=[JOBSETS], between=[JOBS])
"""Those of the built-in plugins."""

_POD_TEMPLATE: JsonObject = {"spec": {"containers": [{"name": "node", "image": "i"}], "restartPolicy": "Never"}}


class Trainers:
    """Creates TrainJobs and what they become, in one namespace; keeps the cache that a manager would have."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.cache = Store()

    async def prepare(self) -> None:
        """Create the namespace and its service account."""
        for resource, metadata in (
            (NAMESPACES, {"name": NAMESPACE}),
            (ACCOUNTS, {"name": "default", "namespace": NAMESPACE}),
        ):
            with contextlib.suppress(AlreadyExists):
                await self._create(resource, metadata)

    async def create(self, name: str, *, index: int = 0) -> JsonObject:
        """Create a TrainJob, its JobSet, its Job and a pod; returns the pod."""
        trainjob = await self._create(TRAINJOBS, {"name": name}, spec={"runtimeRef": {"name": "rt"}})
        self.cache.put(trainjob)
        node = {"name": "node", "template": {"spec": {"template": _POD_TEMPLATE}}}
        jobset = await self._create(JOBSETS, {"name": name}, owner=trainjob, spec={"replicatedJobs": [node]})
        return await self.start(jobset, index=index)

    async def start(self, jobset: JsonObject, *, index: int = 0) -> JsonObject:
        """Create the Job of a JobSet and a pod; returns the pod."""
        name = jobset["metadata"]["name"]
        labels = {"jobset.sigs.k8s.io/jobset-name": name}
        metadata = {"name": f"{name}-node-0", "labels": labels}
        job = await self._create(JOBS, metadata, owner=jobset, spec={"template": _POD_TEMPLATE})
        return await self.pod(f"{name}-node-0-{index}", labels=labels, owner=job)

    async def pod(self, name: str, *, labels: dict[str, str] | None = None, owner: JsonObject | None) -> JsonObject:
        """Create a pod."""
        spec = {"containers": [{"name": "node", "image": "i"}], "serviceAccountName": "default"}
        return await self._create(PODS, {"name": name, "labels": labels or {}}, owner=owner, spec=spec)

    async def token(self, trainjob: str, *, pod: JsonObject | None, audience: str | None = None) -> str:
        """Get a token for the status of a TrainJob, bound to a pod or to nothing."""
        spec: JsonObject = {"audiences": [audience or status_audience(NAMESPACE, trainjob)], "expirationSeconds": 3600}
        if pod is not None:
            metadata = pod["metadata"]
            bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
            spec["boundObjectRef"] = bound
        path = ACCOUNTS.path(NAMESPACE, "default", "token")
        code, _, body = await self.client.raw("POST", path, body=orjson.dumps({"spec": spec}))
        assert code == 201, body
        token: str = orjson.loads(body)["status"]["token"]
        return token

    async def finish(self, name: str) -> None:
        """Let a TrainJob complete."""
        condition = {
            "type": "Complete",
            "status": "True",
            "reason": "AllJobsCompleted",
            "message": "done",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        patch = {"status": {"conditions": [condition]}}
        self.cache.put(await self.client.patch(TRAINJOBS, NAMESPACE, name, patch, subresource="status"))

    async def reported(self, name: str) -> Any:
        """Read what a TrainJob says of its progress."""
        trainjob = await self.client.get(TRAINJOBS, NAMESPACE, name)
        return (trainjob.get("status") or {}).get("trainerStatus")

    async def _create(
        self, resource: Resource, metadata: JsonObject, *, owner: JsonObject | None = None, **content: Any
    ) -> JsonObject:
        metadata = {**({"namespace": NAMESPACE} if resource.namespaced else {}), **metadata}
        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ]
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}
        return await self.client.create(resource, obj)


class MovableClock(SystemClock):
    """Real time that a test can push forward, and whose timeouts it can let pass at once."""

    def __init__(self) -> None:
        self.pushed = 0.0
        self._scopes: set[asyncio.Timeout] = set()

    def monotonic(self) -> float:
        return super().monotonic() + self.pushed

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        async with asyncio.timeout(seconds) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    @property
    def waiting(self) -> int:
        """How many timeouts run."""
        return len(self._scopes)

    def expire(self) -> None:
        """Let all timeouts pass."""
        for scope in self._scopes:
            scope.reschedule(0)


@dataclass(frozen=True)
class Response:
    """What came back."""

    code: int
    body: Any
    headers: Any = field(repr=False)

    @property
    def message(self) -> str:
        text: str = self.body["message"]
        return text


class StatusClient:
    """Reports as trainers do."""

    def __init__(
        self, session: TestClient[web.Request, web.Application], trainers: Trainers, clock: MovableClock
    ) -> None:
        self._session = session
        self.port = session.port or 0
        self.trainers = trainers
        self.clock = clock

    async def post(
        self,
        trainjob: str,
        token: str | None,
        report: Any = REPORT,
        *,
        namespace: str = NAMESPACE,
        headers: JsonObject | None = None,
    ) -> Response:
        """Send a report, as JSON or as raw bytes or chunks."""
        data = orjson.dumps(report) if isinstance(report, dict) else report
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return await self.request("POST", status_path(namespace, trainjob), data=data, headers=headers)

    async def request(self, method: str, path: str, **options: Any) -> Response:
        """Send anything."""
        async with self._session.request(method, path, **options) as response:
            assert response.content_type == "application/json"
            return Response(response.status, await response.json(), response.headers)


def reviews() -> float:
    """How often the API server was asked about a token."""
    outcomes = ("accepted", "refused", "failed")
    names = [{"outcome": outcome} for outcome in outcomes]
    return sum(value_of("trainmaster_progress_token_reviews_total", name) or 0 for name in names)
