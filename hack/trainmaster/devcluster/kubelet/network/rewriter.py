"""Text replacement that lets programs written for containers run as processes of one host.

A process sees neither the pod network nor the mount points of its pod. So, wherever they stand in the values of
environment variables, the command, its arguments and projected ConfigMaps,

- names of pods of the same job become 127.0.0.1, and a port behind such a name its local port;
- mount paths become the directories that hold the volumes.

In namespaces both are real, and all that is left to rewrite are the ports: programs listen on all addresses, so that
two jobs with the same port would still meet.

Names and paths are replaced only as a whole: `train-node-0-0.train` is not found inside `my-train-node-0-0.train`, nor
`/data` inside `/data2`. What a variable takes from a field of the pod, its name for instance, is nobody's address.
Every text is rewritten exactly once, since a real directory may contain a mount path.
The known gap: names and paths that a program puts together itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jsontree import JsonObject

LOCAL_ADDRESS = "127.0.0.1"

RENDEZVOUS_VARIABLES = frozenset(
    {
        "MASTER_PORT",
        "PET_MASTER_PORT",
        "PET_RDZV_ENDPOINT",
        "DMLC_TRACKER_PORT",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_COORDINATOR_PORT",
        "COORDINATOR_ADDRESS",
    }
)
"""Variables that hold the port, or host:port, of the rendezvous of a job's pods: a port of the job, declared or not."""

_REPLICA_TYPES = ("chief", "evaluator", "launcher", "master", "ps", "worker")
"""Those that pods of the training operator name in their environment."""

_NAME_END = r"(?![\w-]|\.\w)"
_PATH_START = r"(?:(?<![\w./~})*-])|(?<=://))"
_PORT_OPTION = re.compile(r"(?<![\w-])(--?[\w-]*port[= ])([0-9]{1,5})(?![\w.])", re.IGNORECASE)
_PORT_OPTION_ALONE = re.compile(r"--?[\w-]*port", re.IGNORECASE)


def pod_names(pod: JsonObject, *, address: str = "") -> re.Pattern[str] | None:
    """Build the pattern of all names under which the pods of this pod's job know each other.

    It derives from the pod's own labels, so that all pods of a job, also those that do not exist yet, agree. `address`
    is that of the pod, by which it may tell itself.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    labels = metadata.get("labels") or {}
    subdomain = spec.get("subdomain")
    if not subdomain:
        return _service_names(metadata["namespace"], labels, address)
    hosts = [re.escape(spec.get("hostname") or metadata["name"])]
    if jobset := labels.get(JOBSET_LABEL):
        hosts.append(re.escape(jobset) + r"-(?:[a-z0-9-]+-)?[0-9]+-[0-9]+")
    if job := labels.get("batch.kubernetes.io/job-name"):
        hosts.append(re.escape(job) + r"-[0-9]+")
    namespace, domain = re.escape(metadata["namespace"]), re.escape(subdomain)
    service = rf"{domain}\.{namespace}\.svc(?:\.cluster\.local)?"
    # The service of the job has a name of one label: only its qualified form can be told from an ordinary word.
    return _pattern(rf"(?:(?:{'|'.join(hosts)})\.(?:{service}|{domain}\.{namespace}|{domain})|{service})")


def _service_names(namespace: str, labels: Mapping[str, str], address: str) -> re.Pattern[str] | None:
    """Build the pattern for a job of the training operator, each pod of which has a Service of its name."""
    job = labels.get("training.kubeflow.org/job-name")
    if not job:
        return None
    kinds = "|".join(sorted({*_REPLICA_TYPES, re.escape(labels.get("training.kubeflow.org/replica-type", "worker"))}))
    domain = rf"(?:\.{re.escape(namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
    own = f"|{re.escape(address)}" if address else ""
    return _pattern(rf"(?:{re.escape(job)}-(?:{kinds})-[0-9]+{domain}{own})")


def _pattern(host: str) -> re.Pattern[str]:
    """Match a host as a whole, with the port behind it."""
    return re.compile(rf"(?<![\w.-]){host}{_NAME_END}(?::([0-9]{{1,5}})(?![\w.]))?")


def job_ports(pod: JsonObject) -> set[int]:
    """Give the ports of the pod's job: those that its containers declare and those of its rendezvous variables."""
    spec = pod["spec"]
    ports: set[int] = set()
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        ports |= {entry["containerPort"] for entry in container.get("ports") or () if "containerPort" in entry}
        for variable in container.get("env") or ():
            port = str(variable.get("value") or "").rpartition(":")[2]
            if variable["name"] in RENDEZVOUS_VARIABLES and port.isdecimal() and 0 < int(port) < 65536:
                ports.add(int(port))
    return ports


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Replaces names, ports and paths for one container."""

    names: re.Pattern[str] | None = None
    address: str | None = LOCAL_ADDRESS
    """What stands for the names; None if they can be resolved and stay."""

    ports: Mapping[int, int] = field(default_factory=dict)
    """Container ports of the pod's job and the local ports that stand for them."""

    paths: Mapping[str, str] = field(default_factory=dict)
    """Mount paths and the directories or files that stand for them."""

    def text(self, text: str) -> str:
        """Rewrite names, with the ports behind them, and paths."""
        return self._paths_in(self.names_in(text))

    def names_in(self, text: str) -> str:
        """Rewrite names, with the ports behind them, but no paths."""
        if self.names is None:
            return text

        def local(match: re.Match[str]) -> str:
            if match[1] is None:
                return self.address or match[0]
            name = match[0].removesuffix(f":{match[1]}")
            return f"{self.address or name}:{self._port(match[1])}"

        return self.names.sub(local, text)

    def variable(self, name: str, value: str) -> str:
        """Rewrite the value of an environment variable."""
        if name.endswith("PORT") and value.isdecimal() and not name.startswith("KUBERNETES_"):
            return self._port(value)
        return self.text(value)

    def words(self, words: Sequence[str]) -> list[str]:
        """Rewrite a command and its arguments; `--port 8080` may be one word or two."""
        rewritten = []
        for position, word in enumerate(words):
            if word.isdecimal() and position and _PORT_OPTION_ALONE.fullmatch(words[position - 1]):
                rewritten.append(self._port(word))
            else:
                rewritten.append(self.text(_PORT_OPTION.sub(self._option, word)))
        return rewritten

    def path(self, path: str) -> str | None:
        """Give the real place of an absolute path inside the container, or None if no volume covers it."""
        for parent in (PurePosixPath(path), *PurePosixPath(path).parents):
            if real := self.paths.get(str(parent)):
                return str(PurePosixPath(real) / PurePosixPath(path).relative_to(parent))
        return None

    def _option(self, match: re.Match[str]) -> str:
        return f"{match[1]}{self._port(match[2])}"

    def _port(self, port: str) -> str:
        return str(self.ports.get(int(port), port))

    def _paths_in(self, text: str) -> str:
        if not self.paths or "/" not in text:
            return text
        longest_first = sorted(self.paths, key=len, reverse=True)
        # A path starts after anything that cannot be the inside of a longer one, or after the scheme of a URL.
        paths = "|".join(map(re.escape, longest_first))
        return re.sub(rf"{_PATH_START}(?:{paths}){_NAME_END}", lambda match: self.paths[match[0]], text)
