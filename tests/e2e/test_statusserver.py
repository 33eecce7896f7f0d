"""Trainers that report their progress by the snippet of the guide: a whole cluster, processes, own tokens, TLS."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml
from support.authorities import Authority
from support.commands import client_of, trainmaster
from support.training import apply_runtime, ended, pods, python, runtime, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.listener import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

SNIPPET = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "status-server.md").read_text(), re.DOTALL
)[0]


@dataclass(frozen=True)
class Setting:
    client: KubeClient
    certificates: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def setting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    """A cluster whose manager has the feature on."""
    home = tmp_path_factory.mktemp("statusserver")
    certificates = home / "certificates"
    certificates.mkdir()
    _certify(certificates, Authority())
    port, health = free_port(), free_port()
    configuration = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "featureGates": {"TrainJobStatus": True},
        "webhook": {"enabled": False, "certDir": str(certificates)},
        "statusServer": {"port": port, "qps": 50, "burst": 100},
        "plugins": {"options": {"trainjobstatus": {"server": f"https://127.0.0.1:{port}"}}},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
    }
    config = home / "config.yaml"
    config.write_text(yaml.safe_dump(configuration))
    up = await trainmaster("cluster", "up", "--detach", "--config", str(config), cwd=home)
    assert up.code == 0, up.err
    try:
        async with client_of(home / ".trainmaster" / "kubeconfig") as client:
            await apply_runtime(client, runtime())
            await until(lambda: _is_ready(health))
            yield Setting(client, certificates)
    finally:
        await trainmaster("cluster", "down", cwd=home)


async def _is_ready(port: int) -> bool:
    try:
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/readyz/status-server-readyz") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


def _certify(directory: Path, authority: Authority) -> None:
    certificate, key = authority.issue(directory)
    certificate.rename(directory / "tls.crt")
    key.rename(directory / "tls.key")
    (directory / "ca.crt").write_bytes(authority.pem)


@pytest.mark.defect("S6")
async def test_running_trainers_get_a_new_authority(setting: Setting, tmp_path: Path) -> None:
    client = setting.client
    wait = f"import time, pathlib\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.02)"
    await client.create(TRAINJOBS, trainjob("runs", trainer={"command": python(wait)}))

    async def running() -> bool:
        return any(pod["status"].get("phase") == "Running" for pod in await pods(client, "runs"))

    await until(running)
    renewed = Authority("renewed")
    _certify(setting.certificates, renewed)

    async def distributed() -> bool:
        config_map = await client.get(CONFIGMAPS, "default", "runs-tls-config")
        return bool(config_map["data"]["ca.crt"] == renewed.pem.decode())

    await until(distributed)
    await client.create(TRAINJOBS, trainjob("later", trainer={"command": python(SNIPPET)}))
    assert (await ended(client, "later"))["type"] == "Complete"
    (tmp_path / "go").touch()
    await ended(client, "runs")
