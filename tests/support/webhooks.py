"""A webhook server with TLS whose responses a test decides, and configurations that lead to it."""

import base64
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from support.devcluster.envtest import Environment

from trainmaster.devcluster.apiserver.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, GroupResource
from trainmaster.devcluster.certificates import ServerCertificates, ensure_certificates
from trainmaster.devcluster.cluster import Cluster

SERVICE_HOST = "hooks.kube-system.svc"

Response = dict[str, Any] | web.Response


class WebhookServer:
    """Answers by path; remembers every review that it was sent."""

    def __init__(self, certificates: ServerCertificates) -> None:
        self.certificates = certificates
        self.port = 0
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.queries: list[str] = []
        self.headers: list[Any] = []
        self.cut_off: set[int] = set()
        """Of all the requests, counted from 1, those whose connection is closed in place of a response."""
        self._responses: dict[str, Callable[[dict[str, Any]], Response | Awaitable[Response]]] = {}

    def on(self, path: str, response: Response | Callable[[dict[str, Any]], Any]) -> None:
        """Answer a path with a response, or with what a function makes of the request in the review."""
        self._responses[path] = response if callable(response) else lambda _: response

    def requests(self, path: str) -> list[dict[str, Any]]:
        return [review["request"] for asked, review in self.asked if asked == path]

    @property
    def authority(self) -> str:
        return base64.b64encode(self.certificates.authority_pem).decode()

    async def handle(self, request: web.Request) -> web.Response:
        review = orjson.loads(await request.read())
        self.asked.append((request.path, review))
        self.queries.append(request.query_string)
        self.headers.append(request.headers)
        if len(self.asked) in self.cut_off and request.transport is not None:
            request.transport.close()
            return web.Response()
        response = self._responses[request.path](review["request"])
        if inspect.isawaitable(response):
            response = await response
        if isinstance(response, web.Response):
            return response
        full = {"uid": review["request"]["uid"], "allowed": True, **response}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": full})


@asynccontextmanager
async def serve_webhooks(directory: Path) -> AsyncIterator[WebhookServer]:
    """Serve on a free port, with a certificate for the loopback address and `SERVICE_HOST`."""
    hosts = ("127.0.0.1", SERVICE_HOST)
    server = WebhookServer(ensure_certificates(directory, now=datetime.now(UTC), hosts=hosts))
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.certificates.server_context()).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    """The part of a response that changes the object."""
    return {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(list(operations))).decode()}


def label(name: str, value: str = "yes") -> dict[str, Any]:
    """A patch that labels an object which has labels."""
    return patch({"op": "add", "path": f"/metadata/labels/{name}", "value": value})


def rule(*resources: str, group: str = "", operations: tuple[str, ...] = ("CREATE", "UPDATE"), **more: Any) -> Any:
    return {
        "operations": list(operations),
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": list(resources),
        **more,
    }


class Configurer:
    """Creates configurations for one webhook server."""

    def __init__(self, served: Environment | Cluster, hooks: WebhookServer) -> None:
        self.served = served
        self.hooks = hooks

    def webhook(self, path: str = "/hook", **more: Any) -> dict[str, Any]:
        client = {"url": f"https://127.0.0.1:{self.hooks.port}{path}", "caBundle": self.hooks.authority}
        return {
            "name": f"{path.strip('/').replace('/', '-')}.example.com",
            "clientConfig": client,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [rule("configmaps")],
            **more,
        }

    async def mutating(self, *webhooks: dict[str, Any], name: str = "mutating") -> Any:
        return await self._create(MUTATING_WEBHOOKS, name, webhooks)

    async def validating(self, *webhooks: dict[str, Any], name: str = "validating") -> Any:
        return await self._create(VALIDATING_WEBHOOKS, name, webhooks)

    async def _create(self, resource: GroupResource, name: str, webhooks: tuple[dict[str, Any], ...]) -> Any:
        return await self.served.api.create(resource, {"metadata": {"name": name}, "webhooks": list(webhooks)})


class HookedServer(Configurer):
    """An API server with configurations that lead to one webhook server."""

    def __init__(self, server: Environment, hooks: WebhookServer) -> None:
        super().__init__(server, hooks)
        self.server = server
