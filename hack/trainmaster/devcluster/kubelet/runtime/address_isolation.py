"""Gives the processes of a pod an address of their own: what listens on all interfaces gets the pod's, on that alone.

Pods share the network of the host, so two replicas of one program would fight for its port. Here the kernel asks before
a process of the pod binds a socket (a seccomp filter with user notification, which needs no rights). A TCP socket that
is bound to `0.0.0.0` with a port is bound to the pod's address instead; all else stays as the process wants it. So that
it is at `localhost` for the pod itself, the kernel asks before a process connects, too: where the pod's address has a
listener, that is what 127.0.0.1 leads to. Sockets of IPv6 do not exist in such a pod, as in a cluster that has IPv4
only: programs then listen on IPv4.

Linux 5.6 and later, on the machines in `_MACHINES`; standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

_SET_NO_NEW_PRIVILEGES, _SET_FILTER, _NEW_LISTENER = 38, 1, 1 << 3
_ALLOW, _NOTIFY, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 32  # offsets in struct seccomp_data
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1

_IPV4, _IPV6, _SOCKET_ADDRESS_LENGTH = 2, 10, 16


class _Machine(NamedTuple):
    audit_architecture: int
    socket: int
    bind: int
    connect: int
    seccomp: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, socket=41, bind=49, connect=42, seccomp=317),
    "aarch64": _Machine(0xC00000B7, socket=198, bind=200, connect=203, seccomp=277),
}
"""Numbers of system calls."""

_PIDFD_GETFD = 438  # the same on all machines
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_LISTENS = "0A"  # in /proc/net/tcp
_LOCALHOST = bytes((127, 0, 0, 1))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def is_known_machine() -> bool:
    """Tell whether the numbers of the system calls are known here."""
    return sys.platform.startswith("linux") and os.uname().machine in _MACHINES


def _filter(machine: _Machine) -> bytes:
    steps = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 9, machine.audit_architecture),  # programs for another machine are left alone
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 6, 0, machine.bind),
        (_EQUAL, 1, 0, machine.connect),
        (_EQUAL, 2, 5, machine.socket),
        (_LOAD, 0, 0, _THIRD_ARGUMENT),
        (_EQUAL, 2, 3, _SOCKET_ADDRESS_LENGTH),  # addresses of other families have other lengths
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 2, 1, _IPV6),
        (_RETURN, 0, 0, _NOTIFY),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def install() -> int:
    """Filter this process and all that it starts; returns the listener, which another process has to serve.

    Raises:
        OSError: This kernel, or a filter that is there already, does not allow it.
    """
    machine, libc = _MACHINES[os.uname().machine], ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    code = _filter(machine)
    instructions = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(instructions))
    listener: int = libc.syscall(machine.seccomp, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot filter system calls: {os.strerror(number)}")
    return listener


def serve(listener: int, address: str) -> None:
    """Answer one question of the kernel; to be called when the listener can be read from."""
    import fcntl  # noqa: PLC0415 - most shims need none of this

    received = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, received)
    except OSError:  # the process that asked has ended
        return
    identity, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(received)
    if call == _MACHINES[os.uname().machine].bind:
        _answer(listener, identity, lambda: _bind(thread, arguments, address))
        return
    port = _local_port(thread, arguments)
    if not port or not _is_listening(address, port):
        _answer(listener, identity, lambda: False)
        return
    import threading  # noqa: PLC0415 - as above

    # Whoever connects may have to wait, and nobody else shall wait for that.
    connect = functools.partial(_connect, thread, arguments[0], (address, port))
    threading.Thread(target=_answer, args=(listener, identity, connect), daemon=True).start()


def _answer(listener: int, identity: int, act: Callable[[], bool]) -> None:
    """Tell the kernel what came of a call that was made for the process; False: the process shall make it itself."""
    import fcntl  # noqa: PLC0415 - as above

    number, flags = 0, _CONTINUE
    try:
        if act():
            flags = 0
    except OSError as error:
        number, flags = error.errno or errno.EINVAL, 0
    with contextlib.suppress(OSError):  # as above
        fcntl.ioctl(listener, _SEND, _RESPONSE.pack(identity, 0, -number, flags))


def _socket_address(thread: int, arguments: list[int]) -> tuple[int, bytes]:
    """Read port and address that a process passes to a call; port 0 stands for those of no interest."""
    place, length = arguments[1:3]
    if length < _SOCKET_ADDRESS_LENGTH:
        return 0, b""
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - pathlib would double the start-up time
        memory.seek(place)
        wanted = memory.read(_SOCKET_ADDRESS_LENGTH)
    (family,), (port,) = struct.unpack_from("=H", wanted), struct.unpack_from("!H", wanted, 2)
    return (port, wanted[4:8]) if family == _IPV4 else (0, b"")


def _local_port(thread: int, arguments: list[int]) -> int:
    """Return the port of localhost that a process connects to; 0 if it wants to go elsewhere."""
    try:
        port, wanted = _socket_address(thread, arguments)
    except OSError:
        return 0
    return port if wanted == _LOCALHOST else 0


def _is_listening(address: str, port: int) -> bool:
    """Tell whether somebody listens there."""
    import socket  # noqa: PLC0415 - as above

    place = f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"
    try:
        with open("/proc/net/tcp", encoding="ascii") as sockets:  # noqa: PTH123 - as above
            return any(place in line and line.split()[1:4:2] == [place, _LISTENS] for line in sockets)
    except OSError:
        return False


def _bind(thread: int, arguments: list[int], address: str) -> bool:
    """Bind the socket of a process to the pod's address if it wants all; tells whether that was done."""
    port, wanted = _socket_address(thread, arguments)
    socket = _socket_of(thread, arguments[0]) if port and wanted == bytes(4) else None
    if socket is None:
        return False
    with socket:
        # A signal may have taken the answer to the same question away, and the process has asked again.
        if socket.getsockname() != (address, port):
            socket.bind((address, port))
    return True


