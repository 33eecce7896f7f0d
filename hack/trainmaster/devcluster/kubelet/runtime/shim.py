"""The shim of one container, or of one program that is executed in a container; standard library only.

As containerd's, it starts the first process, copies the output to the log, and cleans up behind it. See `supervisor`
for the picture.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import time
from typing import Any, NoReturn

from trainmaster.devcluster.kubelet.runtime import address_isolation, sandbox
from trainmaster.devcluster.kubelet.runtime.log_writer import Excerpt, LogFile
from trainmaster.devcluster.kubelet.runtime.memory import MemoryLimit
from trainmaster.devcluster.kubelet.runtime.processes import (
    HANDLED,
    KILL,
    LINUX,
    SignalPipe,
    children,
    die_with_parent,
    reap,
    report,
)

ERROR_LIMIT = 300
"""A report must stay below PIPE_BUF, which is 512 bytes on macOS, to be written atomically."""

_SHOWN_LIMIT = 100
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class Shim:
    """Runs one container or, with a `target`, a program beside the processes of one."""

    def __init__(self, command: dict[str, Any], *, lifeline: int, signals: SignalPipe) -> None:
        self.identity: str = command["id"]
        self._excerpt = Excerpt(ERROR_LIMIT) if "target" in command else None
        self._command = command
        self._streams: list[str] | None = command.get("streams")
        self._lifeline = lifeline
        self._signals = signals
        self._main = 0
        self._status: int | None = None
        self._stopping = False
        self._output = -1
        self._memory = MemoryLimit(command.get("memory_limit") or 0)
        self._out_of_memory = False
        self._address: str | None = command.get("address")
        self._binds = -1
        """Where the kernel asks how to bind sockets, if the container has an address of its own."""

    def run(self) -> None:
        """Run the container to its end and report it."""
        log = self._excerpt or LogFile(self._command["log"], limit=self._command.get("log_limit", 0))
        error = self._start()
        if error:
            report(self.identity, "unstartable", error=_shortened(error))
            return
        if self._excerpt is None or self._streams:
            report(self.identity, "started", pid=self._main)
        self._supervise(log)
        self._drain(log)
        log.finish()
        code = os.waitstatus_to_exitcode(self._status or 0)
        told: dict[str, Any] = {} if self._excerpt is None else {"output": _shortened(self._excerpt.text)}
        if self._out_of_memory:
            told["oom_killed"] = True
        report(self.identity, "exited", code=128 - code if code < 0 else code, signal=max(-code, 0), **told)

    def _start(self) -> str:
        """Fork and exec; the text says why that failed. The error pipe closes by itself when exec succeeds."""
        self._output, output = os.pipe()
        failure, failed = os.pipe()
        ours, theirs = _socket_pair() if self._address is not None else (None, None)
        self._main = os.fork()
        if self._main == 0:
            self._become_container(output=output, failed=failed, listener_to=theirs)
        os.close(output)
        os.close(failed)
        if ours is not None and theirs is not None:
            theirs.close()
            self._binds = _received(ours)
        error = b""
        while part := os.read(failure, 4096):
            error += part
        os.close(failure)
        if error:
            os.waitpid(self._main, 0)
        return error.decode(errors="replace")

    def _become_container(self, *, output: int, failed: int, listener_to: Any) -> NoReturn:
        command = self._command
        try:
            os.setsid()
            die_with_parent(signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (*HANDLED, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            self._open_streams(output)
            os.umask(0o022)
            self._enter_sandbox()
            os.chdir(command["cwd"])
            if listener_to is not None:
                _send(listener_to, address_isolation.install())
            os.execvpe(command["argv"][0], command["argv"], command["env"])  # noqa: S606 - what all this is for
        except BaseException as error:
            os.write(failed, _explain(error, command).encode(errors="replace"))
        finally:
            os._exit(127)

    def _open_streams(self, output: int) -> None:
        """Open the standard streams; a terminal becomes that of this process, which leads a session."""
        if self._streams is None:
            opened = [os.open(os.devnull, os.O_RDONLY), output, output]
        elif len(set(self._streams)) == 1:
            opened = [os.open(each, os.O_RDWR) for each in self._streams]
        else:
            flags = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
            opened = [os.open(each, flag) for each, flag in zip(self._streams, flags, strict=True)]
        for number, descriptor in enumerate(opened):
            os.dup2(descriptor, number)

    def _enter_sandbox(self) -> None:
        """Make the sandbox of a container, or enter that of a running one, if there is one."""
        settings = self._command.get("sandbox")
        if settings is None:
            return
        if self._excerpt is None:
            sandbox.enter(settings)
        else:
            target, shim = self._command["pid"], self._command["shim"]
            sandbox.join(target, parent=shim, user_namespace=settings["user_namespace"])
        die_with_parent(signal.SIGKILL)  # a change of credentials may have taken that back

    def _supervise(self, log: LogFile | Excerpt) -> None:
        """Copy output and obey signals until the container is gone."""
        sources = [self._output, self._signals.read_end, self._lifeline]
        if self._binds >= 0:
            sources.append(self._binds)
        while self._status is None or (self._stopping and reap(self._on_exit)):
            ready, _, _ = select.select(sources, (), (), self._memory.interval)
            if self._output in ready:
                data = os.read(self._output, 65536)
                if data:
                    log.feed(data)
                else:  # closed by the container; its end is still to come
                    sources.remove(self._output)
            if self._binds in ready:
                self._serve_bind(sources)
            received = self._signals.drain() if self._signals.read_end in ready else set()
            if KILL in received or self._lifeline in ready:
                break
            if signal.SIGTERM in received:
                # From now on, the rest of the tree may finish its work after the first process has ended.
                self._stopping = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._main, signal.SIGTERM)
            if signal.SIGCHLD in received:
                reap(self._on_exit)
            if self._memory.is_exceeded():
                self._out_of_memory = True
                break
        self._kill_tree()

    def _serve_bind(self, sources: list[int]) -> None:
        """Bind a socket of the container to its address; when no process is left that could ask, stop listening."""
        ended = select.poll()
        ended.register(self._binds, select.POLLIN)
        if any(event & select.POLLHUP for _, event in ended.poll(0)):
            sources.remove(self._binds)
        else:
            address_isolation.serve(self._binds, self._address or "")

    def _on_exit(self, pid: int, status: int) -> None:
        if pid == self._main:
            self._status = status

    def _kill_tree(self) -> None:
        """Kill until nothing is left: the children of a killed process become ours and die in the next round."""
        if self._status is None:  # while it is not reaped, its number cannot mean another process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._main, signal.SIGKILL)
        while reap(self._on_exit):
            for pid in children() if LINUX else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _drain(self, log: LogFile | Excerpt) -> None:
        """Read what is still in the pipe; whoever holds its other end by now has escaped and is not waited for."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output, 65536):
                log.feed(data)


