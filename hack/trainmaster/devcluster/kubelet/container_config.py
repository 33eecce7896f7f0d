"""The configuration of a container: what the supervisor starts for it.

Images are never pulled, so the command has to be in the pod: the entrypoint of an image is written inside the image.
Who starts the cluster can tell the entrypoints of some images; those of the init container of MPIJobs, whose authors
never see it, and of the initializers of Kubeflow Trainer are known. A container that relies on another one has no
meaning as a local process; it fails the pod with a message that says so, instead of waiting for ever.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.directories import PodFiles, drop_oldest_logs, remove_log
from trainmaster.devcluster.kubelet.environment import (
    Lookup,
    PodInfo,
    base_environment,
    expand,
    pod_environment,
    thread_limit,
)
from trainmaster.devcluster.kubelet.network.addresses import hostname
from trainmaster.devcluster.kubelet.network.rewriter import Rewriter
from trainmaster.devcluster.kubelet.runtime import initializer
from trainmaster.devcluster.kubelet.virtual_environment import BaseEnvironment, VirtualEnvironment
from trainmaster.devcluster.kubelet.volumes import (
    Bind,
    Namespaces,
    mounted_paths,
    preserved_binds,
    sandbox_of,
    volume_binds,
)
from trainmaster.devcluster.settings import Entrypoints
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

LOG_LIMIT = 64 * 2**20
"""The most bytes that the log of a container attempt takes; the newest half of it is always kept."""

_DEFAULT_TERMINATION_LOG = "/dev/termination-log"

_DELIVER_KUBECTL: Final = """
if ! kubectl=$(command -v kubectl); then
    echo "an MPIJob needs kubectl, which is not on the search path: install it, and start the cluster again" >&2
    exit 1
fi
cp "$kubectl" "$TARGET_DIR/kubectl"
"""

_KNOWN_ENTRYPOINTS: Final[Entrypoints] = {
    "ghcr.io/kubeflow/training-v1/kubectl-delivery": ("sh", "-c", _DELIVER_KUBECTL),
    **{
        f"ghcr.io/kubeflow/trainer/{what}-initializer": ("python", initializer.__file__, what, f"/workspace/{what}")
        for what in ("dataset", "model")
    },
}

_NOT_FOUND: Final = "executable file not found in $PATH"
_NO_SUCH_FILE: Final = "no such file or directory"
_NO_IMAGES: Final = "images are not read here, containers run the programs of this machine"

_PACKAGES: Final = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "horovodrun": "horovod",
    "ray": "ray",
    "torchrun": "torch",
    "tune": "torchtune",
}
"""Programs that start training, and the packages that bring them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """The first process of a container attempt, with everything resolved."""

    identity: str
    argv: list[str]
    environment: dict[str, str]
    directory: Path
    log: Path
    memory_limit: int
    """How many bytes of memory its processes may use together; 0: any number."""

    rewriter: Rewriter
    """Rewrites what is executed in the container later."""

    sandbox: JsonObject | None
    """What the supervisor makes of the file system and the host name; None leaves them as they are."""

    address: str | None
    """Where the container listens when it listens on all interfaces; None: on all of them."""