def _connect(thread: int, descriptor: int, place: tuple[str, int]) -> bool:
    """Connect the TCP socket of a process; tells whether it is one."""
    socket = _socket_of(thread, descriptor)
    if socket is None:
        return False
    with socket:
        try:
            socket.connect(place)
        except OSError as error:
            if error.errno != errno.EISCONN or socket.getpeername() != place:  # as in `_bind`
                raise
    return True


def _socket_of(thread: int, descriptor: int) -> Any:
    """Return the TCP socket of a process as one of ours; None if it is no such socket."""
    import socket  # noqa: PLC0415 - as above

    handle = os.pidfd_open(_process_of(thread))
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        ours: int = libc.syscall(_PIDFD_GETFD, handle, descriptor, 0)
    finally:
        os.close(handle)
    if ours < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    found = socket.socket(fileno=ours)
    if found.family == socket.AF_INET and found.type == socket.SOCK_STREAM:
        return found
    found.close()
    return None


def _process_of(thread: int) -> int:
    with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as status:  # noqa: PTH123 - as above
        for line in status:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return thread


def works() -> bool:
    """Try it, with a child process that binds a socket."""
    if not is_known_machine():
        return False
    import socket  # noqa: PLC0415 - as above

    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            _try(theirs, port)
        theirs.close()
        try:
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            if descriptors:
                _serve_until_end(descriptors[0], ours)
        finally:
            _, status = os.waitpid(pid, 0)
            ours.close()
    return status == 0


_TRIED = "127.16.0.1"


def _try(pipe: Any, port: int) -> None:
    import socket  # noqa: PLC0415 - as above

    try:
        socket.send_fds(pipe, [b"."], [install()])
        with socket.socket() as tried:
            tried.bind(("0.0.0.0", port))  # noqa: S104 - that this does not happen is what is tried
            os._exit(0 if tried.getsockname() == (_TRIED, port) else 1)
    except BaseException:
        os._exit(1)


def _serve_until_end(listener: int, pipe: Any) -> None:
    import select  # noqa: PLC0415 - as above

    while True:
        ready, _, _ = select.select([listener, pipe], (), (), 5.0)
        if listener not in ready:
            break
        serve(listener, _TRIED)
        if pipe in ready:
            break
    os.close(listener)
