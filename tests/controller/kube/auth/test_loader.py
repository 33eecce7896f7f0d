"""Which cluster a configuration is found for, with the account of a pod, and through which proxy."""

from pathlib import Path

import pytest
from support.authorities import Authority
from support.kubeconfigs import write_kubeconfig
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.auth.proxy import proxy_for
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig, Token


async def test_flag_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "env", server="http://env"))
    config = await load_config(kubeconfig=write_kubeconfig(tmp_path / "flag", context={"namespace": "team"}))
    assert config.server == "http://one:8080"
    assert config.namespace == "team"
    assert config.ssl_context is None
    assert await config.headers() == {"Authorization": "Bearer secret"}


async def test_environment_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_kubeconfig(tmp_path / "home" / ".kube" / "config", server="http://home")
    assert (await load_config()).server == "http://home"
    paths = f"{tmp_path / 'missing'}:{write_kubeconfig(tmp_path / 'env', server='http://env/')}"
    monkeypatch.setenv("KUBECONFIG", paths)
    assert (await load_config()).server == "http://env"


async def test_context_by_name(tmp_path: Path) -> None:
    config = await load_config(kubeconfig=write_kubeconfig(tmp_path / "k"), context="other")
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


NO_URL = "is not an http or https URL of a host, with a port from 1 to 65535 or none; correct it"
NO_URLS = [
    "https://", "https://a:99999", "https://a:0", "https://a:x", "https://[::1", "https://a..b", f"https://{'a' * 64}",
    "https://a\0b", "https://a/b c", "https://a/\u00e4",
]  # fmt: skip


@pytest.mark.parametrize("server", [*NO_URLS, "ftp://x", "nonsense"])
async def test_server_that_is_no_url(tmp_path: Path, server: str) -> None:
    path = write_kubeconfig(tmp_path / "k", server=server)
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=path)
    assert str(caught.value) == f"the server of kubeconfig {path} (from --kubeconfig), {server!r}, {NO_URL}"


@pytest.mark.parametrize("field", ["server", "proxy-url"])
@pytest.mark.parametrize("url", ["https://me:hunter@a:99999", "https://me:hun/ter@a", "https://me:hun@ter@a:x"])
async def test_a_password_is_not_shown_with_the_fault_of_its_url(tmp_path: Path, field: str, url: str) -> None:
    fields = {"server": "https://a", field: url}
    with pytest.raises(ConfigurationError, match=r", '\.\.\.@a.*', is not an http") as caught:
        await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", **fields))
    assert not any(part in str(caught.value) for part in ("me:", "hun", "ter@"))


async def test_name_of_the_server_that_is_none(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", **{"tls-server-name": ".a"})
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=path)
    assert str(caught.value) == (
        f"the tls-server-name of the server of kubeconfig {path} (from --kubeconfig), '.a', is not the name of a host; "
        "correct it"
    )


@pytest.mark.parametrize("proxy", [url.replace("https:", "http:") for url in NO_URLS])
async def test_proxy_that_is_no_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", **{"proxy-url": proxy}))
    assert str(caught.value) == f"the proxy of proxy-url in the kubeconfig, {proxy!r}, {NO_URL}"
    if "\0" not in proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        with pytest.raises(ConfigurationError, match="the proxy of HTTP_PROXY, "):
            await load_config(kubeconfig=write_kubeconfig(tmp_path / "k"))


async def test_static_token_cannot_be_renewed(tmp_path: Path) -> None:
    assert not await (await load_config(kubeconfig=write_kubeconfig(tmp_path / "k"))).credentials.renew()
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


async def test_proxy_of_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://env-proxy:1")
    path = write_kubeconfig(tmp_path / "k")
    assert (await load_config(kubeconfig=path)).proxy == "http://env-proxy:1"
    monkeypatch.setenv("no_proxy", "one")
    assert (await load_config(kubeconfig=path)).proxy is None
    path = write_kubeconfig(tmp_path / "k", **{"proxy-url": "http://file-proxy:2"})
    assert (await load_config(kubeconfig=path)).proxy == "http://file-proxy:2"


@pytest.mark.parametrize(
    ("server", "exceptions", "proxied"),
    [
        ("https://api.example.com", "", True),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", False),
        ("https://example.com", "example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://example.com", "*.example.com", True),
        ("https://api.example.com", "*example.com", True),
        ("https://api.example.com.", ":443", True),
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
