"""The directories of the kubelet: its root directory, which lies in the state directory of the cluster.

<root>/                         0700: Secrets of pods are below it
  ports.json                    local ports by job
  bin/                          programs that pods find before those of the host
  python/scripts/               programs of the Python environment of the cluster, as pods run them
  python/pip-<version>-.../     a pip for pods, if that environment has none
  hosts/<namespace>.<subdomain> the names of the pods of a subdomain, as their /etc/hosts
  claims/<namespace>/<name>     PersistentVolumeClaims
  pods/<uid>/volumes/<name>     volumes that live as long as the pod
  pods/<uid>/<container>/       home, work, root (working directories that no volume covers), termination-log, view
                                (empty: where the container's own root is put together), python-<attempt> (see
                                `virtual_environment`)
  pods/<uid>/logs/<container>/  one log file per attempt: 0.log, 1.log, ..., 0.log.1 with what came before 0.log, and
                                0.log.dropped with the number of bytes that came before both
  former/                       logs of deleted pods, see `former_pods`
/tmp/trainmaster-<hash>/<uid>   TMPDIR of pods: a short path, since names of Unix sockets have to fit into 104 bytes

Anybody can write to /tmp. What is there under that name and is not a directory of our own is left alone, and another
name is taken, which nobody could know before.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainmaster.devcluster.kubelet.runtime import name_lookup
from trainmaster.devcluster.kubelet.runtime.log_writer import DROPPED, ROTATED

_log = logging.getLogger(__name__)

KEPT_LOGS = 512 * 2**20
"""Bytes of the logs of all attempts of a container, and of those of all deleted pods of a job."""

_PROGRAMS = "bin"
_PYTHON = "python"
_ENVIRONMENT = "python-"


@dataclass(frozen=True, slots=True)
class PodFiles:
    """The directories of one pod."""

    root: Path
    tmp: Path

    @property
    def programs(self) -> Path:
        """The directory of the programs that all pods find before those of the host."""
        return self.root.parents[1] / _PROGRAMS

    @property
    def python(self) -> Path:
        """The directory of what the Python environments of all containers share."""
        return self.root.parents[1] / _PYTHON

    @property
    def volumes(self) -> Path:
        """The directory of the volumes."""
        return self.root / "volumes"

    def container(self, name: str) -> Path:
        """The directory of a container."""
        # Container names are DNS labels; the prefix keeps them apart from `volumes` and `logs`.
        return self.root / f"container-{name}"

    def virtual_environment(self, container: str, attempt: int) -> Path:
        """The Python environment of an attempt to run a container."""
        return self.container(container) / f"{_ENVIRONMENT}{attempt}"

    def drop_virtual_environments(self, container: str = "*", *, before: int | None = None) -> None:
        """Remove the Python environments of attempts that came before one; by default all, of all containers."""
        for path in self.root.glob(f"{self.container(container).name}/{_ENVIRONMENT}*"):
            attempt = path.name.removeprefix(_ENVIRONMENT)
            if attempt.isdecimal() and (before is None or int(attempt) < before):
                shutil.rmtree(path, onerror=_make_writable_and_retry)

    def log(self, container: str, attempt: int) -> Path:
        """The log file of an attempt to run a container."""
        return self.root / "logs" / container / f"{attempt}.log"

    def termination_message(self, container: str) -> Path:
        """The file with the termination message of a container."""
        return self.container(container) / "termination-log"

    def dropped_bytes(self) -> dict[str, dict[str, int]]:
        """How many bytes the beginning of each log lacks, by container and attempt."""
        with contextlib.suppress(FileNotFoundError):
            names = [path.name for path in (self.root / "logs").iterdir()]
            return {name: {str(attempt): _dropped(path) for attempt, path in self.logs(name)} for name in names}
        return {}

    def logs(self, container: str) -> list[tuple[int, Path]]:
        """The log files that exist, by attempt."""
        found: list[Path] = []
        with contextlib.suppress(FileNotFoundError):  # the pod has left nothing, or is removed at this moment
            found.extend((self.root / "logs" / container).iterdir())
        return sorted((int(path.stem), path) for path in found if path.suffix == ".log" and path.stem.isdecimal())


def rotated(log: Path) -> Path:
    """Give the file that holds what came before the present content of a log."""
    return log.with_name(log.name + ROTATED)


def remove_log(log: Path) -> None:
    """Remove a log and what belongs to it."""
    for path in (log, rotated(log), log.with_name(log.name + DROPPED)):
        path.unlink(missing_ok=True)


def drop_oldest_logs(directory: Path, *, limit: int = KEPT_LOGS) -> None:
    """Remove logs below a directory, those that ended first, until the others take no more than so many bytes."""
    found = []
    for log in directory.rglob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # removed at this moment
            size = log.stat().st_size + (rotated(log).stat().st_size if rotated(log).exists() else 0)
            found.append((log.stat().st_mtime_ns, size, log))
    total = sum(size for _, size, _ in found)
    for _, size, log in sorted(found):
        if total <= limit:
            return
        total -= size
        remove_log(log)


def _dropped(log: Path) -> int:
    try:
        return int(log.with_name(log.name + DROPPED).read_bytes() or 0)
    except FileNotFoundError:
        return 0


class RootDirectory:
    """The root directory of the kubelet, with a private directory for temporary files of pods beside it."""

    def __init__(self, root: Path, *, tmp: Path = Path("/tmp")) -> None:  # noqa: S108 - checked for its owner below
        self.root = root
        self._pods = root / "pods"
        self.claims = root / "claims"
        self.former = root / "former"
        self.hosts = root / "hosts"
        self.ports = root / "ports.json"
        self.python = root / _PYTHON
        digest = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()
        self._tmp = tmp / f"trainmaster-{digest[:8]}"

    def prepare(self) -> None:
        """Create what is missing and make sure that nobody else can look inside."""
        for directory in (self.root, self._pods, self.former, self.claims, self.hosts):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        self._provide_programs()
        with contextlib.suppress(FileExistsError):
            self._tmp.mkdir(mode=0o700)
        found = self._tmp.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            # Nobody else can put anything in its place: /tmp lets everyone remove only what is their own.
            self._tmp.chmod(0o700)
            return
        fresh = Path(tempfile.mkdtemp(prefix=f"{self._tmp.name}-", dir=self._tmp.parent))
        _log.warning("%s belongs to somebody else; temporary files of pods are in %s", self._tmp, fresh)
        self._tmp = fresh

    def _provide_programs(self) -> None:
        """Write those that images have and this host has not, or not as pods need them."""
        directory = self.root / _PROGRAMS
        directory.mkdir(mode=0o700, exist_ok=True)
        for name in ("nslookup",) if shutil.which("getent") else ("nslookup", "getent"):
            command = shlex.join([sys.executable, "-I", "-S", name_lookup.__file__, name])
            draft = directory / f".{name}"
            draft.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            draft.chmod(0o700)
            draft.replace(directory / name)

    def remove_temporary(self) -> None:
        """Remove the temporary files of all pods; their processes have ended."""
        shutil.rmtree(self._tmp, onerror=_make_writable_and_retry)

    def pod(self, uid: str) -> PodFiles:
        """Give the directories of a pod; they need not exist."""
        return PodFiles(self._pods / uid, self._tmp / uid.replace("-", "")[:12])

    def remove_pod(self, uid: str) -> None:
        """Remove everything that a pod left on disk, its Secrets and logs included."""
        files = self.pod(uid)
        shutil.rmtree(files.root, onerror=_make_writable_and_retry)
        shutil.rmtree(files.tmp, onerror=_make_writable_and_retry)

    def remove_former(self, directory: Path) -> None:
        """Remove what is kept of the deleted pods of a job."""
        shutil.rmtree(directory, onerror=_make_writable_and_retry)

    def remove_all_but(self, uids: Iterable[str]) -> None:
        """Remove what pods left that were deleted while nobody watched."""
        for gone in {entry.name for entry in self._pods.iterdir()} - set(uids):
            self.remove_pod(gone)


def _make_writable_and_retry(_function: object, path: str, _error: object) -> None:
    """Get past directories that a program made read-only; what cannot be removed even then is left.

    Which function failed does not count: a directory may be closed to reading, or filled again since it was read.
    """
    with contextlib.suppress(OSError):  # gone by now, or somebody else's
        failed = Path(path)
        failed.parent.chmod(0o700)
        mode = failed.lstat().st_mode
        if not stat.S_ISDIR(mode):
            failed.unlink()
        elif mode & stat.S_IRWXU == stat.S_IRWXU:
            failed.rmdir()
        else:
            failed.chmod(0o700)
            shutil.rmtree(failed, onerror=_make_writable_and_retry)
