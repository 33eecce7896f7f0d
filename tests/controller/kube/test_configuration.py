"""Where the access to a cluster comes from, and how its errors read."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_asyncio.config import incluster_config

from trainmaster.controller.kube import loading
from trainmaster.controller.kube.configuration import ConfigurationError, Token, load_cluster_access


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration and no proxy from the machine that runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def write(path: Path, *, server: str = "http://one:8080", user: Any = None, context: Any = None, **cluster: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", **(context or {})}},
            {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "elsewhere"}},
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_flag_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", write(tmp_path / "env", server="http://env"))
    access = await load_cluster_access(kubeconfig=write(tmp_path / "flag", context={"namespace": "team"}))
    assert access.server == "http://one:8080"
    assert access.namespace == "team"
    assert access.ssl_context is None
    assert await access.headers() == {"Authorization": "Bearer secret"}


async def test_environment_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "home" / ".kube" / "config", server="http://home")
    assert (await load_cluster_access()).server == "http://home"
    paths = f"{tmp_path / 'missing'}:{write(tmp_path / 'env', server='http://env/')}"
    monkeypatch.setenv("KUBECONFIG", paths)
    assert (await load_cluster_access()).server == "http://env"


async def test_context_by_name(tmp_path: Path) -> None:
    access = await load_cluster_access(kubeconfig=write(tmp_path / "k"), context="other")
    assert access.namespace == "elsewhere"


async def test_no_configuration_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await load_cluster_access()
    assert str(caught.value) == (
        f"no cluster is configured: {tmp_path}/home/.kube/config does not exist; "
        "pass --kubeconfig or set KUBECONFIG to the path of a kubeconfig file"
    )


async def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await load_cluster_access(kubeconfig=f"{tmp_path}/nope")
    assert str(caught.value) == (
        f"kubeconfig {tmp_path}/nope (from --kubeconfig) does not exist; "
        "pass --kubeconfig or set KUBECONFIG to the path of a kubeconfig file"
    )


async def test_directory_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\(from --kubeconfig\): Is a directory"):
        await load_cluster_access(kubeconfig=str(tmp_path))


async def test_unknown_context(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"object with name nope in .*contexts"):
        await load_cluster_access(kubeconfig=write(tmp_path / "k"), context="nope")


@pytest.mark.parametrize(
    "text", ["", "a: [", "just text", "[1]", "clusters: 5", "current-context: a\ncontexts: [5]", "\x00", "contexts: {}"]
)
async def test_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=str(path)):
        await load_cluster_access(kubeconfig=str(path))


async def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(ConfigurationError, match=str(path)):
        await load_cluster_access(kubeconfig=str(path))


@pytest.mark.parametrize("server", ["ftp://x", "nonsense", "https://"])
async def test_server_that_is_no_url(tmp_path: Path, server: str) -> None:
    with pytest.raises(ConfigurationError, match="not an http or https URL"):
        await load_cluster_access(kubeconfig=write(tmp_path / "k", server=server))


async def test_certificate_authority_is_checked(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    path = write(tmp_path / "k", server="https://one", **{"certificate-authority": "ca"})
    with pytest.raises(ConfigurationError, match=r"certificate authority .* is unusable"):
        await load_cluster_access(kubeconfig=path)


async def test_verification_can_be_switched_off_only_by_the_file(tmp_path: Path) -> None:
    strict = await load_cluster_access(kubeconfig=write(tmp_path / "a", server="https://one"))
    assert strict.ssl_context is not None
    assert strict.ssl_context.verify_mode == ssl.CERT_REQUIRED
    lax = await load_cluster_access(
        kubeconfig=write(tmp_path / "b", server="https://one", **{"insecure-skip-tls-verify": True})
    )
    assert lax.ssl_context is not None
    assert lax.ssl_context.verify_mode == ssl.CERT_NONE


async def test_proxy_of_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://env-proxy:1")
    path = write(tmp_path / "k")
    assert (await load_cluster_access(kubeconfig=path)).proxy == "http://env-proxy:1"
    monkeypatch.setenv("no_proxy", "one")
    assert (await load_cluster_access(kubeconfig=path)).proxy is None
    path = write(tmp_path / "k", **{"proxy-url": "http://file-proxy:2"})
    assert (await load_cluster_access(kubeconfig=path)).proxy == "http://file-proxy:2"


async def test_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens rotate in their files; the newline that editors leave is no part of them."""
    token = tmp_path / "token"
    token.write_text("first\n")
    access = await load_cluster_access(kubeconfig=write(tmp_path / "k", user={"tokenFile": str(token)}))
    assert await access.headers() == {"Authorization": "Bearer first"}
    token.write_text("second\n")
    assert await access.headers() == {"Authorization": "Bearer first"}
    monkeypatch.setattr(loading, "REFRESH_PERIOD", -1.0)
    assert await access.headers() == {"Authorization": "Bearer second"}


def exec_plugin(tmp_path: Path, *, expires: dt.datetime | None) -> dict[str, Any]:
    """A plugin that counts its runs in its tokens."""
    status = {} if expires is None else {"expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}
    api = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": {"token": "run-N", **status}})
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/runs\nn=$(wc -l < {tmp_path}/runs | tr -d ' ')\n"
        f'cat <<EOF | sed "s/run-N/run-$n/"\n{answer}\nEOF\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"command": str(script), "apiVersion": api}}


async def test_exec_plugin_runs_again_before_its_token_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=2)
    path = write(tmp_path / "k", user=exec_plugin(tmp_path, expires=soon))
    access = await load_cluster_access(kubeconfig=path)
    assert await access.headers() == {"Authorization": "Bearer run-1"}
    monkeypatch.setattr(loading, "REFRESH_PERIOD", -1.0)
    assert await access.headers() == {"Authorization": "Bearer run-2"}


async def test_exec_plugin_without_expiry_runs_again_only_after_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "k", user=exec_plugin(tmp_path, expires=None))
    access = await load_cluster_access(kubeconfig=path)
    monkeypatch.setattr(loading, "REFRESH_PERIOD", -1.0)
    assert await access.headers() == {"Authorization": "Bearer run-1"}
    assert await access.credentials.renew()
    assert await access.headers() == {"Authorization": "Bearer run-2"}


async def test_exec_plugin_that_fails(tmp_path: Path) -> None:
    user = {"exec": {"command": "/does/not/exist", "apiVersion": "client.authentication.k8s.io/v1"}}
    with pytest.raises(ConfigurationError, match="/does/not/exist"):
        await load_cluster_access(kubeconfig=write(tmp_path / "k", user=user))


async def test_static_token_cannot_be_renewed(tmp_path: Path) -> None:
    access = await load_cluster_access(kubeconfig=write(tmp_path / "k"))
    assert not await access.credentials.renew()
    assert not await Token("x").renew()
    assert await Token().headers() == {}


def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import certifi  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415 - only for this

    token = tmp_path / "sa-token"
    token.write_text("pod-token\n")
    (tmp_path / "sa-namespace").write_text("kubeflow\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    defaults = {"token_filename": str(token), "cert_filename": certifi.where()}
    original: Any = incluster_config.load_incluster_config
    monkeypatch.setattr(incluster_config, "load_incluster_config", lambda **kw: original(**kw, **defaults))
    monkeypatch.setattr(loading, "_NAMESPACE_FILE", tmp_path / "sa-namespace")
    return token


async def test_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service_account(tmp_path, monkeypatch)
    access = await load_cluster_access()
    assert access.server == "https://10.0.0.1:443"
    assert access.namespace == "kubeflow"
    assert await access.headers() == {"Authorization": "Bearer pod-token"}


async def test_rotated_service_account_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", dt.timedelta(0))
    token = service_account(tmp_path, monkeypatch)
    access = await load_cluster_access()
    token.write_text("rotated")
    assert await access.headers() == {"Authorization": "Bearer rotated"}
    token.unlink()
    with pytest.raises(ConfigurationError, match="token of the service account"):
        await access.headers()


async def test_pod_without_a_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await load_cluster_access()
