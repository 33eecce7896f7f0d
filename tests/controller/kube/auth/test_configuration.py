"""Where the access to a cluster comes from, and how its errors read."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.authorities import Authority
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.auth.exec import PLUGIN_TIMEOUT
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.auth.proxy import proxy_for
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig, Token


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
    config = await load_config(kubeconfig=write(tmp_path / "flag", context={"namespace": "team"}))
    assert config.server == "http://one:8080"
    assert config.namespace == "team"
    assert config.ssl_context is None
    assert await config.headers() == {"Authorization": "Bearer secret"}


async def test_environment_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "home" / ".kube" / "config", server="http://home")
    assert (await load_config()).server == "http://home"
    paths = f"{tmp_path / 'missing'}:{write(tmp_path / 'env', server='http://env/')}"
    monkeypatch.setenv("KUBECONFIG", paths)
    assert (await load_config()).server == "http://env"


async def test_context_by_name(tmp_path: Path) -> None:
    config = await load_config(kubeconfig=write(tmp_path / "k"), context="other")
    assert config.namespace == "elsewhere"


async def test_no_configuration_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await load_config()
    assert str(caught.value) == (
        f"no cluster is configured: {tmp_path}/home/.kube/config does not exist; "
        "pass --kubeconfig or set KUBECONFIG to the path of a kubeconfig file"
    )


async def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=f"{tmp_path}/nope")
    assert str(caught.value) == (
        f"kubeconfig {tmp_path}/nope (from --kubeconfig) does not exist; "
        "pass --kubeconfig or set KUBECONFIG to the path of a kubeconfig file"
    )


async def test_directory_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\(from --kubeconfig\): Is a directory"):
        await load_config(kubeconfig=str(tmp_path))


async def test_unknown_context(tmp_path: Path) -> None:
    path = write(tmp_path / "k")
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=path, context="nope")
    assert str(caught.value) == f"kubeconfig {path} (from --kubeconfig): it has no context 'nope'; it has: main, other"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"contexts": []}, "it has no context; add one with `kubectl config set-context`, for one of: c"),
        ({"contexts": None}, "it has no context; add one with `kubectl config set-context`, for one of: c"),
        (
            {"current-context": None},
            "no current-context is set; choose one with `kubectl config use-context`: it has: main",
        ),
        (
            {"current-context": ""},
            "no current-context is set; choose one with `kubectl config use-context`: it has: main",
        ),
        (
            {"current-context": "gone"},
            "it has no context 'gone', its current-context; choose one with `kubectl config use-context`: it has: main",
        ),
        (
            {"clusters": [{"name": "d", "cluster": {}}]},
            "its context 'main' is of cluster 'c', which is missing; it has: d",
        ),
        ({"users": []}, "its context 'main' is of user 'u', which is missing; it has: none"),
        ({"contexts": [{"name": "main", "context": {"user": "u"}}]}, "its context 'main' names no cluster; it has: c"),
    ],
)
async def test_parts_that_do_not_fit_together(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    path = tmp_path / "k"
    document = yaml.safe_load(Path(write(path)).read_text())
    del document["contexts"][1]
    path.write_text(yaml.safe_dump(document | changes))
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=str(path))
    assert str(caught.value) == f"kubeconfig {path} (from --kubeconfig): {fault}"


async def test_an_empty_file_among_others_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl leaves one behind when the last context is deleted from it."""
    (tmp_path / "empty").write_text("")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'empty'}:{write(tmp_path / 'k')}")
    assert (await load_config()).server == "http://one:8080"


async def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    path = write(tmp_path / "k", server="https://one", context={"user": ""})
    assert await (await load_config(kubeconfig=path)).headers() == {}


@pytest.mark.parametrize(
    "text", ["", "a: [", "just text", "[1]", "clusters: 5", "current-context: a\ncontexts: [5]", "\x00", "contexts: {}"]
)
async def test_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=str(path)):
        await load_config(kubeconfig=str(path))


@pytest.mark.parametrize("text", ["just text", "[1]", "5"])
async def test_document_of_another_shape(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"/k is no kubeconfig, which is a mapping with clusters, users"):
        await load_config(kubeconfig=str(path))


async def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(ConfigurationError, match=str(path)):
        await load_config(kubeconfig=str(path))


@pytest.mark.parametrize("server", ["ftp://x", "nonsense", "https://"])
async def test_server_that_is_no_url(tmp_path: Path, server: str) -> None:
    with pytest.raises(ConfigurationError, match="not an http or https URL"):
        await load_config(kubeconfig=write(tmp_path / "k", server=server))


