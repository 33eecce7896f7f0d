"""Trainers that report their progress by the snippet of the guide: a whole cluster, processes, own tokens, TLS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support.authorities import Authority
from support.commands import client_of, eventually, trainmaster
from support.training import apply_runtime, ended, pods, python, runtime, trainjob

from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.listener import free_port

GUIDE = (Path(__file__).parents[2] / "docs" / "status-server.md").read_text()
SNIPPET = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[-1]


def _certify(directory: Path, authority: Authority) -> None:
    certificate, key = authority.issue(directory)
    certificate.rename(directory / "tls.crt")
    key.rename(directory / "tls.key")
    (directory / "ca.crt").write_bytes(authority.pem)


@pytest.mark.defect("S6")
async def test_running_trainers_get_a_new_authority(tmp_path: Path) -> None:
    certificates, port, go = tmp_path / "certificates", free_port(), tmp_path / "go"
    certificates.mkdir()
    _certify(certificates, Authority())
    configuration = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "featureGates": {"TrainJobStatus": True},
        "webhook": {"enabled": False, "certDir": str(certificates)},
        "statusServer": {"port": port},
        "plugins": {"options": {"trainjobstatus": {"server": f"https://127.0.0.1:{port}"}}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(configuration))
    up = await trainmaster("cluster", "up", "--detach", "--config", "config.yaml", cwd=tmp_path)
    assert up.code == 0, up.err
    try:
        async with client_of(tmp_path / ".trainmaster" / "kubeconfig") as client:
            await apply_runtime(client, runtime())
            wait = f"import time, pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)"
            await client.create(TRAINJOBS, trainjob("runs", trainer={"command": python(wait)}))

            async def running() -> bool:
                return any(pod["status"].get("phase") == "Running" for pod in await pods(client, "runs"))

            await eventually(running)
            renewed = Authority("renewed")
            _certify(certificates, renewed)

            async def distributed() -> bool:
                config_map = await client.get(CONFIGMAPS, "default", "runs-tls-config")
                return bool(config_map["data"]["ca.crt"] == renewed.pem.decode())

            await eventually(distributed)
            await client.create(TRAINJOBS, trainjob("later", trainer={"command": python(SNIPPET)}))
            assert (await ended(client, "later"))["type"] == "Complete"
            go.touch()
            await ended(client, "runs")
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)
