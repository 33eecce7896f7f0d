"""Volumes of pods: directories of the host with what the pod asks for, and where its containers see them.

Mounts: where a container sees its volumes and, in namespaces, its hosts file, and what these must not hide.

No subPath leads out of its volume.

The volume manager: volumes of pods as directories.

    <root>/pods/<uid>/volumes/<name>   emptyDir, configMap, secret, downwardAPI, projected: gone with the pod
    <root>/claims/<namespace>/<name>   PersistentVolumeClaim: shared by all pods, gone with the claim

Guarantees:
- Files of a configMap, secret, downwardAPI or projected volume appear all at once, behind a `..data` link, as the
  kubelet's AtomicWriter has them.
- No item's path leads out of its volume.
- What the embedded cluster cannot mount fails the pod with a message; what is missing is waited for.
- Tokens of service accounts are renewed when 80% of their life is over, for as long as the pod runs.

Not enforced here: `readOnly` (see `mounts`), size limits. Contents other than tokens are those of the moment in which
the pod started.
"""

from __future__ import annotations

import base64
import functools
import logging
import os
import shutil
import site
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import DEFAULT_SECONDS, ServiceAccountTokens
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from trainmaster.devcluster.kubelet.container import CREATING, CreateContainerError, PodRejectedError
from trainmaster.devcluster.kubelet.directories import PodFiles
from trainmaster.devcluster.kubelet.environment import (
    Lookup,
    PodInfo,
    UnknownFieldError,
    container_named,
    decoded,
    expand,
    field_value,
    resource_value,
)
from trainmaster.devcluster.settings import RESERVED_DOMAIN
from trainmaster.runtime.jsontree import JsonObject

HOSTS_FILE = "/etc/hosts"

Bind: TypeAlias = tuple[str, str, bool]
"""What is mounted, where, and whether it is read-only."""

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point of containers, not a temporary file of ours
_GENERATED = ("configMap", "secret", "downwardAPI", "projected")

_log = logging.getLogger(__name__)

_UNSUPPORTED = "UnsupportedVolume"
_DEFAULT_MODE = 0o644
_KEYS_OF = {"configmap": "config", "secret": "secret"}
_RENEWED_AFTER = 0.8
"""The part of a token's life after which it is renewed, as in Kubernetes."""

_RENEWAL_PAUSE = timedelta(seconds=30)
"""Between attempts to renew a token that failed; what is left of its life is longer."""


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


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """One file of a generated volume."""

    path: str
    content: bytes
    mode: int


def write_atomically(place: Path, files: list[VolumeFile]) -> None:
    """Write the files to a fresh directory and switch `..data` to it, which no reader can see half done."""
    place.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=place))
    try:
        for file in files:
            target = fresh / path_inside(file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(file.mode)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)  # it is tried again and again, on a full disk as a rule
        raise
    fresh.chmod(0o755)
    data = place / "..data"
    before = data.resolve() if data.is_symlink() else None
    link = place / "..data.new"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    os.replace(link, data)  # noqa: PTH105 - atomic, and named as what it is
    for name in {path_inside(file.path).parts[0] for file in files}:
        if not (place / name).is_symlink():
            (place / name).symlink_to(Path("..data") / name)
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


def path_inside(path: str) -> PurePosixPath:
    """Give a path relative to its volume; raises PodRejectedError for one that leads out of it."""
    relative = PurePosixPath(path)
    if not path or relative.is_absolute() or ".." in relative.parts:
        raise PodRejectedError("InvalidVolumeMount", f"path {path!r} must be relative and must not contain '..'")
    return relative


