"""Addresses and ports of pods that all live on one host.

- Each pod gets an address of its own in 127.0.0.0/8 (Linux; elsewhere only 127.0.0.1 exists). It depends on the names
  of the pod (and of its cluster) alone: it is known before the pod exists, and a pod that replaces another of its name
  gets the same one. Processes are free to listen there. In namespaces the names of pods resolve to it (see `hosts`),
  else to 127.0.0.1 (see `rewriter`).
- Pods have their ports to themselves at their own address, where the host offers that, unless they belong to a Job or a
  subdomain, or to nobody.
- Those, and elsewhere all pods of one owner, share one table from container ports to free local ports, so that two
  jobs can both use 29500. The table is on disk before a process sees it, and the same after a restart of the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from trainmaster.devcluster.kubelet.container import CreateContainerError
from trainmaster.devcluster.kubelet.network.rewriter import LOCAL_ADDRESS
from trainmaster.runtime.jsontree import JsonObject

# Below the ranges from which Linux (32768) and macOS (49152) take ports for outgoing connections, and below 29500,
# which programs that were not rewritten may use.
_FIRST_PORT, _LAST_PORT = 10000, 28999


def host_address(namespace: str, subdomain: str, host: str) -> str:
    """Derive the address of a host name: the same at any time, and hardly ever that of another one."""
    if not sys.platform.startswith("linux"):
        return LOCAL_ADDRESS
    digest = hashlib.sha256(f"{namespace}/{subdomain}/{host}".encode()).digest()
    # 127.16.0.0 and up leaves alone what hosts commonly configure below it, such as systemd-resolved's 127.0.0.53.
    return str(ipaddress.IPv4Address(bytes((127, 16 + digest[0] % 224, digest[1], 1 + digest[2] % 254))))


def service_address(namespace: str, name: str, *, cluster: str) -> str:
    """Derive the address by which pods reach a service; hardly ever that of a pod or of a service elsewhere.

    Several clusters on one machine have services of the same names: `cluster` tells them apart.
    """
    return host_address(namespace, f"/service of {cluster}", name)


def pod_address(pod: JsonObject, *, cluster: str) -> str:
    """Give the address of a pod: that of its host name in its subdomain, or of its own name in its cluster.

    Those without a subdomain keep their ports: another cluster on this machine may have a pod of the same name.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if subdomain := spec.get("subdomain"):
        return host_address(metadata["namespace"], subdomain, hostname(pod))
    return host_address(metadata["namespace"], f"/pod of {cluster}", metadata["name"])


def hostname(pod: JsonObject) -> str:
    """Give the pod's host name."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:63]


def has_own_ports(pod: JsonObject) -> bool:
    """Say whether a pod wants its ports to itself, since others beside it may have the same ones.

    So do those of a Deployment and of a training job; pods of a Job or of a subdomain share the port of a rendezvous.
    """
    return not pod["spec"].get("subdomain") and _controller_kind(pod) not in {"", "Job"}


def _controller_kind(pod: JsonObject) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner.get("kind", "") for owner in owners if owner.get("controller")), "")


def job_key(pod: JsonObject) -> str:
    """Name the group of pods that share ports: those of one subdomain, else of one owner, else the pod alone.

    Those of a ReplicaSet share none: they all listen on the same ports.
    """
    metadata = pod["metadata"]
    if _controller_kind(pod) == "ReplicaSet":
        return f"{metadata['namespace']}/uid:{metadata['uid']}"
    if subdomain := pod["spec"].get("subdomain"):
        return f"{metadata['namespace']}/{subdomain}"
    owner = next((owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    return f"{metadata['namespace']}/uid:{owner or metadata['uid']}"


def is_free(port: int) -> bool:
    """Say whether a server could listen on the port now, on the loopback and on all interfaces."""
    for address in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - bound for a moment to test it, never listened on
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


class PortTable:
    """Local ports by job and container port, kept in a file."""

    def __init__(self, path: Path, *, free: Callable[[int], bool] = is_free) -> None:
        self._path = path
        self._free = free
        self._jobs = _load(path)

    def ports(self, job: str, wanted: Iterable[int]) -> dict[int, int]:
        """Give the job's table after making sure that it holds the wanted ports."""
        table = self._jobs.get(job, {})
        missing = set(wanted) - table.keys()
        if missing:
            taken = {port for other in self._jobs.values() for port in other.values()}
            table = dict(table)
            for port in sorted(missing):
                table[port] = self._choose(f"{job}:{port}", taken)
                taken.add(table[port])
            self._save({**self._jobs, job: table})
            self._jobs[job] = table
        return dict(table)

    def local(self, job: str, port: int) -> int:
        """Give the local port that stands for a container port; the port itself if there is none."""
        return self._jobs.get(job, {}).get(port, port)

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all jobs but these."""
        gone = self._jobs.keys() - set(jobs)
        for job in gone:
            del self._jobs[job]
        if gone:
            with contextlib.suppress(OSError):  # a full disk: who reads the file again forgets them again
                self._save(self._jobs)

    def _choose(self, label: str, taken: set[int]) -> int:
        """Search from a place that depends on the job and the cluster: two clusters seldom try the same port."""
        count = _LAST_PORT - _FIRST_PORT + 1
        digest = hashlib.sha256(f"{self._path}:{label}".encode()).digest()
        start = int.from_bytes(digest[:4], "big")
        for offset in range(count):
            port = _FIRST_PORT + (start + offset) % count
            if port not in taken and self._free(port):
                return port
        raise CreateContainerError(
            "CreateContainerError",
            f"no free port between {_FIRST_PORT} and {_LAST_PORT} for {label}; stop what holds them",
        )

    def _save(self, jobs: dict[str, dict[int, int]]) -> None:
        content = json.dumps(jobs, indent=1, sort_keys=True)
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(content, encoding="utf-8")
            os.replace(draft, self._path)  # noqa: PTH105 - atomic, and named as what it is
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def _load(path: Path) -> dict[str, dict[int, int]]:
    """Read the file; damaged or foreign content is as good as none, since ports can be chosen anew."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {job: {int(port): int(local) for port, local in table.items()} for job, table in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