async def test_certificate_authority_is_checked(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    path = write(tmp_path / "k", server="https://one", **{"certificate-authority": "ca"})
    with pytest.raises(ConfigurationError, match=r"certificate authority .* is unusable"):
        await load_config(kubeconfig=path)


async def test_verification_can_be_switched_off_only_by_the_file(tmp_path: Path) -> None:
    strict = await load_config(kubeconfig=write(tmp_path / "a", server="https://one"))
    assert strict.ssl_context is not None
    assert strict.ssl_context.verify_mode == ssl.CERT_REQUIRED
    lax = await load_config(
        kubeconfig=write(tmp_path / "b", server="https://one", **{"insecure-skip-tls-verify": True})
    )
    assert lax.ssl_context is not None
    assert lax.ssl_context.verify_mode == ssl.CERT_NONE


async def test_proxy_of_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://env-proxy:1")
    path = write(tmp_path / "k")
    assert (await load_config(kubeconfig=path)).proxy == "http://env-proxy:1"
    monkeypatch.setenv("no_proxy", "one")
    assert (await load_config(kubeconfig=path)).proxy is None
    path = write(tmp_path / "k", **{"proxy-url": "http://file-proxy:2"})
    assert (await load_config(kubeconfig=path)).proxy == "http://file-proxy:2"


async def test_token_file_is_read_again(tmp_path: Path) -> None:
    """Tokens rotate in their files; the newline that editors leave is no part of them."""
    token, clock = tmp_path / "token", VirtualClock()
    token.write_text("first\n")
    config = await load_config(
        kubeconfig=write(tmp_path / "k", user={"tokenFile": "token", "token": "stale"}), clock=clock
    )
    assert await config.headers() == {"Authorization": "Bearer first"}
    token.write_text("second\n")
    clock.step(59)
    assert await config.headers() == {"Authorization": "Bearer first"}
    clock.step(1)
    assert await config.headers() == {"Authorization": "Bearer second"}
    token.write_text("third\n")
    assert await config.credentials.renew()
    assert await config.headers() == {"Authorization": "Bearer third"}


async def test_token_that_cannot_be_read_again_stays_until_it_is_refused(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", VirtualClock()
    token.write_text("first\n")
    config = await load_config(kubeconfig=write(tmp_path / "k", user={"tokenFile": str(token)}), clock=clock)
    token.unlink()
    clock.step(60)
    assert await config.headers() == {"Authorization": "Bearer first"}
    with pytest.raises(ConfigurationError, match=r"kubeconfig .*: No such file or directory \(.*/token\)"):
        await config.credentials.renew()


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


async def test_exec_plugin_runs_again_before_its_token_expires(tmp_path: Path) -> None:
    clock = VirtualClock()
    path = write(tmp_path / "k", user=exec_plugin(tmp_path, expires=clock.now() + dt.timedelta(minutes=10)))
    config = await load_config(kubeconfig=path, clock=clock)
    clock.step(7 * 60)
    assert await config.headers() == {"Authorization": "Bearer run-1"}
    clock.step(2 * 60)
    assert await config.headers() == {"Authorization": "Bearer run-2"}


async def test_exec_plugin_without_expiry_runs_again_only_after_a_refusal(tmp_path: Path) -> None:
    clock = VirtualClock()
    path = write(tmp_path / "k", user=exec_plugin(tmp_path, expires=None))
    config = await load_config(kubeconfig=path, clock=clock)
    clock.step(3600)
    assert await config.headers() == {"Authorization": "Bearer run-1"}
    assert await config.credentials.renew()
    assert await config.headers() == {"Authorization": "Bearer run-2"}


async def test_exec_plugin_runs_once_for_all_requests_that_were_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "k", user=exec_plugin(tmp_path, expires=None))
    config = await load_config(kubeconfig=path, clock=VirtualClock())
    assert await asyncio.gather(*[config.credentials.renew() for _ in range(20)]) == [True] * 20
    assert not await config.credentials.renew()
    assert (tmp_path / "runs").read_text().count("x") == 2


class Noting(VirtualClock):
    """A clock that notes which limits were set."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float] = []

    def timeout(self, seconds: float) -> Any:
        self.limits.append(seconds)
        return super().timeout(seconds)


async def test_exec_plugin_that_hangs_is_killed(tmp_path: Path) -> None:
    clock = Noting()
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.part; mv {tmp_path}/pid.part {tmp_path}/pid\nexec sleep 3600\n"
    )
    script.chmod(0o755)
    user = {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1"}}
    loading = asyncio.create_task(load_config(kubeconfig=write(tmp_path / "k", user=user), clock=clock))
    async with asyncio.timeout(10):
        while PLUGIN_TIMEOUT not in clock.limits or not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
    await clock.advance(PLUGIN_TIMEOUT)
    with pytest.raises(ConfigurationError, match=r"exec plugin .*plugin gave no answer within 60 s"):
        await loading
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo no login >&2; exit 3", "failed with code 3: no login"),
        ("echo surprise", "printed no valid ExecCredential"),
        ('echo \'{"apiVersion": "v1", "kind": "Pod", "status": {}}\'', "printed a Pod of v1"),
        (
            'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {}}\'',
            "neither a token nor a certificate",
        ),
    ],
)
async def test_exec_plugin_that_gives_no_credentials(tmp_path: Path, script: str, complaint: str) -> None:
    (tmp_path / "plugin").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "plugin").chmod(0o755)
    user = {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1"}}
    with pytest.raises(ConfigurationError, match=complaint):
        await load_config(kubeconfig=write(tmp_path / "k", user=user))


async def test_exec_plugin_is_told_what_it_asks_for(tmp_path: Path) -> None:
    """The version, that nobody can answer, and on demand the cluster."""
    (tmp_path / "plugin").write_text(
        f'#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n'
        'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "\'"$GREETING-$1"\'"}}\'\n'
    )
    (tmp_path / "plugin").chmod(0o755)
    plugin = {
        "command": "./plugin",
        "args": ["you"],
        "env": [{"name": "GREETING", "value": "hello"}],
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    config = await load_config(kubeconfig=write(tmp_path / "k", user={"exec": plugin}))
    assert await config.headers() == {"Authorization": "Bearer hello-you"}
    assert json.loads((tmp_path / "info").read_text())["spec"] == {
        "interactive": False,
        "cluster": {"server": "http://one:8080"},
    }


async def test_exec_plugin_that_is_missing(tmp_path: Path) -> None:
    user = {
        "exec": {
            "command": "/does/not/exist",
            "apiVersion": "client.authentication.k8s.io/v1",
            "installHint": "pip install it",
        }
    }
    with pytest.raises(ConfigurationError, match=r"/does/not/exist cannot be run: No such file.*; pip install it"):
        await load_config(kubeconfig=write(tmp_path / "k", user=user))


async def test_impersonation_is_asked_for_or_refused(tmp_path: Path) -> None:
    user: dict[str, Any] = {"token": "t", "as": "jane", "as-groups": ["dev"], "as-user-extra": {"scope": ["view"]}}
    config = await load_config(kubeconfig=write(tmp_path / "k", user=user))
    assert await config.headers() == {
        "Authorization": "Bearer t",
        "Impersonate-User": "jane",
        "Impersonate-Group": "dev",
        "Impersonate-Extra-scope": "view",
    }
    user["as-groups"].append("ops")
    with pytest.raises(ConfigurationError, match="several values of Impersonate-Group"):
        await load_config(kubeconfig=write(tmp_path / "k", user=user))


async def test_static_token_cannot_be_renewed(tmp_path: Path) -> None:
    config = await load_config(kubeconfig=write(tmp_path / "k"))
    assert not await config.credentials.renew()
    assert not await Token("x").renew()
    assert await Token().headers() == {}


def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Mount a service account as the kubelet does; returns its directory."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("pod-token\n")
    (directory / "namespace").write_text("kubeflow\n")
    (directory / "ca.crt").write_bytes(Authority().pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return directory


async def in_pod(directory: Path, clock: Clock | None = None) -> RestConfig:
    return await load_config(kubeconfig=None, context=None, clock=clock or VirtualClock(), service_account=directory)


async def test_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = await in_pod(service_account(tmp_path, monkeypatch))
    assert config.server == "https://10.0.0.1:443"
    assert config.namespace == "kubeflow"
    assert config.ssl_context is not None
    assert await config.headers() == {"Authorization": "Bearer pod-token"}


async def test_service_account_behind_an_ipv6_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = service_account(tmp_path, monkeypatch)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert (await in_pod(directory)).server == "https://[fd00::1]:443"


async def test_rotated_service_account_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a minute, and when the server refuses the one we have; a missing file leaves the old one in use."""
    directory, clock = service_account(tmp_path, monkeypatch), VirtualClock()
    config = await in_pod(directory, clock)
    (directory / "token").write_text("rotated")
    assert await config.headers() == {"Authorization": "Bearer pod-token"}
    clock.step(60)
    assert await config.headers() == {"Authorization": "Bearer rotated"}
    (directory / "token").write_text("rotated again")
    assert await config.credentials.renew()
    assert await config.headers() == {"Authorization": "Bearer rotated again"}
    (directory / "token").unlink()
    clock.step(60)
    assert await config.headers() == {"Authorization": "Bearer rotated again"}
    with pytest.raises(ConfigurationError, match=r"service account is unusable: .*/token: No such file"):
        await config.credentials.renew()


async def test_pod_without_a_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await in_pod(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("server", "exceptions", "proxied"),
    [
        ("https://api.example.com", "", True),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", False),
        ("https://api.example.com", "ample.com", True),
        ("https://api.example.com", "api.example.com:6443", True),
        ("https://api.example.com:6443", "api.example.com:6443", False),
        ("https://10.96.0.1:443", "localhost,10.96.0.0/12", False),
        ("https://10.96.0.1:443", "10.0.0.0/16", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://api.example.com", "*", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example.com", "", False),
    ],
)
def test_exceptions_from_the_proxy(server: str, exceptions: str, *, proxied: bool) -> None:
    environment = {"https_proxy": "proxy:3128", "NO_PROXY": exceptions}
    assert proxy_for(server, environment=environment) == ("http://proxy:3128" if proxied else None)


def test_proxy_of_a_kind_that_is_not_supported() -> None:
    with pytest.raises(ConfigurationError, match=r"HTTPS_PROXY asks for a proxy of the kind 'socks5'"):
        proxy_for("https://a", environment={"HTTPS_PROXY": "socks5://b:1"})
