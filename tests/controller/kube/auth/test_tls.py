"""Certificates, keys and tokens that are replaced while a client lives, against servers with real TLS."""

import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from support.authorities import Authority
from support.kubeconfigs import write_kubeconfig
from support.series import value_of

from trainmaster.controller.kube.auth import refresh
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import CertificateRejected, TransportError
from trainmaster.controller.kube.rest.resources import PODS

Serve: TypeAlias = Callable[[ssl.SSLContext], Awaitable[Any]]


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}}


def last(server: Any, body: Any = POD, *, times: int = 1) -> None:
    """Answer so that the connection is not used again."""
    server.on("list", *[server.reply(200, body, Connection="close")] * times)


def client_for(config: RestConfig, clock: Any) -> KubeClient:
    return KubeClient(config, user_agent="test", clock=clock, timeout=5.0)


async def test_rotated_authority_of_a_service_account(
    tmp_path: Path, serve: Serve, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gets a certificate of a new authority; the client follows without a restart or a failed request."""
    old, new = Authority("old"), Authority("new")
    context = old.server_context(tmp_path)
    server = await serve(context)
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_bytes(old.pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
    config = await load_config(kubeconfig=None, context=None, clock=clock, service_account=tmp_path)
    async with client_for(config, clock) as client:
        last(server, times=4)
        assert await client.get(PODS, "ns", "a") == POD
        context.load_cert_chain(*new.issue(tmp_path))
        with pytest.raises(CertificateRejected, match="certificate-authority"):
            await client.get(PODS, "ns", "a")
        (tmp_path / "ca.crt").write_bytes(new.pem)
        clock.step(refresh.RENEWAL_PAUSE)
        assert await client.get(PODS, "ns", "a") == POD
        # The other way, as operators do it: both authorities first, then the certificate.
        (tmp_path / "ca.crt").write_bytes(new.pem + old.pem)
        clock.step(refresh.REFRESH_PERIOD)
        assert await client.get(PODS, "ns", "a") == POD
        context.load_cert_chain(*old.issue(tmp_path))
        assert await client.get(PODS, "ns", "a") == POD
    assert len(server.seen) == 4


async def test_authority_without_key_identifiers_is_accepted_on_every_python(
    tmp_path: Path, serve: Serve, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python demands them by default since 3.13; the authorities of many clusters were made without."""
    make = ssl.create_default_context

    def strict(**arguments: Any) -> ssl.SSLContext:
        context = make(**arguments)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    authority = Authority(key_identifiers=False)
    server = await serve(authority.server_context(tmp_path))
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    path = write_kubeconfig(tmp_path / "k", server.url, user={}, **{"certificate-authority": "ca.crt"})
    async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
        last(server)
        assert await client.get(PODS, "ns", "a") == POD


async def test_certificate_that_is_trusted_by_itself(tmp_path: Path, serve: Serve, clock: Any) -> None:
    """The issuer of what is trusted need not be known: an intermediate authority, or the server's certificate."""
    server = await serve(Authority().server_context(tmp_path))
    path = write_kubeconfig(tmp_path / "k", server.url, user={}, **{"certificate-authority": "server.crt"})
    async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
        last(server)
        assert await client.get(PODS, "ns", "a") == POD


async def test_an_unreadable_authority_leaves_the_old_one_in_use(tmp_path: Path, serve: Serve, clock: Any) -> None:
    authority = Authority()
    server = await serve(authority.server_context(tmp_path))
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    path = write_kubeconfig(tmp_path / "k", server.url, user={}, **{"certificate-authority": "ca.crt"})
    config = await load_config(kubeconfig=path, clock=clock)
    async with client_for(config, clock) as client:
        last(server, times=2)
        assert await client.get(PODS, "ns", "a") == POD
        for content in (authority.pem[:100], b""):
            (tmp_path / "ca.crt").write_bytes(content)
            clock.step(refresh.REFRESH_PERIOD)
            server.on("list", server.reply(200, POD, Connection="close"))
            assert await client.get(PODS, "ns", "a") == POD
        with pytest.raises(ConfigurationError, match=r"certificate authority .*ca\.crt is unusable"):
            await config.credentials.renew()
        assert await client.get(PODS, "ns", "a") == POD


async def test_new_authority_retires_connections_of_the_old_one(tmp_path: Path, serve: Serve, clock: Any) -> None:
    """A connection that was opened under the old trust carries no new request."""
    old, new = Authority("old"), Authority("new")
    server = await serve(old.server_context(tmp_path))
    (tmp_path / "ca.crt").write_bytes(old.pem)
    path = write_kubeconfig(tmp_path / "k", server.url, user={}, **{"certificate-authority": "ca.crt"})
    config = await load_config(kubeconfig=path, clock=clock)
    async with client_for(config, clock) as client:
        server.on("list", server.reply(200, POD))
        await client.get(PODS, "ns", "a")
        (tmp_path / "ca.crt").write_bytes(new.pem)
        clock.step(refresh.REFRESH_PERIOD)
        with pytest.raises(CertificateRejected):
            await client.get(PODS, "ns", "a")


async def test_rotated_client_certificate(tmp_path: Path, serve: Serve, clock: Any) -> None:
    """Also through the moment in which the new certificate lies beside the old key."""
    authority = Authority()
    context = authority.server_context(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.pem.decode())
    server = await serve(context)
    serials: list[str] = []

    async def who(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        serials.append(request.transport.get_extra_info("peercert")["serialNumber"])
        return web.json_response(POD, headers={"Connection": "close"})

    certificate, key = authority.issue(tmp_path, name="jane")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    path = write_kubeconfig(tmp_path / "k", server.url, user=user, **{"certificate-authority": "ca.crt"})
    config = await load_config(kubeconfig=path, clock=clock)
    old_key = key.read_bytes()
    async with client_for(config, clock) as client:
        server.on("list", who, who, who)
        await client.get(PODS, "ns", "a")
        authority.issue(tmp_path, name="jane")
        new_key = key.read_bytes()
        key.write_bytes(old_key)
        clock.step(refresh.REFRESH_PERIOD)
        await client.get(PODS, "ns", "a")
        key.write_bytes(new_key)
        clock.step(refresh.REFRESH_PERIOD)
        await client.get(PODS, "ns", "a")
    assert serials[0] == serials[1]
    assert serials[1] != serials[2]


async def test_client_certificate_and_key_in_one_file_are_sent_once(tmp_path: Path, serve: Serve, clock: Any) -> None:
    authority = Authority()
    context = authority.server_context(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.pem.decode())
    server = await serve(context)
    chains: list[list[str]] = []

    async def how_many(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        chain = request.transport.get_extra_info("ssl_object")._sslobj.get_unverified_chain()
        chains.append([sent.public_bytes() for sent in chain])
        return web.json_response(POD, headers={"Connection": "close"})

    certificate, key = authority.issue(tmp_path, name="jane")
    (tmp_path / "both").write_bytes(certificate.read_bytes() + key.read_bytes())
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    server.on("list", how_many, how_many)
    for user in ({"client-certificate": "both"}, {"client-certificate": "both", "client-key": "both"}):
        path = write_kubeconfig(tmp_path / "k", server.url, user=user, **{"certificate-authority": "ca.crt"})
        async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
            await client.get(PODS, "ns", "a")
    assert [len(set(chain)) for chain in chains] == [len(chain) for chain in chains]


async def test_a_key_with_a_password_is_refused_and_not_asked_for(tmp_path: Path) -> None:
    certificate, key = Authority().issue(tmp_path)
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    key.write_bytes(locked)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    path = write_kubeconfig(tmp_path / "k", "https://server:6443", user=user)
    with pytest.raises(ConfigurationError, match=r"the client certificate .* with the key .* is unusable"):
        await load_config(kubeconfig=path)


async def test_the_scheme_of_the_server_may_be_in_capitals(tmp_path: Path, serve: Serve, clock: Any) -> None:
    authority = Authority()
    server = await serve(authority.server_context(tmp_path))
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    url = server.url.replace("https:", "HTTPS:")
    path = write_kubeconfig(tmp_path / "k", url, user={}, **{"certificate-authority": "ca.crt"})
    last(server)
    async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
        assert await client.get(PODS, "ns", "a") == POD


@pytest.mark.nightly
async def test_client_certificate_of_an_exec_plugin(tmp_path: Path, serve: Serve, clock: Any) -> None:
    authority = Authority()
    context = authority.server_context(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.pem.decode())
    server = await serve(context)
    certificate, key = authority.issue(tmp_path, name="jane")
    api = "client.authentication.k8s.io/v1"
    status = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
    (tmp_path / "answer").write_text(json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": status}))
    user = {"exec": {"command": "cat", "args": [str(tmp_path / "answer")], "apiVersion": api}}
    authority_data = base64.b64encode(authority.pem).decode()
    path = write_kubeconfig(tmp_path / "k", server.url, user=user, **{"certificate-authority-data": authority_data})
    last(server)
    async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
        assert await client.get(PODS, "ns", "a") == POD


async def test_name_of_the_server_can_be_told(tmp_path: Path, serve: Serve, clock: Any) -> None:
    authority = Authority()
    server = await serve(authority.server_context(tmp_path))
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    for name in ("server", "another"):
        path = write_kubeconfig(
            tmp_path / "k", server.url, user={}, **{"certificate-authority": "ca.crt", "tls-server-name": name}
        )
        last(server)
        async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
            if name == "server":
                assert await client.get(PODS, "ns", "a") == POD
            else:
                with pytest.raises(CertificateRejected, match="set tls-server-name"):
                    await client.get(PODS, "ns", "a")


async def test_unknown_certificate_is_accepted_only_on_demand(tmp_path: Path, serve: Serve, clock: Any) -> None:
    server = await serve(Authority().server_context(tmp_path))
    last(server)
    path = write_kubeconfig(tmp_path / "k", server.url, user={}, **{"insecure-skip-tls-verify": True})
    async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
        assert await client.get(PODS, "ns", "a") == POD
    path = write_kubeconfig(tmp_path / "k", server.url, user={})
    async with client_for(await load_config(kubeconfig=path, clock=clock), clock) as client:
        with pytest.raises(CertificateRejected):
            await client.get(PODS, "ns", "a")
    assert len(server.seen) == 1


@pytest.mark.guarantee("K-10")
async def test_broken_tls_connection_is_counted_as_closed(tmp_path: Path, serve: Serve, clock: Any) -> None:
    server = await serve(Authority().server_context(tmp_path))
    async with client_for(RestConfig(server=server.url), clock) as client:
        for _ in range(3):
            with pytest.raises(TransportError):
                await client.get(PODS, "ns", "a")
    assert value_of("trainmaster_client_connections", {"pool": "request"}) == 0