def _socket_pair() -> tuple[Any, Any]:
    import socket  # noqa: PLC0415 - most shims need none

    return socket.socketpair()


def _send(pipe: Any, descriptor: int) -> None:
    import socket  # noqa: PLC0415 - as above

    socket.send_fds(pipe, [b"."], [descriptor])


def _received(pipe: Any) -> int:
    """Return the descriptor that came through a pipe; -1 if the other side ended before it had one."""
    import socket  # noqa: PLC0415 - as above

    _, descriptors, _, _ = socket.recv_fds(pipe, 1, 1)
    pipe.close()
    return descriptors[0] if descriptors else -1


def _explain(error: BaseException, command: dict[str, Any]) -> str:
    program = command["argv"][0]
    if isinstance(error, FileNotFoundError) and error.filename == command["cwd"]:
        return f"working directory {command['cwd']!r} does not exist"
    if isinstance(error, OSError) and error.errno in _NOT_THERE:
        problem = "no such file or directory" if "/" in program else "executable file not found in $PATH"
        return f"exec: {_quoted(program)}: {problem}"
    if isinstance(error, PermissionError):
        return f"exec: {_quoted(program)}, in working directory {command['cwd']!r}: permission denied"
    if isinstance(error, sandbox.SandboxError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"arguments and environment of {_quoted(program)} are too large for this system"
    return f"cannot start {_quoted(program)}: {error}"


def _quoted(program: str) -> str:
    """Quote a program; it may be a whole script that somebody forgot to give to a shell."""
    return json.dumps(program if len(program) <= _SHOWN_LIMIT else f"{program[:_SHOWN_LIMIT]}...", ensure_ascii=False)


def _shortened(text: str) -> str:
    """Cut a text to what a report has room for."""
    text = text[:ERROR_LIMIT]
    while len(json.dumps(text)) > ERROR_LIMIT + 2:
        text = text[: len(text) * 9 // 10]
    return text