def service_variables(server_url: str) -> dict[str, str]:
    """Give the variables by which programs inside a pod find the API server."""
    url = urlsplit(server_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return {"KUBERNETES_SERVICE_HOST": url.hostname or "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}


def generate_container_config(
    container: JsonObject,
    pod_info: PodInfo,
    *,
    identity: str,
    attempt: int,
    files: PodFiles,
    volumes: dict[str, Path],
    rewriter: Rewriter,
    server_url: str,
    lookup: Lookup,
    python: BaseEnvironment,
    devices: dict[str, str],
    entrypoints: Entrypoints,
    namespaces: Namespaces | None = None,
    address: str | None = None,
) -> ContainerConfig:
    """Resolve a container and create the directories that it writes to. `devices` are variables that name hardware."""
    name = container["name"]
    command = command_of(container, entrypoints)
    own = files.container(name)
    home, work = own / "home", own / "work"
    for directory in (home, work, files.tmp, files.log(name, attempt).parent):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    variables = pod_environment(container, pod_info, services=service_variables(server_url), lookup=lookup)
    paths = {termination_message_path(container): str(files.termination_message(name))}
    paths |= mounted_paths(container, volumes, variables)
    places = replace(rewriter, paths=paths)
    directory, private = _working_directory(container, places, default=work, root=own / "root")
    sandbox = None
    if namespaces is None:
        rewriter = places
    else:
        directory, sandbox = _in_namespaces(
            container, pod_info.pod, namespaces, files=files, paths=paths, directory=directory, private=private
        )
    own_python = _virtual_environment(python, files.virtual_environment(name, attempt))
    base = base_environment(
        hostname=hostname(pod_info.pod),
        home=home,
        tmp=files.tmp,
        search_path=[*own_python.search_path, files.programs],
    )
    environment = base | own_python.variables | thread_limit(container) | devices
    told = {entry["name"]: (entry.get("valueFrom") or {}).get("fieldRef") for entry in container.get("env") or ()}
    environment |= {
        name: value if told.get(name) else rewriter.variable(name, value) for name, value in variables.items()
    }
    log = files.log(name, attempt)
    remove_log(log)  # left by an attempt that a crash of the server kept from being recorded
    drop_oldest_logs(log.parent)
    files.termination_message(name).write_bytes(b"")
    log.touch(mode=0o600)  # here a full disk is waited for; the process that writes it could only give up
    return ContainerConfig(
        identity=identity,
        argv=rewriter.words([expand(word, variables) for word in command]),
        environment=environment,
        directory=directory,
        log=log,
        memory_limit=_memory_limit(container),
        rewriter=rewriter,
        sandbox=sandbox,
        address=address,
    )


def _memory_limit(container: JsonObject) -> int:
    amount = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return Quantity.parse(amount).ceil() if amount else 0


def _virtual_environment(python: BaseEnvironment, directory: Path) -> VirtualEnvironment:
    """Make the Python environment of a container; what is there is left by an attempt that a full disk cut short."""
    if directory.exists():
        shutil.rmtree(directory)
    return python.virtual_environment(directory)


def command_of(container: JsonObject, entrypoints: Entrypoints) -> list[str]:
    """Give the container's command with its arguments, before the expansion of variables."""
    command = container.get("command") or entrypoint_of(container.get("image") or "", entrypoints)
    if not command:
        name, image = container["name"], container.get("image") or "<none>"
        raise PodRejectedError(
            "ImageEntrypointUnknown",
            f"container {name!r} has no command, and the entrypoint of image {image!r} is not known: the embedded "
            "cluster runs containers as local processes and reads no images; set `command` in the container "
            "(`trainer.command` in a TrainJob), or start the cluster with --entrypoint IMAGE=COMMAND",
        )
    return [*command, *(container.get("args") or ())]


def entrypoint_of(image: str, entrypoints: Entrypoints) -> tuple[str, ...]:
    """Give the entrypoint of an image as far as it is known, by the whole reference or without tag and digest."""
    entrypoints = {**_KNOWN_ENTRYPOINTS, **entrypoints}
    name = image.partition("@")[0]
    repository, _, last = name.rpartition("/")
    without_tag = "/".join(filter(None, (repository, last.partition(":")[0])))
    return next((entrypoints[key] for key in (image, name, without_tag) if key in entrypoints), ())


def termination_message_path(container: JsonObject) -> str:
    """Give the path at which the container writes its termination message."""
    return container.get("terminationMessagePath") or _DEFAULT_TERMINATION_LOG


def _working_directory(container: JsonObject, places: Rewriter, *, default: Path, root: Path) -> tuple[Path, bool]:
    """Give the real place of the working directory, and whether it is private because no volume covers it.

    It is private then: no container writes to the host by accident.
    """
    wanted = container.get("workingDir")
    if not wanted:
        return default, True
    real = places.path("/" + wanted.lstrip("/"))
    directory = Path(real) if real else root / wanted.strip("/")
    if not real and ".." in directory.parts:
        return default, True
    directory.mkdir(parents=True, exist_ok=True)
    return directory, not real


def _in_namespaces(
    container: JsonObject,
    pod: JsonObject,
    namespaces: Namespaces,
    *,
    files: PodFiles,
    paths: dict[str, str],
    directory: Path,
    private: bool,
) -> tuple[Path, JsonObject]:
    """Give the working directory as the container sees it, and its sandbox."""
    view = files.container(container["name"]) / "view"
    view.mkdir(mode=0o700, exist_ok=True)
    message = termination_message_path(container)
    binds: list[Bind] = [(paths[message], message, False), *volume_binds(container, pod, paths)]
    wanted = container.get("workingDir")
    if wanted and not (private and directory == files.container(container["name"]) / "work"):
        seen = Path("/" + wanted.strip("/"))
        if private and not seen.is_dir():
            binds.append((str(directory.absolute()), str(seen), False))
        directory = seen
    binds += preserved_binds(binds, files=files)
    return directory, sandbox_of(namespaces, binds, view=view, hostname=hostname(pod))


def start_error(problem: str, *, argv: Sequence[str], search_path: str, own: Path) -> str:
    """Give the termination message of a container whose first process could not be started.

    Args:
        problem: What the shim says.
        argv: The command with its arguments.
        search_path: PATH of the container.
        own: The directory of the kubelet; what is below it says nothing to people.
    """
    text = f"unable to start container process: {problem}"
    if problem.endswith(_NOT_FOUND):
        shown = [directory for directory in search_path.split(os.pathsep) if own not in Path(directory).parents]
        return f"{text}: {_remedy(argv[0], search_path)} (PATH is {os.pathsep.join(shown)})"
    if problem.endswith(_NO_SUCH_FILE):
        return f"{text}: {_NO_IMAGES}"
    return text


def _remedy(program: str, path: str) -> str:
    words = program.split()
    if len(words) > 1:
        return f"a command is a list of words: write {json.dumps(words[:3])[:-1]}{', ...' if words[3:] else ''}]"
    if package := _PACKAGES.get(program):
        return (
            f"{program} is not installed in the environment of the cluster: {sys.executable} -m pip install {package}"
        )
    alike = _most_alike(program, path)
    return f"did you mean {alike}? {_NO_IMAGES.capitalize()}" if alike else _NO_IMAGES


def _most_alike(program: str, path: str) -> str:
    """Find a program on the search path that may have been meant, and begins as this one does; empty if none."""
    found: set[str] = set()
    for directory in filter(None, path.split(os.pathsep)):
        try:
            with os.scandir(directory) as entries:
                found.update(entry.name for entry in entries if entry.name[:1] == program[:1])
        except OSError:  # a search path may name what does not exist
            continue
    return next(iter(get_close_matches(program, sorted(found), n=1, cutoff=0.75)), "")
