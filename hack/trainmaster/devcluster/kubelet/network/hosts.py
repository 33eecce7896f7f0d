"""The hosts files of pods that run in namespaces: the names of their own group, and those of Services.

- The names of a JobSet's and of an indexed Job's pods follow from their specs, and addresses follow from names. So all
  are there before the first pod starts, as with a headless service that publishes addresses that are not ready.
- Pods of one subdomain share one file. Pods that nobody could expect are added when they come: to the same file, which
  those that run already see.
- Where a Service of that name has an address or selects other pods, none of these names is there, as in DNS.
- The subdomain itself, which is the name of the headless service, resolves to the addresses of all its pods.
- Names of Services, see `service_names`, come and go in the files of all running pods. As with a resolver that asks
  DNS after /etc/hosts, they do not take the place of names that a file has by itself.

A hosts file that running pods have mounted: it changes in place, and whoever reads it meanwhile reads whole lines.

- No line ever moves. One is taken away by a `#` over its first byte; a new one is written behind the last, or over one
  that was taken away, its first byte last.
- What a full disk cut off is no line, and is written again by the next call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trainmaster.devcluster.apiserver.resources import JOBS, JOBSETS, SERVICES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.endpointslice import is_headless
from trainmaster.devcluster.kubelet.environment import Lookup
from trainmaster.devcluster.kubelet.network.addresses import host_address, hostname
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jsontree import JsonObject

_DOMAIN = "cluster.local"
_LOCALHOST, _LOCALHOST6 = "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"
_OWN = "own"


class Record(NamedTuple):
    """An address and the Service that it is found under."""

    address: str
    namespace: str
    service: str
    hostname: str = ""
    """That of the endpoint, if it has one: a name below that of the Service."""

    def names(self, namespace: str) -> list[str]:
        """Give its names as a pod of a namespace knows them, the whole one first."""
        names = _service_names(self.namespace, self.service, short=namespace == self.namespace)
        return [*(f"{self.hostname}.{name}" for name in names), *names] if self.hostname else names


class _PodHosts:
    """One file, and what decides on its lines."""

    def __init__(self, path: Path, namespace: str) -> None:
        self.file = HostsFile(path)
        self.hosts: dict[str, None] = {}
        """The host names of a subdomain, in the order of the file."""
        self._namespace = namespace
        self._own: frozenset[str] = frozenset()

    def show_own(self, lines: Sequence[str]) -> None:
        self.file.show(_OWN, lines)
        self._own = frozenset(name for line in lines for name in line.split()[1:])

    def show_service(self, service: ObjectKey, records: Iterable[Record]) -> None:
        named = ((record.address, self._others(record)) for record in records)
        self.file.show(service, [f"{address}\t{' '.join(names)}" for address, names in named if names])

    def _others(self, record: Record) -> list[str]:
        return [name for name in record.names(self._namespace) if name not in self._own]


class HostsTable:
    """The hosts files of all pods here."""

    def __init__(self, directory: Path, *, lookup: Lookup) -> None:
        self._directory = directory
        self._lookup = lookup
        self._files: dict[str, _PodHosts] = {}
        """By `<namespace>/<subdomain>`, or by the uid of a pod without a subdomain."""
        self._services: dict[ObjectKey, Sequence[Record]] = {}

    def file(self, pod: JsonObject, *, own: Path, address: str, ipv6: bool = True) -> Path:
        """Bring the file for a pod with an address up to date and give it; without a subdomain it is its `own`.

        `ipv6` says whether there are sockets of IPv6 in the pod, so that localhost is one of its addresses.
        """
        metadata, namespace = pod["metadata"], pod["metadata"]["namespace"]
        subdomain = self._subdomain(pod)
        key = f"{namespace}/{subdomain}" if subdomain else metadata["uid"]
        known = self._files.get(key)
        if known is None or not known.file.path.exists():
            path = self._directory / f"{namespace}.{subdomain}" if subdomain else own
            known = self._files[key] = _PodHosts(path, namespace)
        expected = dict.fromkeys((*(expected_hosts(pod, self._lookup) if subdomain else ()), hostname(pod)))
        if expected.keys() - known.hosts.keys():
            hosts = known.hosts | expected
            lines = host_lines(namespace, subdomain, hosts) if subdomain else [f"{address}\t{hostname(pod)}"]
            known.show_own([_LOCALHOST, *([_LOCALHOST6] if ipv6 else []), *lines])
            for service, records in self._services.items():
                known.show_service(service, records)
            known.hosts = hosts
        return known.file.path

    def _subdomain(self, pod: JsonObject) -> str | None:
        """Return the subdomain of a pod, unless a Service of that name leads elsewhere."""
        subdomain: str | None = pod["spec"].get("subdomain")
        if subdomain and (service := self._lookup(SERVICES, pod["metadata"]["namespace"], subdomain)) is not None:
            labels, selector = pod["metadata"].get("labels") or {}, service["spec"].get("selector") or {}
            if not is_headless(service) or any(labels.get(key) != value for key, value in selector.items()):
                return None
        return subdomain

    def publish(self, service: ObjectKey, records: Sequence[Record]) -> None:
        """Let all pods know under which addresses a Service is found now.

        Raises:
            OSError: Not all of them could be told.
        """
        self._services.pop(service, None)
        if records:
            self._services[service] = records
        for each in self._files.values():
            with contextlib.suppress(FileNotFoundError):  # of a pod that is being removed
                each.show_service(service, records)

    def forget(self, uid: str) -> None:
        """Leave the file of a pod alone that has ended."""
        self._files.pop(uid, None)

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all subdomains but these, each as `<namespace>/<subdomain>`, also those of an earlier run."""
        kept = set(jobs)
        self._files = {key: each for key, each in self._files.items() if "/" not in key or key in kept}
        names = {job.replace("/", ".") for job in kept}
        for path in self._directory.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)


