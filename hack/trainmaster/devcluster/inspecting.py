"""`cluster status`: what can be said about a cluster from outside of it."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from trainmaster.devcluster.parts import KUBELET, MANAGER
from trainmaster.devcluster.state import ClusterRecord, StateDirectory
from trainmaster.runtime.jsontree import JsonObject

NOT_RUNNING = 3
_TIMEOUT = 5.0
_TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
_PODS = "/api/v1/pods"
_AT_REST = frozenset({"Complete", "Failed", "Suspended"})


def status(state: StateDirectory) -> int:
    """Print the status of the cluster; returns 0 if it runs and is ready, else 3."""
    pid = state.holder()
    record = state.read_record()
    if pid is None:
        _print("cluster", "not running")
        _print("state", f"{state.path} ({'kept' if record else 'none yet'})")
        return NOT_RUNNING
    if record is None or record.pid != pid:
        _print("cluster", f"starting (pid {pid}); see {state.log}")
        return NOT_RUNNING
    _print("cluster", f"running (pid {pid}), trainmaster {record.version}")
    _print("server", record.server)
    _print("kubeconfig", record.kubeconfig)
    _print("state", str(state.path))
    _print("parts", ", ".join(record.parts) or "none: a bare API server")
    if KUBELET in record.parts:
        _print("networking", record.networking or "unknown: an older version runs")
    if MANAGER in record.parts:
        _print("trainjobs", _count(state, record, _TRAINJOBS, _trainjob_runs))
    _print("pods", _count(state, record, _PODS, _pod_runs))
    return 0


def _count(state: StateDirectory, record: ClusterRecord, path: str, runs: Callable[[JsonObject], bool]) -> str:
    try:
        objects = _list(state, record, path)
    except (OSError, HTTPException, ValueError, KeyError) as error:
        return f"unknown, the server does not answer as it should ({error})"
    return f"{sum(map(runs, objects))} running of {len(objects)}"


def _list(state: StateDirectory, record: ClusterRecord, path: str) -> list[JsonObject]:
    context = ssl.create_default_context(cafile=str(state.certificates / "ca.crt"))
    # No proxy, whatever the environment says: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    token = state.token.read_text(encoding="ascii").strip()
    request = urllib.request.Request(  # noqa: S310 - the URL is from our own record, and https
        record.server + path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"}
    )
    with opener.open(request, timeout=_TIMEOUT) as answer:
        items: list[JsonObject] = json.load(answer)["items"]
    return items


def _trainjob_runs(job: JsonObject) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return not any(each["type"] in _AT_REST and each["status"] == "True" for each in conditions)


def _pod_runs(pod: JsonObject) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _print(label: str, text: str) -> None:
    print(f"{label + ':':<12} {text}")
