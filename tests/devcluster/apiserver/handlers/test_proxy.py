"""The proxy subresource of pods and Services: what is passed on, what is kept back, and who may."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict
from support.commands import TIMEOUT
from support.devcluster.envtest import Environment, start_environment
from yarl import URL

from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, PODS, SERVICES
from trainmaster.devcluster.certificates import ensure_certificates
from trainmaster.runtime.jsontree import JsonObject


@dataclass
class Seen:
    """A request as the pod has got it."""

    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes


@dataclass
class Pod:
    """What listens behind a pod, and what it was asked."""

    port: int = 0
    tls_port: int = 0
    seen: list[Seen] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = CIMultiDict(request.headers)
        self.seen.append(Seen(request.method, request.raw_path, headers, await request.read()))
        match request.path.rpartition("/")[2]:
            case "moved":
                return web.Response(status=302, headers={"Location": "/login?next=1"})
            case "elsewhere":
                return web.Response(status=302, headers={"Location": "https://example.com/login"})
            case "refused":
                return web.Response(status=418, text="I am a pod")
            case "endless":
                return await self._endless(request)
            case "cut":
                answer = web.StreamResponse(headers={"Content-Length": "1000"})
                await answer.prepare(request)
                await answer.write(b"half")
                assert request.transport is not None
                request.transport.abort()
                return answer
        answer = web.Response(body=b"x" * 200_000 if request.path.endswith("/large") else b"hello")
        answer.headers.update({"X-Pod": "yes", "Access-Control-Allow-Origin": "*", "Keep-Alive": "timeout=5"})
        answer.set_cookie("a", "1")
        answer.set_cookie("b", "2")
        return answer

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            await answer.write(b"first")
            await asyncio.Event().wait()
        finally:
            self.gone.set()
        return answer


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    made = Pod()
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    certificates = ensure_certificates(tmp_path / "pod", now=datetime.now(UTC))
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.server_context()).start()
    made.port, made.tls_port = (address[1] for address in runner.addresses)
    yield made
    await runner.cleanup()


@pytest.fixture
async def server(tmp_path: Path, pod: Pod) -> AsyncIterator[Environment]:
    async with start_environment(tmp_path, rbac=True) as served:
        await add_pod(served, "web", [pod.port, 1])
        await add_pod(served, "waiting", [pod.port], ip="")
        yield served


async def add_pod(server: Environment, name: str, ports: list[int], *, ip: str = "127.0.0.1") -> None:
    containers = [{"name": "c", "image": "i", "ports": [{"containerPort": each} for each in ports]}]
    made = await server.api.create(
        PODS, {"metadata": {"name": name}, "spec": {"containers": containers}}, namespace="default"
    )
    if ip:
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
        await server.api.update(PODS, {**made, "status": status}, namespace="default", name=name, subresource="status")


def path_of(what: str, path: str = "", *, resource: str = "pods") -> str:
    return f"/api/v1/namespaces/default/{resource}/{what}/proxy{path}"


async def ask(server: Environment, path: str, method: str = "GET", **options: Any) -> tuple[int, Any, CIMultiDict[str]]:
    options.setdefault("allow_redirects", False)
    async with (
        server.session() as session,
        session.request(method, URL(server.url + path, encoded=True), **options) as answer,
    ):
        body = await answer.json() if answer.content_type == "application/json" else await answer.read()
        return answer.status, body, CIMultiDict(answer.headers)


async def test_a_request_is_passed_on_and_its_response_back(server: Environment, pod: Pod) -> None:
    status, body, headers = await ask(server, path_of("web", "/a/b?c=d&e=%2F"))
    assert (status, body) == (200, b"hello")
    assert (pod.seen[0].method, pod.seen[0].path) == ("GET", "/a/b?c=d&e=%2F")
    assert headers["X-Pod"] == "yes"
    assert [each.partition(";")[0] for each in headers.getall("Set-Cookie")] == ["a=1", "b=2"]
    # What concerns one connection or other sites is not passed back.
    assert "Keep-Alive" not in headers
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_methods_and_bodies_are_passed_on(server: Environment, pod: Pod, method: str) -> None:
    """A body may be larger than any object: it is not kept."""
    body = b"z" * 5_000_000
    status, _, _ = await ask(server, path_of("web", "/x"), method, data=BytesIO(body), headers={"Content-Type": "a/b"})
    assert status == 200
    assert (pod.seen[0].method, pod.seen[0].body == body, pod.seen[0].headers["Content-Type"]) == (method, True, "a/b")


async def test_head_has_no_body(server: Environment, pod: Pod) -> None:
    status, body, headers = await ask(server, path_of("web", "/large"), "HEAD")
    assert (status, body, headers["Content-Length"], pod.seen[0].method) == (200, b"", "200000", "HEAD")


async def test_a_method_that_no_proxy_has_is_refused(server: Environment, pod: Pod) -> None:
    assert (await ask(server, path_of("web", "/"), "TRACE"))[0] == 405
    assert not pod.seen


@pytest.mark.parametrize(
    ("path", "arrives"),
    [
        ("/", "/"),
        ("/a/", "/a/"),
        ("//a//b", "//a//b"),
        ("/a%20b/%C3%A4", "/a%20b/%C3%A4"),
        ("/a%2Fb", "/a/b"),
        ("/proxy/proxy", "/proxy/proxy"),
    ],
)
async def test_paths_arrive_as_they_are(server: Environment, pod: Pod, path: str, arrives: str) -> None:
    assert (await ask(server, path_of("web", path)))[0] == 200
    assert pod.seen[0].path == arrives


async def test_without_a_path_it_is_said_where_one_begins(server: Environment, pod: Pod) -> None:
    status, _, headers = await ask(server, path_of("web", "?a=b"))
    assert (status, headers["Location"]) == (301, path_of("web", "/?a=b"))
    assert not pod.seen


async def test_credentials_stay_and_other_headers_go(server: Environment, pod: Pod) -> None:
    sent = {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}
    sent |= {
        "X-Trainmaster-Authorization": "Bearer t",
        "Cookie": "k=v",
        "User-Agent": "me",
        "X-Forwarded-For": "1.2.3.4",
    }
    assert (await ask(server, path_of("web", "/x"), headers=sent))[0] == 200
    headers = pod.seen[0].headers
    assert not {"Authorization", "Impersonate-User", "Impersonate-Group"} & set(headers)
    assert server.token not in str(headers)
    assert headers["X-Trainmaster-Authorization"] == "Bearer t"
    assert (headers["Cookie"], headers["User-Agent"]) == ("k=v", "me")
    assert headers["X-Forwarded-For"] == "1.2.3.4, 127.0.0.1"
    assert headers["X-Forwarded-Uri"] == path_of("web", "/x")


async def test_errors_of_the_pod_are_its_own(server: Environment) -> None:
    status, body, _ = await ask(server, path_of("web", "/refused"))
    assert (status, body) == (418, b"I am a pod")


async def test_redirects_lead_back_through_the_proxy(server: Environment) -> None:
    _, _, headers = await ask(server, path_of("web", "/moved"))
    assert headers["Location"] == path_of("web", "/login?next=1")
    _, _, headers = await ask(server, path_of("web", "/elsewhere"))
    assert headers["Location"] == "https://example.com/login"


async def test_ports_and_schemes_are_chosen(server: Environment, pod: Pod) -> None:
    await add_pod(server, "tls", [1])
    assert (await ask(server, path_of(f"tls:{pod.port}", "/x")))[0] == 200
    assert (await ask(server, path_of(f"https:tls:{pod.tls_port}", "/x")))[0] == 200, "its certificate is nobody's"
    assert (await ask(server, path_of(f"http:tls:{pod.port}", "/x")))[0] == 200


@pytest.mark.parametrize(
    ("what", "status", "reason", "text"),
    [
        ("absent", 404, "NotFound", 'pods "absent" not found'),
        ("waiting", 400, "BadRequest", "address not allowed"),
        ("ftp:web:1", 400, "BadRequest", 'invalid pod request "ftp:web:1"'),
        ("a:b:c:d", 400, "BadRequest", 'invalid pod request "a:b:c:d"'),
        ("web:metrics", 503, "ServiceUnavailable", "error trying to reach service: dial tcp: lookup tcp/metrics"),
        ("web:99999", 503, "ServiceUnavailable", "error trying to reach service: dial tcp: address 99999"),
    ],
)
async def test_who_cannot_be_asked(server: Environment, what: str, status: int, reason: str, text: str) -> None:
    code, body, _ = await ask(server, path_of(what, "/x"))
    assert (code, body["reason"]) == (status, reason)
    assert text in body["message"]


async def test_a_port_at_which_nobody_listens_or_without_tls_is_503(server: Environment, pod: Pod) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    status, body, _ = await ask(server, path_of(f"web:{port}", "/x"))
    assert (status, body["reason"]) == (503, "ServiceUnavailable")
    assert body["message"] == (f"error trying to reach service: dial tcp 127.0.0.1:{port}: connect: connection refused")
    status, body, _ = await ask(server, path_of(f"https:web:{pod.port}", "/x"))
    assert (status, body["reason"]) == (503, "ServiceUnavailable")
    assert body["message"].startswith("error trying to reach service: tls: ")


async def test_a_response_that_ends_too_early_breaks_the_connection(server: Environment) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        await ask(server, path_of("web", "/cut"))


async def test_a_client_that_goes_away_ends_the_request(server: Environment, pod: Pod) -> None:
    async with server.session() as session, session.get(path_of("web", "/endless")) as answer:
        assert await answer.content.read(5) == b"first", "what has come is passed on before the end"
    await asyncio.wait_for(pod.gone.wait(), TIMEOUT)


async def test_upgrades_are_not_pretended(server: Environment, pod: Pod) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    status, body, _ = await ask(server, path_of("web", "/x"), headers=upgrade)
    assert (status, body["reason"]) == (501, "NotImplemented")
    assert not pod.seen


# Services


async def add_service(server: Environment, name: str, ports: list[JsonObject], target: int) -> None:
    spec = {"ports": ports, "selector": {"app": name}}
    await server.api.create(SERVICES, {"metadata": {"name": name}, "spec": spec}, namespace="default")
    piece = {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": each.get("name", ""), "port": target, "protocol": "TCP"} for each in ports],
    }
    await server.api.create(ENDPOINT_SLICES, piece, namespace="default")


async def test_services_are_reached_by_number_and_by_name_of_a_port(server: Environment, pod: Pod) -> None:
    await add_service(server, "plain", [{"port": 80}], pod.port)
    await add_service(server, "named", [{"name": "web", "port": 81}, {"name": "other", "port": 82}], pod.port)
    for what in ("plain", "plain:80", "named:web", "http:named:81"):
        assert (await ask(server, path_of(what, "/x", resource="services")))[0] == 200, what
    await add_service(server, "secure", [{"name": "metrics", "port": 8443}], pod.tls_port)
    assert (await ask(server, path_of("https:secure:metrics", "/x", resource="services")))[0] == 200


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("absent", 404, 'services "absent" not found'),
        ("empty", 503, 'no endpoints available for service "empty"'),
        ("empty:81", 503, 'no service port 81 found for service "empty"'),
        ("empty:web", 503, 'no endpoints available for service "empty"'),
    ],
)
async def test_services_that_cannot_be_reached(server: Environment, what: str, status: int, text: str) -> None:
    spec = {"ports": [{"port": 80}], "selector": {"app": "a"}}
    await server.api.create(SERVICES, {"metadata": {"name": "empty"}, "spec": spec}, namespace="default")
    code, body, _ = await ask(server, path_of(what, "/x", resource="services"))
    assert code == status
    assert text in body["message"]


# Who may


@pytest.mark.parametrize(
    ("method", "verb"),
    [("GET", "get"), ("HEAD", "get"), ("POST", "create"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")],
)
async def test_each_method_is_a_verb_of_the_subresource(server: Environment, pod: Pod, method: str, verb: str) -> None:
    as_user = {"Impersonate-User": "ada"}
    await allow(server, verb, "pods")  # a right to pods is none to their proxies
    status, body, _ = await ask(server, path_of("web", "/x"), method, headers=as_user)
    assert status == 403
    if method != "HEAD":
        assert f'User "ada" cannot {verb} resource "pods/proxy"' in body["message"]
    assert not pod.seen
    await allow(server, verb, "pods/proxy")
    assert (await ask(server, path_of("web", "/x"), method, headers=as_user))[0] == 200


async def test_names_of_rules_are_those_of_the_path(server: Environment, pod: Pod) -> None:
    """The port is a part of the name that a rule allows."""
    await allow(server, "get", "pods/proxy", names=[f"web:{pod.port}"])
    as_user = {"Impersonate-User": "ada"}
    assert (await ask(server, path_of("web", "/x"), headers=as_user))[0] == 403
    assert (await ask(server, path_of(f"web:{pod.port}", "/x"), headers=as_user))[0] == 200


async def allow(server: Environment, verb: str, resource: str, *, names: list[str] | None = None) -> None:
    group = {"group": "rbac.authorization.k8s.io", "version": "v1"}
    name = resource.replace("/", "-")
    role = {
        "metadata": {"name": name},
        "rules": [{"verbs": [verb], "apiGroups": [""], "resources": [resource], "resourceNames": names or []}],
    }
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group["group"], "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "name": "ada", "apiGroup": group["group"]}],
    }
    async with server.session() as session:
        for plural, each in (("roles", role), ("rolebindings", binding)):
            path = f"/apis/{group['group']}/v1/namespaces/default/{plural}"
            async with session.post(path, json=each) as answer:
                assert answer.status == 201, await answer.text()


async def test_discovery_has_the_proxies(server: Environment) -> None:
    _, body, _ = await ask(server, "/api/v1")
    found = {each["name"]: each for each in body["resources"]}
    verbs = ["create", "delete", "get", "patch", "update"]
    assert (found["pods/proxy"]["kind"], found["pods/proxy"]["verbs"]) == ("PodProxyOptions", verbs)
    assert (found["services/proxy"]["kind"], found["services/proxy"]["verbs"]) == ("ServiceProxyOptions", verbs)
