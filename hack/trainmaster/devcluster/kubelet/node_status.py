"""The Node objects: they share the capacity of the host, and are kept Ready as long as the kubelet runs."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from datetime import datetime
from pathlib import Path

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.kubelet.environment import HOST_IP
from trainmaster.devcluster.kubelet.gpus import GPU_RESOURCE
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.quantity import canonical

_MAX_PODS = 1000
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def host_capacity(root: Path, *, gpus: int, nodes: int = 1) -> list[dict[str, str]]:
    """Measure what the host has for pods, whose files are below `root`, and share it out among so many nodes.

    A GPU is listed only where there is one.
    """
    cpus = len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else os.cpu_count() or 1
    equal = {"cpu": f"{1000 * cpus // nodes}m", "memory": f"{_memory() // 1024 // nodes}Ki", "pods": str(_MAX_PODS)}
    equal["ephemeral-storage"] = f"{_disk_of(root) // 1024 // nodes}Ki"
    shares = [
        {**equal, GPU_RESOURCE: str(own)} if (own := len(range(number, gpus, nodes))) else equal
        for number in range(nodes)
    ]
    # As the API keeps it: what is compared with the live Node must not differ by its notation.
    return [{resource: canonical(amount) for resource, amount in share.items()} for share in shares]


def node_object(name: str, *, capacity: dict[str, str]) -> JsonObject:
    """Build the Node as it is registered."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    system = platform.system().lower()
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": system, "kubernetes.io/arch": architecture}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": name}],
            "nodeInfo": _node_info(system, architecture),
        },
    }


def with_readiness(node: JsonObject, *, wanted: JsonObject, now: datetime) -> JsonObject:
    """Give the live node with the wanted status and a Ready condition; fields of others stay."""
    updated: JsonObject = copy_tree(node)
    status = updated.setdefault("status", {})
    status |= copy_tree(wanted["status"])
    conditions = status.get("conditions") or []
    before: JsonObject = next((entry for entry in conditions if entry["type"] == "Ready"), {})
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the embedded cluster runs pods as local processes",
        "lastHeartbeatTime": timestamp(now),
        "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == "True" else timestamp(now),
    }
    status["conditions"] = [entry for entry in conditions if entry["type"] != "Ready"] + [ready]
    return updated


def is_ready(node: JsonObject, *, wanted: JsonObject) -> bool:
    """Say whether the recorded status is the wanted one, whatever the time of its last heartbeat."""
    status = node.get("status") or {}
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    return ready and all(status.get(key) == value for key, value in wanted["status"].items())


def _disk_of(root: Path) -> int:
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).total


def _memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no cgroup v2, or no limit ("max")
        total = min(total, int(_CGROUP_LIMIT.read_text(encoding="ascii")))
    return total


def _node_info(system: str, architecture: str) -> JsonObject:
    return {
        "operatingSystem": system,
        "architecture": architecture,
        "kernelVersion": platform.release(),
        "osImage": platform.platform(terse=True),
        "containerRuntimeVersion": "process://1",
        "kubeletVersion": "",
        "kubeProxyVersion": "",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }
