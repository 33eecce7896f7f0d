"""A Deployment with a Service on a whole cluster: real processes, kubectl, and clients that come by the Service."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.namespaces import FOUND, needs_namespaces

from trainmaster.devcluster.apiserver.admission.webhook import ServiceUnresolvable
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.proxy.resolver import EndpointResolver
from trainmaster.devcluster.settings import CONTROLLERS, GARBAGE_COLLECTION, KUBELET, ClusterSettings, KubeletSettings
from trainmaster.devcluster.state import StateDirectory

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.kubectl,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
    needs_namespaces,
    pytest.mark.skipif(not FOUND.own_addresses, reason="pods have no addresses of their own here"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl"),
]

SERVER = """
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/ready" or not os.path.exists("/data/unready")
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(os.environ["POD_NAME"].encode() + b" " + os.environ["VERSION"].encode())
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler)
signal.signal(signal.SIGTERM, lambda *arguments: sys.exit(0))
server.serve_forever()
"""
PORT = "18080"

MANIFESTS = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: program}}
data:
  server.py: {json.dumps(SERVER)}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  revisionHistoryLimit: 5
  selector: {{matchLabels: {{app: web}}}}
  strategy: {{rollingUpdate: {{maxSurge: 1, maxUnavailable: 0}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: server
        image: example.com/server:1.0
        args: [/opt/server.py, "{PORT}"]
        ports: [{{name: http, containerPort: {PORT}}}]
        env:
        - {{name: VERSION, value: one}}
        - name: POD_NAME
          valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}
        readinessProbe:
          httpGet: {{path: /ready, port: http}}
          periodSeconds: 1
          failureThreshold: 1
        lifecycle: {{preStop: {{sleep: {{seconds: 1}}}}}}
        volumeMounts:
        - {{name: program, mountPath: /opt/server.py, subPath: server.py, readOnly: true}}
        - {{name: data, mountPath: /data}}
      volumes:
      - {{name: program, configMap: {{name: program}}}}
      - {{name: data, emptyDir: {{medium: Memory}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  selector: {{app: web}}
  ports: [{{name: http, port: 18443, targetPort: http}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web}}
spec: {{maxUnavailable: 1, selector: {{matchLabels: {{app: web}}}}}}
"""


