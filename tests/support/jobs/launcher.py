"""Starts and stops a manager for the recorder of V1 jobs, which compares any controller with its cases.

    record_v1.py --kubeconfig FILE compare --launcher "python -m support.jobs.launcher"

with this directory's parent, `tests`, on `PYTHONPATH`. `start PROFILE` returns when the manager is ready and its
webhooks are registered by their address on this machine; `stop` undoes both. The cluster is that of `KUBECONFIG`, what
is started is noted in the temporary directory.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import aiohttp
from support.admission import CONFIGURATIONS, answering, configurations, job_manifest, serving_certificates
from support.commands import TIMEOUT, eventually
from support.jobs.profiles import ENVIRONMENT, FLAGS

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

_DIRECTORY: Final = Path(tempfile.gettempdir()) / "trainmaster-launcher"


async def _start(profile: str) -> None:
    _DIRECTORY.mkdir(exist_ok=True)
    certificates = serving_certificates(_DIRECTORY)
    port, probes = free_port(), f"127.0.0.1:{free_port()}"
    configuration = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(_DIRECTORY)},
        "certManagement": {"enable": False},
        "health": {"healthProbeBindAddress": probes},
        "metrics": {"bindAddress": "0"},
        "shutdownDelayDuration": "0s",
    }
    file = _DIRECTORY / "configuration.yaml"
    file.write_text(json.dumps(configuration))
    with (_DIRECTORY / "manager.log").open("ab") as log:
        command = ["trainmaster.controller.cli", "manager", "--config", str(file), *FLAGS[profile]]
        process = subprocess.Popen(  # noqa: ASYNC220 - our own program; starting it takes a millisecond
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **ENVIRONMENT.get(profile, {})},
            start_new_session=True,
        )
    (_DIRECTORY / "pid").write_text(str(process.pid))
    async with asyncio.timeout(TIMEOUT):
        await answering(port, certificates)
        async with aiohttp.ClientSession() as session:
            while not await _succeeds(session, f"http://{probes}/readyz"):
                if process.poll() is not None:
                    raise SystemExit(f"the manager ended; see {log.name}")
                await asyncio.sleep(0.05)
    await _register(configurations(certificates, port=port, made=job_manifest()))


async def _stop() -> None:
    await _register([])
    pid = int((_DIRECTORY / "pid").read_text())
    os.kill(pid, signal.SIGTERM)
    await eventually(lambda: not Path(f"/proc/{pid}").exists())


async def _register(wanted: list[JsonObject]) -> None:
    """Have these webhook configurations, and none of an earlier start."""
    noted = _DIRECTORY / "registered.json"
    async with KubeClient(await load_config(kubeconfig=os.environ["KUBECONFIG"]), user_agent="launcher") as client:
        for path in json.loads(noted.read_text()) if noted.exists() else ():
            await client.raw("DELETE", path)
        paths = [f"{CONFIGURATIONS}/{each['kind'].lower()}s" for each in wanted]
        for path, each in zip(paths, wanted, strict=True):
            await client.raw("POST", path, body=json.dumps(each).encode())
        names = [each["metadata"]["name"] for each in wanted]
        noted.write_text(json.dumps([f"{path}/{name}" for path, name in zip(paths, names, strict=True)]))


async def _succeeds(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start", profile] if profile in FLAGS:
            asyncio.run(_start(profile))
        case ["stop"]:
            asyncio.run(_stop())
        case _:
            sys.exit(f"usage: launcher start {'|'.join(FLAGS)} or launcher stop")
