"""A Deployment with a Service on a whole cluster: real processes, kubectl, and clients that come by the Service."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml
from support.kubectl import Kubectl
from support.machine import FOUND, needs_namespaces

from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.proxy import EndpointResolver
from trainmaster.devcluster.settings import CONTROLLERS, GARBAGE_COLLECTION, KUBELET, ClusterSettings, KubeletSettings
from trainmaster.devcluster.state import StateDirectory

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.kubectl,
    pytest.mark.timeout(400),
    pytest.mark.asyncio(loop_scope="module"),
    needs_namespaces,
    pytest.mark.skipif(not FOUND.own_addresses, reason="pods have no addresses of their own here"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl"),
]

SERVER = """
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
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
      volumes:
      - {{name: program, configMap: {{name: program}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  selector: {{app: web}}
  ports: [{{name: http, port: 18443, targetPort: http}}]
"""


class Web:
    """A cluster that runs the Deployment."""

    def __init__(self, cluster: Cluster, state: StateDirectory) -> None:
        self.kubectl = Kubectl(state.kubeconfig, state.path)
        self.resolver = EndpointResolver(cluster.api, cluster.services)

    async def answer(self) -> str:
        """Ask one of the endpoints of the Service."""
        address = self.resolver.resolve(namespace="default", name="web", port=18443)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.0 200"), answer
        return answer.rpartition("\r\n")[2]


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
        await running.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
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
    header, row = (await web.kubectl("get", "endpointslices")).splitlines()
    assert header.split() == ["NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"]
    assert row.split()[2] == str(PORT)
    assert "Scaled up replica set" in await web.kubectl("describe", "deployment", "web")


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
    await web.kubectl("wait", "pod/client", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    lines = (await web.kubectl("logs", "client")).splitlines()
    assert [line.split()[1] for line in lines] == ["one"] * 3


async def test_a_rollout_can_be_followed_and_undone_and_loses_no_request(web: Web) -> None:
    stop = asyncio.Event()
    answers: list[str] = []

    async def ask() -> None:
        while not stop.is_set():
            answers.append((await web.answer()).split()[1])
            await asyncio.sleep(0.01)

    asking = asyncio.create_task(ask())
    await web.kubectl("set", "env", "deployment/web", "VERSION=two")
    status = await web.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    assert 'deployment "web" successfully rolled out' in status
    history = (await web.kubectl("rollout", "history", "deployment/web")).split()
    assert [word for word in history if word.isdigit()] == ["1", "2"]
    assert (await web.answer()).split()[1] == "two"
    await web.kubectl("rollout", "undo", "deployment/web")
    await web.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    assert (await web.answer()).split()[1] == "one"
    history = (await web.kubectl("rollout", "history", "deployment/web")).split()
    assert [word for word in history if word.isdigit()] == ["2", "3"]
    stop.set()
    await asking
    assert set(answers) == {"one", "two"}