class Web:
    """A cluster that runs the Deployment."""

    def __init__(self, cluster: Cluster, state: StateDirectory) -> None:
        self.state = state.path
        self._kubeconfig = state.kubeconfig
        self.resolver = EndpointResolver(cluster.api, cluster.services)

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which has to succeed."""
        process = await asyncio.create_subprocess_exec(
            *("kubectl", *arguments),
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def objects(self, *arguments: str) -> list[Any]:
        """Return what `kubectl get` finds."""
        found: list[Any] = json.loads(await self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    async def answer(self) -> str:
        """Ask one of the endpoints of the Service."""
        address = self.resolver.resolve(namespace="default", name="web", port=18443)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.0 200"), answer
        return answer.rpartition("\r\n")[2]

    async def endpoints(self) -> int:
        """Return how many endpoints are ready."""
        slices = await self.objects("endpointslices", "-l", "kubernetes.io/service-name=web")
        return sum(each["conditions"]["ready"] for piece in slices for each in piece.get("endpoints") or ())


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    state = StateDirectory(tmp_path_factory.mktemp("workloads") / "state")
    settings = ClusterSettings(
        state=state,
        parts=frozenset({CONTROLLERS, GARBAGE_COLLECTION, KUBELET}),
        kubelet=KubeletSettings(networking="namespaces", entrypoints={"example.com/server": ("python",)}),
    )
    async with Cluster(settings) as cluster:
        running = Web(cluster, state)
        await running.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=MANIFESTS)
        await running.kubectl("rollout", "status", "deployment/web", "--timeout=50s")
        yield running
        running.resolver.close()


async def test_kubectl_shows_it_as_of_a_real_cluster(web: Web) -> None:
    lines = (await web.kubectl("get", "deploy", "web", "-o", "wide")).splitlines()
    assert lines[0].split() == [
        *("NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR")
    ]
    cells = lines[1].split()
    assert [*cells[:4], *cells[5:]] == ["web", "2/2", "2", "2", "server", "example.com/server:1.0", "app=web"]
    header, row = (await web.kubectl("get", "rs")).splitlines()
    assert header.split() == ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
    assert row.split()[1:4] == ["2", "2", "2"]
    header, row = (await web.kubectl("get", "pdb")).splitlines()
    assert header.split() == ["NAME", "MIN", "AVAILABLE", "MAX", "UNAVAILABLE", "ALLOWED", "DISRUPTIONS", "AGE"]
    assert row.split()[:4] == ["web", "N/A", "1", "1"]
    header, row = (await web.kubectl("get", "endpoints", "web")).splitlines()
    assert header.split() == ["NAME", "ENDPOINTS", "AGE"]
    assert all(each.endswith(f":{PORT}") for each in row.split()[1].split(","))
    assert "Scaled up replica set" in await web.kubectl("describe", "deployment", "web")


async def test_both_replicas_share_the_requests_at_one_port(web: Web) -> None:
    async with asyncio.timeout(20):
        names: set[str] = set()
        while len(names) < 2:
            names.add((await web.answer()).split()[0])
    assert names == {pod["metadata"]["name"] for pod in await web.objects("pods", "-l", "app=web")}


async def test_a_pod_reaches_the_service_by_its_names(web: Web) -> None:
    fetch = (
        "import sys, urllib.request as r\nfor n in sys.argv[1:]: print(r.urlopen(f'http://{n}:18443/').read().decode())"
    )
    names = ["web", "web.default.svc", "web.default.svc.cluster.local"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "any", "command": ["python", "-c", fetch, *names]}],
        },
    }
    await web.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    await web.kubectl("wait", "pod/client", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s")
    lines = (await web.kubectl("logs", "client")).splitlines()
    assert [line.split()[1] for line in lines] == ["one"] * 3


async def test_the_api_server_passes_requests_on_to_a_pod_and_to_the_service(web: Web) -> None:
    first, second = (each["metadata"]["name"] for each in await web.objects("pods", "-l", "app=web"))
    for name in (first, second):
        path = f"/api/v1/namespaces/default/pods/{name}:{PORT}/proxy/"
        assert await web.kubectl("get", "--raw", path) == f"{name} one"
    told = await web.kubectl("get", "--raw", "/api/v1/namespaces/default/services/web:18443/proxy/any")
    assert told in {f"{first} one", f"{second} one"}


async def test_a_replica_that_is_not_ready_gets_no_requests(web: Web) -> None:
    first = (await web.objects("pods", "-l", "app=web"))[0]
    uid, name = first["metadata"]["uid"], first["metadata"]["name"]
    marker = web.state / "kubelet" / "pods" / uid / "volumes/data/unready"
    marker.touch()
    async with asyncio.timeout(20):
        while await web.endpoints() != 1:
            await asyncio.sleep(0.05)
    assert name not in {(await web.answer()).split()[0] for _ in range(20)}
    marker.unlink()
    async with asyncio.timeout(20):
        while await web.endpoints() != 2:
            await asyncio.sleep(0.05)


async def test_a_rollout_can_be_followed_and_undone_and_loses_no_request(web: Web) -> None:
    stop = asyncio.Event()
    answers: list[str] = []

    async def ask() -> None:
        while not stop.is_set():
            answers.append((await web.answer()).split()[1])
            await asyncio.sleep(0.01)

    asking = asyncio.create_task(ask())
    await web.kubectl("set", "env", "deployment/web", "VERSION=two")
    status = await web.kubectl("rollout", "status", "deployment/web", "--timeout=50s")
    assert 'deployment "web" successfully rolled out' in status
    history = (await web.kubectl("rollout", "history", "deployment/web")).split()
    assert [word for word in history if word.isdigit()] == ["1", "2"]
    assert (await web.answer()).split()[1] == "two"
    await web.kubectl("rollout", "undo", "deployment/web")
    await web.kubectl("rollout", "status", "deployment/web", "--timeout=50s")
    assert (await web.answer()).split()[1] == "one"
    history = (await web.kubectl("rollout", "history", "deployment/web")).split()
    assert [word for word in history if word.isdigit()] == ["2", "3"]
    stop.set()
    await asking
    assert set(answers) == {"one", "two"}


async def test_it_is_paused_resumed_restarted_and_scaled(web: Web) -> None:
    await web.kubectl("rollout", "pause", "deployment/web")
    await web.kubectl("rollout", "resume", "deployment/web")
    before = {pod["metadata"]["uid"] for pod in await web.objects("pods", "-l", "app=web")}
    await web.kubectl("rollout", "restart", "deployment/web")
    await web.kubectl("rollout", "status", "deployment/web", "--timeout=50s")
    running = [
        each for each in await web.objects("pods", "-l", "app=web") if "deletionTimestamp" not in each["metadata"]
    ]
    assert not before & {pod["metadata"]["uid"] for pod in running}
    await web.kubectl("scale", "deployment/web", "--replicas=1")
    await web.kubectl("rollout", "status", "deployment/web", "--timeout=50s")
    assert [each["spec"]["replicas"] for each in await web.objects("rs") if each["spec"]["replicas"]] == [1]
    scale = json.loads(await web.kubectl("get", "--raw", "/apis/apps/v1/namespaces/default/deployments/web/scale"))
    assert scale["status"] == {"replicas": scale["status"]["replicas"], "selector": "app=web"}
    await web.kubectl("scale", "deployment/web", "--replicas=2")
    await web.kubectl("rollout", "status", "deployment/web", "--timeout=50s")


async def test_what_has_no_endpoint_is_told(web: Web) -> None:
    with pytest.raises(ServiceUnresolvable, match='service "nothing" not found'):
        web.resolver.resolve(namespace="default", name="nothing", port=443)
    with pytest.raises(ServiceUnresolvable, match='no service port 443 found for service "web"'):
        web.resolver.resolve(namespace="default", name="web", port=443)
    empty = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "empty"},
        "spec": {"selector": {"app": "none"}, "ports": [{"port": 443}]},
    }
    await web.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(empty))
    with pytest.raises(ServiceUnresolvable, match='no endpoints available for service "empty"'):
        web.resolver.resolve(namespace="default", name="empty", port=443)


async def test_everything_goes_with_the_deployment(web: Web) -> None:
    await web.kubectl("delete", "deployment", "web", "--wait=true")
    await web.kubectl("wait", "--for=delete", "pod", "-l", "app=web", "--timeout=30s")
    assert await web.objects("rs") == []
    assert await web.endpoints() == 0
