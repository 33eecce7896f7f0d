"""A view of the file system and of names for one container, by Linux namespaces; standard library only.

`enter` turns the calling process, which must have one thread, into the first one of a sandbox:

- It has a mount namespace and a host name of its own. Without the right to make these it gets a user namespace first,
  in which it keeps its user and group; that needs no privilege where the system allows user namespaces at all.
- Its root is a fresh tmpfs that shows the top-level entries of the host, and the wanted files and directories at
  exactly the paths that were asked for. Where such a path does not exist on the host, the directory above it is a
  tmpfs as well: nothing is ever created on the host.
- `/dev` holds the usual devices, accelerators and `shm`.
- The kernel takes all mounts down with the last process of the sandbox. Nothing outside ever sees them.

Processes, users and the network are those of the host: this gives programs the paths and names that they expect; it
isolates nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import sys
from typing import Any, NoReturn

from trainmaster.devcluster.kubelet.runtime import address_isolation

_NEW_MOUNTS, _NEW_UTS, _NEW_USER = 0x00020000, 0x04000000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _UNBINDABLE, _PRIVATE = 1, 32, 4096, 16384, 1 << 17, 1 << 18
_DETACH = 2
# statvfs flags that a read-only remount has to repeat, since a user namespace may not drop them, as mount flags.
_KEPT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}

_DEVICES = frozenset(
    {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "hugepages", "log", "net"}
    | {"fd", "stdin", "stdout", "stderr", "fuse", "kvm", "dri", "kfd", "dxg", "infiniband", "vfio"}
)
_ACCELERATORS = ("nvidia", "accel", "davinci", "dxg")

_KERNEL = ("/proc/", "/sys/")

_ENDED = "the container has ended"

_libc = ctypes.CDLL(None, use_errno=True)


class SandboxError(Exception):
    """The sandbox cannot be made; the text says which step failed."""


def enter(sandbox: dict[str, Any]) -> None:
    """Enter a new sandbox.

    `sandbox` has `root` (an empty directory to build it in), `user_namespace` (whether one is needed), `hostname`, and
    `binds`: `[source, target, read_only]` each, absolute paths.
    """
    _unshare(user_namespace=sandbox["user_namespace"])
    _mount(None, "/", flags=_REC | _PRIVATE)
    root = os.path.realpath(sandbox["root"])
    _mount("tmpfs", root, kind="tmpfs", options="mode=0755")
    _mount(None, root, flags=_UNBINDABLE)  # else a bind of the directory above it would copy all that is mounted here
    _fill(root, "/")
    # Links of the host, such as /var/run, lead to the same places in the new root.
    binds = sorted((os.path.realpath(target), source, read_only) for source, target, read_only in sandbox["binds"])
    targets = [target for target, _, _ in binds]
    for directory in sorted({"/dev", *_tmpfs_parents(targets)}):
        _replace_by_tmpfs(root, directory)
    for target, source, _ in binds:
        _bind(source, root, target)
    for target, _, read_only in binds:
        if read_only:
            _protect(root + target)
    _become_root(root)
    name = os.fsencode(sandbox["hostname"])
    _check(_libc.sethostname(name, len(name)), "cannot set the host name")


def join(pid: int, *, parent: int, user_namespace: bool) -> None:
    """Enter the sandbox of a running process, which must be a child of `parent`; it may end at any time."""
    try:
        handle = os.pidfd_open(pid)
        stat = _read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        raise SandboxError(_ENDED) from None
    if int(stat.rpartition(")")[2].split()[1]) != parent:  # the number means another process by now
        raise SandboxError(_ENDED)
    flags = _NEW_MOUNTS | _NEW_UTS | (_NEW_USER if user_namespace else 0)
    result = _libc.setns(handle, flags)
    if result != 0 and ctypes.get_errno() == errno.ESRCH:  # its parent has not collected it yet
        raise SandboxError(_ENDED)
    _check(result, "cannot enter the namespaces of the container")
    os.close(handle)


def probe(directory: str) -> dict[str, Any]:
    """Try whether sandboxes work here, by making one; gives `user_namespace`, or the `error` that speaks against it.

    `own_addresses` tells whether containers can have addresses of their own as well.
    """
    problem = ""
    for user_namespace in (False, True) if os.geteuid() == 0 else (True,):
        problem = _attempt(directory, user_namespace=user_namespace)
        if not problem:
            return {"user_namespace": user_namespace, "own_addresses": address_isolation.works()}
    return {"error": problem}


def _attempt(directory: str, *, user_namespace: bool) -> str:
    """Make a sandbox in a child and look around in it; gives what is wrong, or nothing."""
    failure, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        _explore(directory, failed, user_namespace=user_namespace)
    os.close(failed)
    with os.fdopen(failure, "rb") as pipe:
        problem = pipe.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    return problem or ("" if status == 0 else f"the trial ended with status {status}")


def _explore(directory: str, failed: int, *, user_namespace: bool) -> NoReturn:
    try:
        hosts, new = f"{directory}/hosts", "/.trainmaster-probe/new/file"
        line = "127.0.0.1 probe.trainmaster\n"
        with open(hosts, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib would double the start-up time
            file.write(line)
        binds = [[hosts, "/etc/hosts", True], [hosts, new, False]]
        root = f"{directory}/root"
        os.makedirs(root, exist_ok=True)  # noqa: PTH103 - as above
        enter({"root": root, "user_namespace": user_namespace, "hostname": "probe", "binds": binds})
        if not line == _read("/etc/hosts") == _read(new) or os.uname().nodename != "probe":
            os.write(failed, b"a private /etc/hosts, root or host name was made, but is not seen")
    except BaseException as error:
        os.write(failed, str(error).encode())
    finally:
        os._exit(0)


def _unshare(*, user_namespace: bool) -> None:
    user, group = os.geteuid(), os.getegid()
    flags = _NEW_MOUNTS | _NEW_UTS | (_NEW_USER if user_namespace else 0)
    _check(_libc.unshare(flags), f"cannot create a {'user' if user_namespace else 'mount'} namespace")
    if user_namespace:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            try:
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
                    file.write(text)
            except OSError as error:
                raise SandboxError(f"cannot write {name} of a user namespace: {error.strerror}") from error


def _fill(root: str, directory: str) -> None:
    """Show the entries of a directory of the host in the empty one that stands for it."""
    place = root + directory.rstrip("/")
    with os.scandir(directory) as entries:
        for entry in entries:
            if directory == "/dev" and entry.name not in _DEVICES and not entry.name.startswith(_ACCELERATORS):
                continue
            target = f"{place}/{entry.name}"
            # What cannot be shown, a dead network file system for instance, stays an empty directory or file.
            with contextlib.suppress(OSError, SandboxError):
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), target)  # noqa: PTH115, PTH211 - as above
                else:
                    _make_target(target, directory=entry.is_dir())
                    _mount(entry.path, target, flags=_BIND | _REC)


def _tmpfs_parents(targets: list[str]) -> set[str]:
    """Give the directories of the host in which a mount point has to be made, other than the root itself."""
    parents = set()
    for target in targets:
        above = os.path.dirname(target)  # noqa: PTH120 - as above
        if os.path.lexists(target) or any(target.startswith(f"{other}/") for other in targets):
            continue  # it is there, or its mount point is made inside another volume
        while not os.path.isdir(above):  # noqa: PTH112 - as above
            above = os.path.dirname(above)  # noqa: PTH120 - as above
        if f"{above}/".startswith(_KERNEL):
            raise SandboxError(f"cannot mount at {target}: {above} shows the kernel and has no room for more")
        parents.add(above)
    return parents - {"/"}


def _replace_by_tmpfs(root: str, directory: str) -> None:
    """Replace a directory by a tmpfs with the same entries."""
    _mount("tmpfs", root + directory, kind="tmpfs", options="mode=0755")
    try:
        _fill(root, directory)
    except OSError as error:
        raise SandboxError(f"cannot mount below {directory}, which cannot be read: {error.strerror}") from error


def _bind(source: str, root: str, target: str) -> None:
    place = root + target
    if not os.path.realpath(place).startswith(f"{root}/"):
        raise SandboxError(f"mount path {target!r} leads out of its volume by a symbolic link")
    try:
        if not os.path.lexists(place):
            _make_target(place, directory=os.path.isdir(source))  # noqa: PTH112 - as above
    except OSError as error:
        raise SandboxError(f"cannot make the mount point {target!r}: {error.strerror}") from error
    _mount(source, place, flags=_BIND | _REC, shown=target)


def _make_target(place: str, *, directory: bool) -> None:
    os.makedirs(place if directory else os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120 - as above
    if not directory:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT, 0o644))


def _protect(place: str) -> None:
    present = os.statvfs(place).f_flag
    kept = sum(mount_flag for flag, mount_flag in _KEPT_FLAGS.items() if present & flag)
    _mount(None, place, flags=_BIND | _REMOUNT | _RDONLY | kept)


def _become_root(root: str) -> None:
    """Make the new tree the root. Stacking the old one on top of it and taking that off needs no place to put it."""
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), "cannot change the root")
    _check(_libc.umount2(b".", _DETACH), "cannot detach the old root")
    _mount(None, "/", flags=_PRIVATE)  # programs may want to bind it in sandboxes of their own
    os.chdir("/")


def _mount(
    source: str | None,
    target: str,
    *,
    kind: str | None = None,
    flags: int = 0,
    options: str | None = None,
    shown: str = "",
) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _check(result, f"cannot mount {source or kind or 'with new flags'} at {shown or target}")


def _check(result: int, problem: str) -> None:
    if result != 0:
        raise SandboxError(f"{problem}: {os.strerror(ctypes.get_errno())}")


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
        return file.read()


def main() -> None:
    """Probe, with the directory given on the command line, and print the result."""
    print(json.dumps(probe(sys.argv[1])))
