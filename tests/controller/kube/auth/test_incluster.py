"""The service account of a pod, and its rotation."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.authorities import Authority
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig


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
