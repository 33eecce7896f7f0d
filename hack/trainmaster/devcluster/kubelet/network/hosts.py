"""The hosts files of pods that run in namespaces: all names under which the pods of a subdomain know each other.

- The names of a JobSet's and of an indexed Job's pods follow from their specs, and addresses follow from names. So all
  are there before the first pod starts, as with a headless service that publishes addresses that are not ready.
- Pods of one subdomain share one file. Pods that nobody could expect are added when they come: to the same file, which
  those that run already see.
- The subdomain itself, which is the name of the headless service, resolves to the addresses of all its pods.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainmaster.devcluster.apiserver.resources import JOBS, JOBSETS
from trainmaster.devcluster.kubelet.environment import Lookup
from trainmaster.devcluster.kubelet.network.addresses import host_address, hostname, pod_address, service_address
from trainmaster.runtime.jsontree import JsonObject

_DOMAIN = "cluster.local"
_OWN = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


class HostsTable:
    """The hosts files of all subdomains that have pods here."""

    def __init__(self, directory: Path, *, lookup: Lookup) -> None:
        self._directory = directory
        self._lookup = lookup
        self._subdomains: dict[str, dict[str, None]] = {}
        """Host names by `<namespace>/<subdomain>`, in the order of the file."""

    def file(self, pod: JsonObject, *, own: Path, services: str = "") -> Path:
        """Bring the file for a pod up to date and give it; a pod without a subdomain has its `own`.

        `services` are further lines, which name Services; pods that run already do not get those of newer ones.
        """
        namespace, subdomain = pod["metadata"]["namespace"], pod["spec"].get("subdomain")
        if not subdomain:
            own.write_text(f"{_OWN}{pod_address(pod)}\t{hostname(pod)}\n{services}", encoding="ascii")
            return own
        path = self._directory / f"{namespace}.{subdomain}"
        known = self._subdomains.get(f"{namespace}/{subdomain}", {})
        expected = dict.fromkeys((*expected_hosts(pod, self._lookup), hostname(pod)))
        if expected.keys() - known.keys() or not path.exists():
            _update(path, hosts_text(namespace, subdomain, known | expected) + services)
            self._subdomains[f"{namespace}/{subdomain}"] = known | expected
        return path

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all subdomains but these, each as `<namespace>/<subdomain>`, also those of an earlier run."""
        kept = set(jobs)
        self._subdomains = {job: hosts for job, hosts in self._subdomains.items() if job in kept}
        names = {job.replace("/", ".") for job in kept}
        for path in self._directory.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)


def expected_hosts(pod: JsonObject, lookup: Lookup) -> Iterator[str]:
    """Give the host names of the pods that belong to this pod's JobSet or Job, as far as their specs tell."""
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    if name := labels.get("jobset.sigs.k8s.io/jobset-name"):
        jobset = lookup(JOBSETS, namespace, name) or {"spec": {}}
        for group in jobset["spec"].get("replicatedJobs") or ():
            for replica in range(group.get("replicas", 1)):
                for index in range(_pods_of(group["template"].get("spec") or {})):
                    yield f"{name}-{group['name']}-{replica}-{index}"
    elif name := labels.get("batch.kubernetes.io/job-name"):
        job = lookup(JOBS, namespace, name) or {"spec": {}}
        if job["spec"].get("completionMode") == "Indexed":
            for index in range(_pods_of(job["spec"])):
                yield f"{name}-{index}"


def hosts_text(namespace: str, subdomain: str, hosts: Iterable[str]) -> str:
    """Write a hosts file. New hosts at the end leave everything before them as it was."""
    service = f"{subdomain}.{namespace}.svc"
    lines = [_OWN]
    for host in hosts:
        own = (
            f"{host}.{service}.{_DOMAIN}",
            f"{host}.{service}",
            f"{host}.{subdomain}.{namespace}",
            f"{host}.{subdomain}",
        )
        shared = (f"{service}.{_DOMAIN}", service, f"{subdomain}.{namespace}", subdomain)
        lines.append(f"{host_address(namespace, subdomain, host)}\t{' '.join((*own, host, *shared))}\n")
    return "".join(lines)


def service_lines(namespace: str, services: Iterable[JsonObject], *, cluster: str) -> str:
    """Write the lines that name Services with an address, as a pod in a namespace knows them."""
    lines = []
    for service in services:
        name, home = service["metadata"]["name"], service["metadata"]["namespace"]
        if service["spec"].get("clusterIP") in {None, "", "None"}:
            continue
        names = [f"{name}.{home}.svc.{_DOMAIN}", f"{name}.{home}.svc", f"{name}.{home}"]
        names += [name] if home == namespace else []
        lines.append(f"{service_address(home, name, cluster=cluster)}\t{' '.join(names)}\n")
    return "".join(lines)


def _pods_of(job_spec: JsonObject) -> int:
    return max(job_spec.get("completions") or 0, job_spec.get("parallelism") or 0) or 1


def _update(path: Path, text: str) -> None:
    """Write in place, for running pods have this very file mounted; what stays the same is written over itself."""
    content = text.encode("ascii")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        written = 0
        while written < len(content):  # an almost full disk takes a part
            written += os.pwrite(descriptor, content[written:], written)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
