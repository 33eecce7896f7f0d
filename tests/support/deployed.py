"""Trainmaster as it is deployed: the rendered manifests, on an embedded cluster that enforces roles and has no manager
of its own.

Everything is done by kubectl, as whoever installs it would do it. What is only looked at, often again and again until
it is as wanted, is read by our client: kubectl would be a program to start each time.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from support.commands import TIMEOUT, client_of, eventually, trainmaster
from support.manifests import DEPLOY, kustomize
from support.training import trainjob

from trainmaster.controller.kube.rest.resources import LEASES, PODS, Resource
from trainmaster.runtime.jsontree import JsonObject

NAMESPACE, NAME = "kubeflow", "kubeflow-trainer-controller-manager"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
LEASE = "trainer.kubeflow.org"
ENTRYPOINT = "trainmaster=trainmaster manager"
"""What the image `trainmaster` runs, which only the image would know."""

LAG = 1.0
"""Seconds after which connections follow a change of endpoints: no cluster knows at once that a pod ends."""

ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", namespaced=True)


@dataclass(frozen=True)
class Asked:
    """A request in the audit log."""

    user: str
    verb: str
    resource: str
    subresource: str
    name: str
    code: int


class Deployed:
    """A cluster on which the manifests were applied."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kubeconfig = home / ".trainmaster/kubeconfig"
        self.audit_log = home / "audit.log"

    # What people do

    async def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl and return what it printed; with `check` it has to succeed."""
        process = await asyncio.create_subprocess_exec(
            *("kubectl", *arguments),
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(TIMEOUT + 30):
            out, err = await process.communicate(stdin.encode())
        assert not check or process.returncode == 0, f"kubectl {' '.join(arguments)}: {err.decode()}"
        return out.decode() + ("" if check else err.decode())

    async def apply(self, manifests: str) -> None:
        """Apply manifests in the way that the installation guide tells."""
        await self.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=manifests)

    async def create(self, *objects: JsonObject) -> None:
        """Create objects."""
        await self.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(objects))

    async def items(self, resource: Resource, *, namespace: str = "default", selector: str = "") -> list[JsonObject]:
        """Return the objects of a kind."""
        async with client_of(self.kubeconfig) as client:
            found: list[JsonObject] = (
                await client.list(resource, namespace if resource.namespaced else None, label_selector=selector or None)
            )["items"]
        return found

    async def rolled_out(self) -> None:
        """Wait until the Deployment is what its spec says."""
        await self.kubectl("rollout", "status", f"deployment/{NAME}", "-n", NAMESPACE, f"--timeout={TIMEOUT:g}s")

    async def admits(self) -> None:
        """Wait until the API server reaches the webhooks, which lags behind the readiness of the pods."""

        async def reached() -> bool:
            asked = json.dumps(trainjob("any"))
            answer = await self.kubectl("create", "--dry-run=server", "-f", "-", stdin=asked, check=False)
            return "failed calling webhook" not in answer

        await eventually(reached)

    async def completed(self, *names: str) -> None:
        """Wait until TrainJobs are complete."""
        await self.kubectl(
            "wait", "--for=condition=Complete", f"--timeout={TIMEOUT:g}s", *(f"trainjob/{name}" for name in names)
        )

    # The managers

    async def pods(self) -> list[JsonObject]:
        """Return the pods of the manager that nobody asked to end."""
        found = await self.items(PODS, namespace=NAMESPACE, selector="app.kubernetes.io/name=trainer")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def ready_endpoints(self) -> int:
        """Return how many replicas the Service leads to."""
        slices = await self.items(ENDPOINT_SLICES, namespace=NAMESPACE, selector=f"kubernetes.io/service-name={NAME}")
        return sum(each["conditions"]["ready"] for piece in slices for each in piece.get("endpoints") or ())

    async def holder(self) -> str:
        """Return who holds the lease, empty if nobody does."""
        async with client_of(self.kubeconfig) as client:
            lease = await client.get(LEASES, NAMESPACE, LEASE)
        held: str = lease["spec"].get("holderIdentity") or ""
        return held

    async def another_leads(self, before: str) -> float:
        """Wait until somebody else holds the lease; returns the seconds that it took."""
        began = time.monotonic()

        async def changed() -> bool:
            return await self.holder() not in {"", before}

        await eventually(changed)
        return time.monotonic() - began

    async def events(self, pod: str, event: str) -> list[JsonObject]:
        """Return the lines of a manager's log with an event."""
        async with client_of(self.kubeconfig) as client:
            _, _, text = await client.raw("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log", accept="*/*")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]
        return [line for line in lines if line["event"] == event]

    def process_of(self, pod: str) -> int:
        """Return the id of the first process of a pod."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and self._is_process_of(entry, pod):
                return int(entry.name)
        raise AssertionError(f"no process runs in pod {pod}")

    @staticmethod
    def _is_process_of(entry: Path, pod: str) -> bool:
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            return False  # it is gone
        return f"HOSTNAME={pod}".encode() in variables

    def kill(self, pod: str) -> None:
        """End the process of a pod without giving it a chance to do anything."""
        os.kill(self.process_of(pod), signal.SIGKILL)

    # What was asked of the API server

    def asked(self) -> Iterator[Asked]:
        """Return all requests so far, from the audit log."""
        for line in self.audit_log.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            about = entry.get("objectRef") or {}
            yield Asked(
                user=(entry.get("user") or {}).get("username", ""),  # nobody, if the token is no longer good
                verb=entry["verb"],
                resource=about.get("resource", ""),
                subresource=about.get("subresource", ""),
                name=about.get("name", ""),
                code=(entry.get("responseStatus") or {}).get("code", 0),
            )

    async def report(self) -> str:
        """Return what helps to find out why a test failed."""
        parts = []
        for arguments in (
            ("get", "pods,deployments,replicasets,endpointslices,leases", "-n", NAMESPACE, "-o", "wide"),
            ("describe", "pods", "-n", NAMESPACE),
            ("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=trainer", "--tail=60", "--prefix"),
            ("get", "trainjobs,jobsets,jobs,pods", "-A", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.metadata.creationTimestamp"),
        ):
            printed = (await self.kubectl(*arguments, check=False)).splitlines()[-150:]
            parts += [f"--- kubectl {' '.join(arguments)}", *printed]
        log = (self.home / ".trainmaster/cluster.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([*parts, "--- cluster.log", *log[-80:]])


def rendered(overlay: str) -> str:
    """Return what kustomize makes of an overlay."""
    return yaml.safe_dump_all(kustomize(DEPLOY / "overlays" / overlay))


@asynccontextmanager
async def deployed(home: Path, manifests: str) -> AsyncIterator[Deployed]:
    """Start a cluster, apply the manifests and wait until they are rolled out; the cluster ends with the block."""
    home.mkdir(parents=True, exist_ok=True)
    up = await trainmaster(
        *("cluster", "up", "--detach", "--rbac", "--without", "manager", "--networking", "namespaces"),
        *("--entrypoint", ENTRYPOINT, "--endpoint-lag", str(LAG), "--audit-log", "audit.log"),
        cwd=home,
    )
    assert up.code == 0, up.err
    running = Deployed(home)
    try:
        await running.apply(manifests)
        try:
            await running.rolled_out()
            await running.admits()
        except AssertionError:
            sys.stdout.write(await running.report())
            raise
        yield running
    finally:
        down = await trainmaster("cluster", "down", cwd=home)
        assert down.code == 0, down.err
