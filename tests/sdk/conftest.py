"""A namespace of a whole cluster for each test, seen through the official `kubernetes` client."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def kubeconfig(cluster_home: Path) -> Path:
    return cluster_home / ".trainmaster" / "kubeconfig"


@pytest.fixture
def api_client(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client that is also the default one; whatever a test makes the default is forgotten afterwards."""
    client = pytest.importorskip("kubernetes.client", reason="`kubernetes` is not installed; `make test` installs it")
    config = pytest.importorskip("kubernetes.config")
    monkeypatch.setattr(client.Configuration, "_default", None)
    config.load_kube_config(str(kubeconfig))
    with client.ApiClient() as opened:
        yield opened


@pytest.fixture
def namespace(api_client: Any) -> Iterator[str]:
    """A namespace that belongs to one test."""
    core = pytest.importorskip("kubernetes.client").CoreV1Api(api_client)
    name = f"sdk-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    yield name
    core.delete_namespace(name)
