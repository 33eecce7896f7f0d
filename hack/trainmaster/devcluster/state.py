"""The state directory: everything that one embedded cluster keeps on disk, and who is using it.

Guarantees:
- At most one process runs a cluster on a directory. The kernel holds the lock for it and lets go when it dies, however
  it dies; a pid that was left behind is therefore never mistaken for a running cluster.
- Only its owner can read it: the directory has mode 0700, the token in it 0600.
- Whatever cannot be used is a `StateError`: one line that says what is wrong and what to do. Everything that keeps a
  cluster from starting, running or being found is a `ClusterError` of that kind.
- Only files that a cluster makes are ever deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

from trainmaster.devcluster.apiserver.errors import NO_SPACE
from trainmaster.devcluster.apiserver.storage import JournalError
from trainmaster.devcluster.certificates import write_private


class ClusterError(Exception):
    """A cluster cannot do what its user wants; one line says why, and what to do."""


class StateError(ClusterError):
    """The state directory cannot be used."""


class AlreadyRunning(StateError):
    """A cluster runs on this state directory."""


class PortInUse(ClusterError):
    """The server cannot have its port."""


class KubeconfigUnusable(ClusterError):
    """The kubeconfig cannot be written where it was wanted."""


class NetworkingUnavailable(ClusterError):
    """Pods cannot run in the chosen mode."""


class AuditLogUnusable(ClusterError):
    """The audit log cannot be written where it was wanted."""


class PartFailed(ClusterError):
    """A part ended by itself."""


FORMAT = 1
"""Version of the layout on disk; grows when an older version could not read what this one writes."""

HOME_VARIABLE = "TRAINMASTER_HOME"

# Somebody may look at the lock (`holder`) at the very moment at which we want it.
_LOCK_ATTEMPTS = 5
_LOCK_PAUSE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """The record of a cluster in `cluster.json`; true only as long as somebody holds the lock."""

    version: str
    pid: int
    port: int
    server: str
    kubeconfig: str
    parts: tuple[str, ...]
    networking: str = ""
    """How pods find each other, in words; empty in records of versions that did not have it."""

    gpus: str = ""
    """The GPUs of its node, in words; empty where there are none."""

    notes: tuple[str, ...] = ()
    """What its user should know about how it started."""

    format: int = FORMAT


class StateDirectory:
    """The paths of one state directory and the operations on it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.lock = self.path / "cluster.lock"
        self.gitignore = self.path / ".gitignore"
        self.record = self.path / "cluster.json"
        self.token = self.path / "token"
        self.certificates = self.path / "pki"
        self.journal = self.path / "journal"
        self.kubelet = self.path / "kubelet"
        self.kubeconfig = self.path / "kubeconfig"
        self.log = self.path / "cluster.log"
        self.manager_log = self.path / "manager.log"
        self.manager_config = self.path / "manager.yaml"
        self.history = self.path / "history.sqlite"

    def prepare(self) -> None:
        """Make the directory ready for a cluster."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            foreign = [entry.name for entry in self.path.iterdir() if not self._is_ours(entry)]
            if foreign and not self.lock.exists():
                raise StateError(
                    f"{self.path} is not empty and holds no cluster (found {min(foreign)}); "
                    "choose another directory with --state-dir"
                )
            self.path.chmod(0o700)
            self.lock.touch(mode=0o600)
            self.gitignore.write_text("*\n", encoding="ascii")  # it holds a token and often lies in a repository
        except FileExistsError as error:
            raise StateError(f"{self.path} is not a directory; choose another one with --state-dir") from error
        except OSError as error:
            raise StateError(
                f"cannot write to the state directory {self.path}: {error.strerror or error}; "
                f"{'free some space there' if error.errno in NO_SPACE else 'make it writable'} or choose another one "
                "with --state-dir"
            ) from error

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the one process that uses this directory; raises `AlreadyRunning` if another one is."""
        self.prepare()
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not _try_lock(descriptor):
                raise self.already_running()
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Turn errors of files of the cluster into a `StateError`: as a rule the disk is full."""
        try:
            yield
        except OSError as error:
            where = error.filename if isinstance(error.filename, str) else self.path
            remedy = "free some space there" if error.errno in NO_SPACE else "look at its permissions"
            raise StateError(
                f"cannot use {where}: {error.strerror or error}; {remedy}, and start the cluster again"
            ) from error

    def unusable_journal(self, error: JournalError) -> StateError:
        """Build the error for who wants to start a cluster with a journal that cannot be used."""
        purge = f"trainmaster cluster down --purge --state-dir {shlex.quote(str(self.path))}"
        return StateError(f"{error}; restore it from a backup, or delete objects, logs and volumes with `{purge}`")

    def holder(self) -> int | None:
        """Return the pid of the process that uses this directory, or None."""
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read {self.lock}: {error.strerror or error}; use it as its owner") from error
        try:
            # A shared lock: two that look at the same time do not take each other for a cluster.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _pid_in(descriptor)
        finally:
            os.close(descriptor)
        return None

    def already_running(self) -> AlreadyRunning:
        """Build the error for who wants to start a second cluster here."""
        return AlreadyRunning(
            f"already running (pid {self.holder() or 'unknown'}) on {self.path}; "
            "use `trainmaster cluster status` or `trainmaster cluster down`"
        )

    def read_record(self) -> ClusterRecord | None:
        """Return the record of the last cluster; None if there was none."""
        try:
            content = json.loads(self.record.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StateError(
                f"cannot read {self.record} ({error}); `trainmaster cluster down --purge` deletes the state"
            ) from error
        try:
            if content["format"] != FORMAT:
                raise StateError(
                    f"{self.path} was written by trainmaster {content.get('version')} (format {content['format']}), "
                    f"this version uses format {FORMAT}; use that version, or delete the state with "
                    "`trainmaster cluster down --purge`"
                )
            values = {
                field.name: content[field.name]
                for field in fields(ClusterRecord)
                if field.name in content or field.default is MISSING
            }
            return ClusterRecord(
                **{**values, "parts": tuple(content["parts"]), "notes": tuple(content.get("notes", ()))}
            )
        except (KeyError, TypeError) as error:
            raise StateError(
                f"{self.record} is damaged ({error!r}); `trainmaster cluster down --purge` deletes the state"
            ) from error

    def write_record(self, record: ClusterRecord) -> None:
        """Write the record of this cluster; that it names its pid means that it has started, whether well or not."""
        write_private(self.record, json.dumps(asdict(record), indent=2).encode() + b"\n")

    def ensure_token(self, wanted: str | None = None) -> str:
        """Return the token of the cluster after making or replacing it."""
        try:
            token = wanted or self.token.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            token = ""
        if " " in token or not token.isprintable():  # no client could send it
            token = ""
        token = token or secrets.token_urlsafe(32)
        write_private(self.token, token.encode())
        return token

    def purge(self) -> None:
        """Delete the state of a cluster that does not run, but nothing that a user may have put beside it."""
        with self.hold():
            for entry in self.path.iterdir():
                if entry == self.lock or not self._is_ours(entry):
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            self.lock.unlink()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def _is_ours(self, entry: Path) -> bool:
        own = [path.name for attribute, path in vars(self).items() if attribute != "path"]
        # With a suffix: rotated logs, the journal's lock, SQLite's, and drafts of files that are being replaced.
        return any(f"{entry.name.lstrip('.').replace('-', '.')}.".startswith(f"{name.lstrip('.')}.") for name in own)


def claim(what: str, holder: Path) -> int | Path:
    """Claim something that the clusters of this machine have in common, until this process ends.

    Returns:
        The open file that has the claim, or the state directory of the cluster that has it already.
    """
    path = Path(tempfile.gettempdir()) / f"trainmaster-{what}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except PermissionError:  # the file of somebody else
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return Path(path.read_text(encoding="utf-8"))
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, os.fsencode(holder.absolute()))
    return descriptor


def default_directory() -> Path:
    """Return the state directory that is meant when none is named."""
    return Path(os.environ.get(HOME_VARIABLE) or ".trainmaster")


def _try_lock(descriptor: int) -> bool:
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)
        else:
            return True
    return False


def _pid_in(descriptor: int) -> int:
    """Read the pid from the lock file; the holder writes it right after it has got the lock."""
    for _ in range(_LOCK_ATTEMPTS):
        if text := os.pread(descriptor, 32, 0).strip():
            return int(text)
        time.sleep(_LOCK_PAUSE)
    return 0
