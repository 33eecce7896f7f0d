"""What users read when there is no cluster to talk to, or not the one they think: the whole texts."""

import asyncio
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from support.authorities import Authority
from support.virtualtime import settle

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import CertificateRejected, KubeError, NotConnected, TransportError
from trainmaster.controller.kube.rest.http1.transport import HttpTransport
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

Serve: TypeAlias = Callable[[ssl.SSLContext], Awaitable[Any]]

PATH = "/api/v1/namespaces/ns/pods/a"


async def complaint(kind: type[KubeError], config: RestConfig, clock: Any) -> str:
    transport = HttpTransport(config, clock=clock, connect_timeout=5.0)
    async with KubeClient(config, user_agent="test", clock=clock, tries=1, transport=transport) as client:
        with pytest.raises(kind) as caught:
            await client.get(PODS, "ns", "a")
    return str(caught.value)


@pytest.fixture
async def mute() -> AsyncIterator[str]:
    """A port on which connections are accepted by the kernel, and by nobody else."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


async def test_name_that_does_not_resolve(clock: Any) -> None:
    text = await complaint(NotConnected, RestConfig(server="https://nowhere.invalid:6443"), clock)
    assert text.startswith(f"GET https://nowhere.invalid:6443{PATH}: the name 'nowhere.invalid' cannot be resolved (")
    assert text.endswith("); check the server address in the kubeconfig and the DNS")


async def test_connection_refused(clock: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert await complaint(NotConnected, RestConfig(server=server), clock) == (
            f"GET {server}{PATH}: {server} refused the connection; is the server running? "
            "check the server address in the kubeconfig"
        )


async def test_server_that_does_not_shake_hands(clock: Any, mute: str) -> None:
    complaining = asyncio.create_task(complaint(NotConnected, RestConfig(server=f"https://{mute}"), clock))
    await settle()
    clock.step(5)
    assert await complaining == (
        f"GET https://{mute}{PATH}: no connection to https://{mute} within 5 s; "
        "check the server address in the kubeconfig, the network and firewalls"
    )


async def test_unknown_authority(clock: Any, tmp_path: Path, serve: Serve) -> None:
    server = await serve(Authority().server_context(tmp_path))
    context = ssl.create_default_context(cadata=Authority("another").pem.decode())
    text = await complaint(CertificateRejected, RestConfig(server=server.url, ssl_context=context), clock)
    assert text == (
        f"GET {server.url}{PATH}: the certificate of {server.url} was not accepted: unable to get local issuer "
        "certificate; check certificate-authority in the kubeconfig; the server may have a new one"
    )


async def test_expired_certificate(clock: Any, tmp_path: Path, serve: Serve) -> None:
    authority = Authority()
    server = await serve(authority.server_context(tmp_path, valid=dt.timedelta(days=-1)))
    context = ssl.create_default_context(cadata=authority.pem.decode())
    text = await complaint(CertificateRejected, RestConfig(server=server.url, ssl_context=context), clock)
    assert text == (
        f"GET {server.url}{PATH}: the certificate of {server.url} was not accepted: certificate has expired; "
        "renew the certificate of the server, or check the clocks"
    )


async def test_certificate_of_another_name(clock: Any, tmp_path: Path, serve: Serve) -> None:
    authority = Authority()
    server = await serve(authority.server_context(tmp_path))
    config = RestConfig(
        server=server.url,
        ssl_context=ssl.create_default_context(cadata=authority.pem.decode()),
        server_hostname="api.example.com",
    )
    assert await complaint(CertificateRejected, config, clock) == (
        f"GET {server.url}{PATH}: the certificate of {server.url} was not accepted: Hostname mismatch, certificate is "
        "not valid for 'api.example.com'.; check the server address in the kubeconfig, or set tls-server-name to a "
        "name in the certificate"
    )


async def test_https_to_a_port_of_http(clock: Any, server: Any) -> None:
    url = server.url.replace("http:", "https:")
    assert await complaint(NotConnected, RestConfig(server=url), clock) == (
        f"GET {url}{PATH}: {url} does not speak TLS; is it the right port, or should the server address begin with "
        "http://?"
    )


async def test_http_to_a_port_of_https(clock: Any, tmp_path: Path, serve: Serve) -> None:
    url = (await serve(Authority().server_context(tmp_path))).url.replace("https:", "http:")
    assert await complaint(TransportError, RestConfig(server=url), clock) == (
        f"GET {url}{PATH}: {url} closed the connection without an answer; if it expects https, change the server "
        "address in the kubeconfig"
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_server_that_demands_a_client_certificate(clock: Any, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """In TLS 1.3 the demand comes only after the handshake, in place of an answer."""
    authority = Authority()
    demanding = authority.server_context(tmp_path)
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.maximum_version = version

    def shake_hands(listening: socket.socket) -> None:
        connection = demanding.wrap_socket(listening.accept()[0], server_side=True, do_handshake_on_connect=False)
        with connection:
            with pytest.raises(ssl.SSLError):
                connection.do_handshake()
            # Read what came until the client is gone; closing earlier would reset the connection under the alert.
            while socket.socket.recv(connection, 2**16):
                pass

    context = ssl.create_default_context(cadata=authority.pem.decode())
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = f"https://127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.create_task(asyncio.to_thread(shake_hands, listening))
        text = await complaint(TransportError, RestConfig(server=server, ssl_context=context), clock)
        await serving
    assert text.startswith(f"GET {server}{PATH}: {server} refused our side of TLS (")
    assert text.endswith("); check the client certificate in the kubeconfig")


async def test_proxy_that_is_not_there(clock: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"http://me:secret@127.0.0.1:{unused.getsockname()[1]}"
        text = await complaint(NotConnected, RestConfig(server="http://api.example.com", proxy=proxy), clock)
    assert text == (
        f"GET http://api.example.com{PATH}: no connection to the proxy {proxy.replace('me:secret@', '')} "
        "(Connection refused); check proxy-url, HTTPS_PROXY and NO_PROXY"
    )


async def test_reset_in_the_middle_of_an_answer(clock: Any, server: Any) -> None:
    server.on("list", server.stream(b'{"kind":', then="reset"))
    text = await complaint(TransportError, RestConfig(server=server.url), clock)
    assert text.startswith(f"GET {server.url}{PATH}: the connection broke before the end")


def no_object(what: str) -> str:
    """What is said of an answer that is no object."""
    return f"GET {{url}}: {what}; is the server a Kubernetes API server, and is there a proxy or login page in between?"


FORBIDDEN = 'pods "a" is forbidden: User "jane" cannot get resource "pods"'
EXCEEDED = 'pods "a" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2'
EXPIRED = "401 Unauthorized: Unauthorized (GET {url}); the credentials are missing, wrong or expired; log in again, or "


LOGIN = "https://login.example.com/?next=x"


def refusal(reason: str, message: str) -> JsonObject:
    return {"kind": "Status", "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, b"", no_object("the answer is empty")),
        (200, b"<html><head><title>Sign in</title>", no_object("the answer is an HTML page: Sign in")),
        (200, b"<?xml version='1.0'?><error/>", no_object("the answer is markup: <?xml version='1.0'?><error/>")),
        (200, b"[1]", no_object("the answer is not an object: [1]")),
        (502, b"<html>\n<head><title>502 Bad Gateway</title></head>" + b"x" * 10_000,
         "502: the answer is an HTML page: 502 Bad Gateway (GET {url})"),
        (400, b"Client sent an HTTP request to an HTTPS server.\n",
         ("400: the answer is not a Status: Client sent an HTTP request to an HTTPS server.; change the server "
          "address in the kubeconfig to https:// (GET {url})")),
        # It is not followed: the credentials are for the API server only.
        (302, b"", f"302: the server redirects to {LOGIN} (GET {{url}})"),
        (401, refusal("Unauthorized", "Unauthorized"), EXPIRED + "renew them in the kubeconfig"),
        (403, refusal("Forbidden", FORBIDDEN),
         (f"403 Forbidden: {FORBIDDEN} (GET {{url}}); ask for a role that allows it; `kubectl auth can-i` tells "
          "what yours allow")),
        # What admission forbids no role allows.
        (403, refusal("Forbidden", EXCEEDED), f"403 Forbidden: {EXCEEDED}"),
    ],
)  # fmt: skip
async def test_answer_of_something_else_or_a_refusal(
    clock: Any, server: Any, status: int, body: bytes | JsonObject, text: str
) -> None:
    server.on("list", server.reply(status, body, Location=LOGIN))
    assert await complaint(KubeError, RestConfig(server=server.url), clock) == text.format(url=server.url + PATH)


async def test_expired_credentials_are_named_by_where_they_come_from(clock: Any, server: Any) -> None:
    server.on("list", server.status(401, "Unauthorized", "Unauthorized"))
    config = RestConfig(server=server.url, source="kubeconfig k (from $KUBECONFIG)")
    text = await complaint(KubeError, config, clock)
    assert text == EXPIRED.format(url=server.url + PATH) + "renew those of kubeconfig k (from $KUBECONFIG)"
