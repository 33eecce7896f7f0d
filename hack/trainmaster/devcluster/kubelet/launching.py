"""Turning a container of a pod into the command that the supervisor starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from trainmaster.devcluster.kubelet.downward import PodFacts
from trainmaster.devcluster.kubelet.environment import (
    Lookup,
    base_environment,
    expand,
    pod_environment,
    thread_limit,
)
from trainmaster.devcluster.kubelet.files import PodFiles
from trainmaster.devcluster.kubelet.images import command_of
from trainmaster.devcluster.kubelet.rewriting import Rewriter
from trainmaster.devcluster.kubelet.volumes import mounted_paths
from trainmaster.runtime.jsontree import JsonObject

_DEFAULT_TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start, with everything resolved."""

    identity: str
    argv: list[str]
    environment: dict[str, str]
    directory: Path
    log: Path


def service_variables(server_url: str) -> dict[str, str]:
    """Give the variables by which programs inside a pod find the API server."""
    url = urlsplit(server_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return {"KUBERNETES_SERVICE_HOST": url.hostname or "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}


def prepare_launch(
    container: JsonObject,
    facts: PodFacts,
    *,
    identity: str,
    attempt: int,
    files: PodFiles,
    volumes: dict[str, Path],
    rewriter: Rewriter,
    server_url: str,
    lookup: Lookup,
    devices: dict[str, str],
) -> Launch:
    """Resolve a container and create the directories that it writes to. `devices` are variables that name hardware."""
    name = container["name"]
    command = command_of(container)
    own = files.container(name)
    home, work = own / "home", own / "work"
    for directory in (home, work, files.tmp, files.log(name, attempt).parent):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    variables = pod_environment(container, facts, services=service_variables(server_url), lookup=lookup)
    paths = mounted_paths(container, volumes, variables)
    rewriter = replace(rewriter, paths={termination_path(container): str(termination_file(files, container))} | paths)
    base = base_environment(hostname=hostname(facts.pod), home=home, tmp=files.tmp)
    environment = base | thread_limit(container) | devices
    environment |= {key: rewriter.variable(key, value) for key, value in variables.items()}
    log = files.log(name, attempt)
    log.unlink(missing_ok=True)  # left by an attempt that a crash of the server kept from being recorded
    termination_file(files, container).write_bytes(b"")
    return Launch(
        identity=identity,
        argv=rewriter.words([expand(word, variables) for word in command]),
        environment=environment,
        directory=_working_directory(container, rewriter, default=work, root=own / "root"),
        log=log,
    )


def hostname(pod: JsonObject) -> str:
    """Give the pod's host name."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:63]


def termination_path(container: JsonObject) -> str:
    """Give the path at which the container is told to leave its last words."""
    return container.get("terminationMessagePath") or _DEFAULT_TERMINATION_LOG


def termination_file(files: PodFiles, container: JsonObject) -> Path:
    """Give the file behind that path."""
    return files.container(container["name"]) / "termination-log"


def _working_directory(container: JsonObject, rewriter: Rewriter, *, default: Path, root: Path) -> Path:
    """Give the mounted working directory, or a private one: no container writes to the host by accident."""
    wanted = container.get("workingDir")
    if not wanted:
        return default
    real = rewriter.path("/" + wanted.lstrip("/"))
    directory = Path(real) if real else root / wanted.strip("/")
    if not real and ".." in directory.parts:
        return default
    directory.mkdir(parents=True, exist_ok=True)
    return directory
