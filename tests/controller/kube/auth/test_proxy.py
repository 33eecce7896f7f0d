"""Which proxy leads to a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kubeconfigs import write_kubeconfig

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.auth.proxy import proxy_for
from trainmaster.controller.kube.rest.config import ConfigurationError


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
