"""An embedded cluster with its manager, and a second manager, which stands by until the first one fails."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.monitoring import scratch_space

from bench.api import Api, BenchmarkFailed
from bench.processes import FAULTY_CLUSTER, TESTS, Manager, python_path, run_process
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.devcluster.listener import free_port
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.yamltext import load_yaml

_START_TIMEOUT: Final = 120.0
_FAULTS: Final = "/trainmaster.dev/faults"
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/trainer.kubeflow.org"
NAMESPACE: Final = "kubeflow"
PODS: Final = (
    "kubeflow-trainer-controller-manager-6c9d5bf8d4-7kq2x",
    "kubeflow-trainer-controller-manager-6c9d5bf8d4-xw5mz",
)
"""What the two managers are called in the dashboards: names as a Deployment gives them."""


@dataclass(frozen=True, slots=True)
class Running:
    """What runs."""

    api: Api
    metrics: Mapping[str, str]
    """The address of the metrics of each manager, by the name of its pod."""

    first: Path
    """The file of the cluster's own manager that names it among all processes."""

    async def inject(self, action: dict[str, Any], **rule: Any) -> None:
        """Let the API server fail in some way."""
        await self.api.send("POST", _FAULTS, {"rule": rule, "action": action})

    async def heal(self) -> None:
        """Let the API server fail no more."""
        await self.api.send("DELETE", _FAULTS)

    async def holder(self) -> str:
        """Return who leads."""
        lease = await self.api.send("GET", _LEASE.format(NAMESPACE), accept=(200, 404))
        held: str = lease.get("spec", {}).get("holderIdentity") or ""
        return held

    def kill_first(self) -> None:
        """Kill the manager of the cluster, which starts it anew."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if str(self.first).encode() in (process / "cmdline").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    return
        raise BenchmarkFailed(f"no process has {self.first} among its arguments")


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Running]:
    """Run the cluster and both managers; they are ready, and the cluster's own leads."""
    state = StateDirectory(directory / "cluster")
    ports = {name: free_port() for name in ("first", "second", "health_first", "health_second")}
    environment = {"PYTHONPATH": python_path(TESTS, _install_plugin(directory / "plugins"))}
    async with AsyncExitStack() as stack:
        configuration = _configuration(directory / "first.yaml", ports["first"], ports["health_first"])
        command = [FAULTY_CLUSTER, "cluster", "up", "--state-dir", str(state.path)]
        command += ["--config", str(configuration), "--fake-gpus", "16"]
        log = directory / "cluster.log"
        process = await stack.enter_async_context(run_process(command, log, environment))
        deadline = time.monotonic() + _START_TIMEOUT
        while (record := state.read_record()) is None or record.pid != process.pid:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkFailed(f"the cluster does not start: {log.read_text(errors='replace')[-1000:]}")
            await asyncio.sleep(0.1)
        first = Manager(
            process, started=time.monotonic(), log=state.path / "manager.log",
            health=f"http://127.0.0.1:{ports['health_first']}/readyz", metrics="",
        )  # fmt: skip
        await first.wait_ready()
        second = _standby(directory / "second.yaml", state.path / "manager.yaml", ports)
        command = ["trainmaster.controller.cli", "manager", "--kubeconfig", str(state.kubeconfig)]
        command += ["--config", str(second)]
        standby = await stack.enter_async_context(run_process(command, directory / "second.log", environment))
        await Manager(
            standby, started=time.monotonic(), log=directory / "second.log",
            health=f"http://127.0.0.1:{ports['health_second']}/healthz", metrics="",
        ).wait_ready()  # fmt: skip
        api = await stack.enter_async_context(Api(await load_config(kubeconfig=str(state.kubeconfig))))
        addresses = (f"127.0.0.1:{ports['first']}", f"127.0.0.1:{ports['second']}")
        yield Running(api, dict(zip(PODS, addresses, strict=True)), state.path / "manager.yaml")


def _configuration(path: Path, metrics: int, health: int) -> Path:
    content: dict[str, Any] = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": True, "resourceNamespace": NAMESPACE},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}", "secureServing": False},
        "featureGates": {"TrainJobStatus": True},
        "clientConnection": {"qps": 20.0, "burst": 30},
        "plugins": {"quarantine": {"period": "20s"}},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _standby(path: Path, first: Path, ports: Mapping[str, int]) -> Path:
    """Write the configuration of the first manager, as the cluster has completed it, with other ports."""
    content = load_yaml(first.read_bytes())
    content["health"]["healthProbeBindAddress"] = f"127.0.0.1:{ports['health_second']}"
    content["metrics"]["bindAddress"] = f"127.0.0.1:{ports['second']}"
    content["webhook"]["port"] = free_port()
    content["statusServer"]["port"] = free_port()  # trainers are told of the first one's all the same
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _install_plugin(directory: Path) -> Path:
    """Install the plugin as pip would, into a directory of its own."""
    metadata = directory / "scratch_space-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(scratch_space.__file__, directory)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: scratch-space\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(
        "[trainmaster.plugins]\nscratch-space = scratch_space:ScratchSpace\n", encoding="utf-8"
    )
    return directory
