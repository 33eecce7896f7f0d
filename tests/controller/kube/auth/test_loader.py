"""Which cluster a configuration is found for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kubeconfigs import write_kubeconfig

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.config import ConfigurationError, Token


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


@pytest.mark.parametrize("server", ["ftp://x", "nonsense", "https://"])
async def test_server_that_is_no_url(tmp_path: Path, server: str) -> None:
    with pytest.raises(ConfigurationError, match="not an http or https URL"):
        await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", server=server))


async def test_static_token_cannot_be_renewed(tmp_path: Path) -> None:
    config = await load_config(kubeconfig=write_kubeconfig(tmp_path / "k"))
    assert not await config.credentials.renew()
    assert not await Token("x").renew()
    assert await Token().headers() == {}
