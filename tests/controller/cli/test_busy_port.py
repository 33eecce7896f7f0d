"""Ports that are taken: the manager ends with one line that says which server, which address and what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.authorities import Authority
from support.commands import trainmaster
from support.stack import api_server

from trainmaster.devcluster.listener import free_port

pytestmark = [pytest.mark.nightly, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    directory = tmp_path_factory.mktemp("busy")
    async with api_server(directory) as stack:
        if stack.cluster is None:
            pytest.skip("the kubeconfig is that of the embedded cluster")
        yield directory / "cluster/kubeconfig"


@pytest.mark.parametrize(
    ("what", "option"),
    [
        ("probes", "health.healthProbeBindAddress"),
        ("metrics", "metrics.bindAddress"),
        ("secure metrics", "metrics.bindAddress"),
        ("webhooks", "webhook.port"),
        ("trainer status", "statusServer.port"),
    ],
)
async def test_a_port_that_is_taken_is_told_in_one_line(
    kubeconfig: Path, tmp_path: Path, what: str, option: str
) -> None:
    certificate, key = Authority().issue(tmp_path)
    certificate.rename(tmp_path / "tls.crt")
    key.rename(tmp_path / "tls.key")
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        sections: dict[str, Any] = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "webhook": {"enabled": what == "webhooks", "host": "127.0.0.1", "port": port, "certDir": str(tmp_path)},
            "certManagement": {"enable": False},
            "metrics": {
                "bindAddress": f"127.0.0.1:{port}" if what.endswith("metrics") else "0",
                "secureServing": what != "metrics",
            },
            "health": {"healthProbeBindAddress": f"127.0.0.1:{port}" if what == "probes" else "0"},
            "statusServer": {"port": port if what == "trainer status" else free_port()},
            "featureGates": {"TrainJobStatus": what == "trainer status"},
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(sections))
        done = await trainmaster("manager", "--config", "config.yaml", "--kubeconfig", str(kubeconfig), cwd=tmp_path)
    assert done.code == 1
    assert "Traceback" not in done.err
    errors = [each for each in map(json.loads, done.err.splitlines()) if each["level"] == "error"]
    (told,) = errors
    assert told["event"] == "the manager cannot run"
    assert told["error"].startswith(f"cannot serve {what.removeprefix('secure ')} on ")
    assert f":{port}: " in told["error"]
    assert option in told["error"]