def expected_hosts(pod: JsonObject, lookup: Lookup) -> Iterator[str]:
    """Give the host names of the pods that belong to this pod's JobSet or Job, as far as their specs tell."""
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    if name := labels.get(JOBSET_LABEL):
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


def host_lines(namespace: str, subdomain: str, hosts: Iterable[str]) -> list[str]:
    """Give the lines of the hosts of a subdomain, with which its headless service has a name, too."""
    service = _service_names(namespace, subdomain, short=True)
    return [
        f"{host_address(namespace, subdomain, host)}\t"
        f"{' '.join((*(f'{host}.{name}' for name in service), host, *service))}"
        for host in hosts
    ]


def _service_names(namespace: str, service: str, *, short: bool) -> list[str]:
    name = f"{service}.{namespace}"
    return [f"{name}.svc.{_DOMAIN}", f"{name}.svc", name, *([service] if short else ())]


def _pods_of(job_spec: JsonObject) -> int:
    return max(job_spec.get("completions") or 0, job_spec.get("parallelism") or 0) or 1


class _Place(NamedTuple):
    offset: int
    length: int


class HostsFile:
    """The file at a path; what an earlier run left there is dropped, since no process of it lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0
        self._shown: dict[Hashable, dict[str, _Place]] = {}
        """Lines by what they are about."""
        self._free: list[_Place] = []
        path.write_bytes(b"")

    def show(self, about: Hashable, lines: Iterable[str]) -> None:
        """Make these the lines about something; the new ones come before the old ones go.

        Raises:
            OSError: They could not all be written, for instance because the disk is full.
        """
        shown, wanted = self._shown.setdefault(about, {}), dict.fromkeys(lines)
        if wanted.keys() != shown.keys():
            descriptor = os.open(self.path, os.O_WRONLY)
            try:
                for line in wanted:
                    if line not in shown:
                        shown[line] = self._write(descriptor, line)
                for line in shown.keys() - wanted.keys():
                    os.pwrite(descriptor, b"#", shown[line].offset)
                    self._free.append(shown.pop(line))
            finally:
                os.close(descriptor)
        if not shown:
            del self._shown[about]

    def _write(self, descriptor: int, line: str) -> _Place:
        content = line.encode("ascii")
        fitting = [free for free in self._free if free.length >= len(content)]
        place = min(fitting, key=lambda free: free.length, default=_Place(self._size, len(content)))
        _write_all(descriptor, b"#" + content[1:].ljust(place.length - 1) + b"\n", place.offset)
        os.pwrite(descriptor, content[:1], place.offset)
        if fitting:
            self._free.remove(place)
        else:
            self._size += place.length + 1
        return place


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    written = 0
    while written < len(content):  # an almost full disk takes a part
        written += os.pwrite(descriptor, content[written:], offset + written)