class VolumeManager:
    """Prepares the volumes of one pod."""

    def __init__(
        self,
        pod_info: PodInfo,
        *,
        directory: Path,
        claims: Path,
        lookup: Lookup,
        rewrite: Callable[[str], str],
        tokens: ServiceAccountTokens | None = None,
    ) -> None:
        self._pod_info = pod_info
        self._pod = pod_info.pod
        self._namespace: str = pod_info.pod["metadata"]["namespace"]
        self._directory = directory
        self._claims = claims
        self._lookup = lookup
        self._rewrite = rewrite
        self._tokens = tokens
        self._renewable: dict[str, JsonObject] = {}
        self.refresh_at: datetime | None = None
        """When `refresh` is due; None if the pod has no tokens."""

    def mount_all(self) -> dict[str, Path]:
        """Prepare every volume of the pod and give their places by name. Safe to repeat."""
        mounted = {}
        for volume in self._pod["spec"].get("volumes") or ():
            try:
                mounted[volume["name"]] = self._mount(volume)
            except CreateContainerError as problem:
                raise CreateContainerError(problem.reason, problem.message, volume=volume["name"]) from problem
        return mounted

    def refresh(self, *, now: datetime) -> None:
        """Renew the tokens of the pod; when that fails the present ones stay, and it is due again soon."""
        self.refresh_at = None
        try:
            for volume in self._renewable.values():
                self._mount(volume)
        except (CreateContainerError, OSError) as problem:
            _log.warning("cannot renew the tokens of pod %s: %s", self._pod["metadata"]["name"], problem)
            self.refresh_at = now + _RENEWAL_PAUSE

    def _mount(self, volume: JsonObject) -> Path:
        name = volume["name"]
        place: Path = self._directory / name
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            return self._claim(claim["claimName"])
        if any(volume.get(kind) is not None for kind in ("configMap", "secret", "downwardAPI", "projected")):
            files = {path_inside(file.path): file for file in self._files(volume)}
            write_atomically(place, list(files.values()))
            if any("serviceAccountToken" in part for part in (volume.get("projected") or {}).get("sources") or ()):
                self._renewable[name] = volume
        elif volume.get("emptyDir") is not None or volume.keys() == {"name"}:
            place.mkdir(parents=True, exist_ok=True)
        else:
            kinds = ", ".join(sorted(volume.keys() - {"name"}))
            raise PodRejectedError(
                _UNSUPPORTED,
                f"volume {name!r} of type {kinds} is not supported by the embedded cluster; use emptyDir, configMap, "
                "secret, downwardAPI, projected or persistentVolumeClaim",
            )
        return place

    def _claim(self, name: str) -> Path:
        claim = self._lookup(PERSISTENT_VOLUME_CLAIMS, self._namespace, name)
        if claim is None:
            raise CreateContainerError(CREATING, f'persistentvolumeclaim "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            raise CreateContainerError(CREATING, f'persistentvolumeclaim "{name}" is being deleted')
        place = claim_directory(self._claims, claim)
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _files(self, volume: JsonObject) -> Iterator[VolumeFile]:
        if (source := volume.get("configMap")) is not None:
            yield from self._config_map(source, _mode(source))
        elif (source := volume.get("secret")) is not None:
            yield from self._secret({**source, "name": source.get("secretName")}, _mode(source))
        elif (source := volume.get("downwardAPI")) is not None:
            yield from self._downward(source, _mode(source))
        else:
            projected = volume["projected"]
            for part in projected.get("sources") or ():
                yield from self._projected(part, _mode(projected))

    def _projected(self, part: JsonObject, mode: int) -> Iterator[VolumeFile]:
        if (source := part.get("configMap")) is not None:
            yield from self._config_map(source, mode)
        elif (source := part.get("secret")) is not None:
            yield from self._secret(source, mode)
        elif (source := part.get("downwardAPI")) is not None:
            yield from self._downward(source, mode)
        elif (source := part.get("serviceAccountToken")) is not None and self._tokens is not None:
            yield self._token(self._tokens, source, mode)
        else:
            raise PodRejectedError(
                _UNSUPPORTED,
                f"projected source {', '.join(sorted(part)) or '<empty>'} is not supported by the embedded cluster; "
                "it projects configMap, secret, downwardAPI and serviceAccountToken",
            )

    def _token(self, tokens: ServiceAccountTokens, source: JsonObject, mode: int) -> VolumeFile:
        seconds = source.get("expirationSeconds") or DEFAULT_SECONDS
        try:
            issued = tokens.issue_for_pod(self._pod, audience=source.get("audience"), seconds=seconds)
        except StatusError as error:
            raise CreateContainerError(CREATING, f"failed to fetch token: {error.message}") from error
        due = issued.issued + (issued.expires - issued.issued) * _RENEWED_AFTER
        self.refresh_at = min(due, self.refresh_at or due)
        return VolumeFile(source.get("path") or "token", issued.token.encode(), mode)

    def _config_map(self, source: JsonObject, mode: int) -> Iterator[VolumeFile]:
        name = source.get("name") or ""
        found = self._lookup(CONFIGMAPS, self._namespace, name)
        if found is None and not source.get("optional"):
            raise CreateContainerError(CREATING, f'configmap "{name}" not found')
        found = found or {}
        contents = {key: self._rewrite(text).encode() for key, text in (found.get("data") or {}).items()}
        contents |= {key: base64.b64decode(data) for key, data in (found.get("binaryData") or {}).items()}
        yield from _selected(contents, source, mode=mode, kind="configmap")

    def _secret(self, source: JsonObject, mode: int) -> Iterator[VolumeFile]:
        name = source.get("name") or ""
        found = self._lookup(SECRETS, self._namespace, name)
        if found is None and not source.get("optional"):
            raise CreateContainerError(CREATING, f'secret "{name}" not found')
        contents = decoded(found) if found else {}
        for file in _selected(contents, source, mode=mode, kind="secret"):
            # All processes are of the user whose file it is. In a cluster it is root's, others read it as the group of
            # the pod, and ssh minds such rights in files of its own user alone.
            yield replace(file, mode=file.mode & 0o700)

    def _downward(self, source: JsonObject, mode: int) -> Iterator[VolumeFile]:
        for item in source.get("items") or ():
            try:
                if reference := item.get("fieldRef"):
                    text = field_value(str(reference.get("fieldPath", "")), self._pod_info)
                else:
                    reference = item.get("resourceFieldRef") or {}
                    text = resource_value(
                        reference, container_named(reference.get("containerName"), self._pod), self._pod_info
                    )
            except UnknownFieldError as error:
                raise PodRejectedError(_UNSUPPORTED, f"downward API file {item.get('path')!r}: {error}") from error
            yield VolumeFile(item["path"], text.encode(), item.get("mode") or mode)


def claim_directory(claims: Path, claim: JsonObject) -> Path:
    """Give the directory of a PersistentVolumeClaim."""
    namespace: str = claim["metadata"]["namespace"]
    name: str = claim["metadata"]["name"]
    return claims / namespace / name


def _mode(source: JsonObject) -> int:
    mode = source.get("defaultMode")
    return _DEFAULT_MODE if mode is None else int(mode)


def _selected(contents: dict[str, bytes], source: JsonObject, *, mode: int, kind: str) -> Iterator[VolumeFile]:
    """Apply `items`: without them all keys become files of their name."""
    items = source.get("items")
    if not items:
        items = [{"key": key, "path": key} for key in contents]
    for item in items:
        key = item["key"]
        if key in contents:
            yield VolumeFile(item["path"], contents[key], mode if item.get("mode") is None else int(item["mode"]))
        elif not source.get("optional"):
            raise CreateContainerError(CREATING, f"{kind} references non-existent {_KEYS_OF[kind]} key: {key}")


def provisioning_problem(claim: JsonObject) -> tuple[str, str] | None:
    """Return reason and message of the event about a claim that stays pending; None if it becomes a directory."""
    name = claim["spec"].get("storageClassName") or ""
    if name.endswith(RESERVED_DOMAIN):
        return "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found'
    return None
