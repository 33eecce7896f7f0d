"""Mounts: where a container sees its volumes and, in namespaces, its hosts file, and what these must not hide.

No subPath leads out of its volume.
"""

from __future__ import annotations

import functools
import site
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.directories import PodFiles
from trainmaster.devcluster.kubelet.environment import expand
from trainmaster.devcluster.kubelet.volumes.volume_manager import path_inside
from trainmaster.runtime.jsontree import JsonObject

HOSTS_FILE = "/etc/hosts"

Bind: TypeAlias = tuple[str, str, bool]
"""What is mounted, where, and whether it is read-only."""

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point of containers, not a temporary file of ours
_GENERATED = ("configMap", "secret", "downwardAPI", "projected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """What the containers of a pod that runs in namespaces have in common."""

    hosts: Path
    user_namespace: bool


def mounted_paths(container: JsonObject, volumes: dict[str, Path], variables: dict[str, str]) -> dict[str, str]:
    """Give the real place of each mount path of a container."""
    paths = {}
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"])
        path = "/" + mount["mountPath"].strip("/")
        if volume is None or path == "/":
            wrong = f"volume {mount['name']!r} is not in the pod" if volume is None else "nothing can be mounted at /"
            raise PodRejectedError("InvalidVolumeMount", f"container {container['name']!r}, mount {path}: {wrong}")
        if path == _SHARED_MEMORY:
            continue  # the host's own serves all processes, and libraries open it without asking
        below = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
        paths[path] = str(_sub_path(volume, below) if below else volume)
    return paths


def _sub_path(volume: Path, below: str) -> Path:
    place: Path = volume / path_inside(below)
    if not place.resolve().is_relative_to(volume.resolve()):
        raise PodRejectedError("InvalidVolumeMount", f"subPath {below!r} leads out of its volume by a symbolic link")
    if not place.exists():
        place.mkdir(parents=True)
    return place


def volume_binds(container: JsonObject, pod: JsonObject, paths: Mapping[str, str]) -> list[Bind]:
    """Give the mounts of a container's volumes, from the real places of its mount paths."""
    generated = {
        volume["name"]
        for volume in pod["spec"].get("volumes") or ()
        if any(volume.get(kind) is not None for kind in _GENERATED)
    }
    binds: list[Bind] = []
    for mount in container.get("volumeMounts") or ():
        path = "/" + mount["mountPath"].strip("/")
        if path in paths:
            binds.append((paths[path], path, bool(mount.get("readOnly")) or mount["name"] in generated))
    return binds


def preserved_binds(binds: Iterable[Bind], *, files: PodFiles, needed: Iterable[str] | None = None) -> list[Bind]:
    """Give mounts that show again what other mounts would hide, although every container needs it.

    That is this Python with its packages, what is made for pods beside it, and the pod's own directories: a volume at
    /workspace must not take away the environment that was installed there.
    """
    targets = [target for _, target, _ in binds]
    places = (files.root, files.tmp, files.programs, files.python)
    kept = {*(str(place.absolute()) for place in places), *(installation() if needed is None else needed)}
    hidden = sorted(path for path in kept if any(path.startswith(f"{target}/") for target in targets))
    return [(path, path, False) for path in hidden if not any(path.startswith(f"{above}/") for above in hidden)]


@functools.cache
def installation() -> frozenset[str]:
    """Give the directories from which this Python runs."""
    places = {sys.prefix, sys.base_prefix, *site.getsitepackages(), *sys.path}
    # The interpreter is often a chain of links, each in a directory of its own.
    program = Path(sys.executable)
    while program.is_symlink():
        places.add(str(program.parent))
        program = program.parent / program.readlink()
    places.add(str(program.parent))
    found = {Path(place) for place in places if place and Path(place).is_absolute() and Path(place).is_dir()}
    return frozenset(str(path) for path in found | {path.resolve() for path in found})


def sandbox_of(namespaces: Namespaces, binds: list[Bind], *, view: Path, hostname: str) -> JsonObject:
    """Describe the sandbox of a container to the supervisor; mounts at `HOSTS_FILE` take the place of ours."""
    if all(target != HOSTS_FILE for _, target, _ in binds):
        binds = [*binds, (str(namespaces.hosts.absolute()), HOSTS_FILE, True)]
    return {
        "root": str(view.absolute()),
        "user_namespace": namespaces.user_namespace,
        "hostname": hostname,
        "binds": [(str(Path(source).absolute()), target, read_only) for source, target, read_only in binds],
    }
