"""Trainers that report their progress by the snippet of the guide: a whole cluster, processes, own tokens, TLS."""

import re
from pathlib import Path

import pytest
from support.authorities import Authority
from support.commands import eventually
from support.training import ended, pods, python, reporting_cluster, trainjob

from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.resources import TRAINJOBS

GUIDE = (Path(__file__).parents[2] / "docs" / "status-server.md").read_text()
SNIPPET = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[-1]


@pytest.mark.defect("S6")
async def test_running_trainers_get_a_new_authority(tmp_path: Path) -> None:
    certificates, go = tmp_path / "certificates", tmp_path / "go"
    Authority().mount(certificates)
    async with reporting_cluster(tmp_path, certificates) as client:
        wait = f"import time, pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)"
        await client.create(TRAINJOBS, trainjob("runs", trainer={"command": python(wait)}))

        async def running() -> bool:
            return any(pod["status"].get("phase") == "Running" for pod in await pods(client, "runs"))

        await eventually(running)
        renewed = Authority("renewed")
        renewed.mount(certificates)

        async def distributed() -> bool:
            config_map = await client.get(CONFIGMAPS, "default", "runs-tls-config")
            return bool(config_map["data"]["ca.crt"] == renewed.pem.decode())

        await eventually(distributed)
        await client.create(TRAINJOBS, trainjob("later", trainer={"command": python(SNIPPET)}))
        assert (await ended(client, "later"))["type"] == "Complete"
        go.touch()
        await ended(client, "runs")
