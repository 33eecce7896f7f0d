"""Owner of all container processes: a child of the server that imports the standard library only and outlives nobody.

    server -- pipe --> supervisor -- fork --> one warden per container -- fork, exec --> the container's processes

Guarantees:
- No process survives the server: when the pipe to it closes, whatever the reason (SIGKILL included), all are killed.
- No process survives its container: when the first process of a container ends, the rest of its tree is killed, also
  what left the session or was daemonised (Linux; elsewhere, the process group).
- No process survives the supervisor: wardens hold a pipe that closes with it, and kill their containers.
- All output of a container is in its log file before its exit is reported.

The server writes one JSON object per line to standard input: `{"op": "start", "id", "argv", "env", "cwd", "log"}`,
`{"op": "terminate", "id"}` (SIGTERM to the process group) and `{"op": "kill", "id"}`. Reports come back on standard
output: `{"id", "event": "started", "pid", "at"}`, `{"id", "event": "exited", "code", "signal", "at"}` and
`{"id", "event": "unstartable", "error", "at"}`. A report is one short write, so that all wardens share the pipe.

This file is run by path and isolated from site-packages: it starts in a few milliseconds and forks cheaply.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

LONGEST_LINE = 16 * 1024
"""Longer lines are written in parts, as container runtimes do."""

_ERROR_LIMIT = 300  # a report must stay below PIPE_BUF, which is 512 bytes on macOS, to be written atomically
_LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL = signal.SIGUSR1  # what a warden understands as "kill your container now"
_HANDLED = (signal.SIGTERM, _KILL, signal.SIGCHLD)
_prctl = ctypes.CDLL(None, use_errno=True).prctl if _LINUX else None


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, so that they can be found and reaped."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int) -> None:
    """Ask the kernel for signal `number` when the parent process ends."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def report(identity: str, event: str, **fields: Any) -> None:
    """Tell the server; nobody listens any more when it is gone, and then its pipe ends us anyway."""
    line = json.dumps({"id": identity, "event": event, "at": time.time(), **fields}) + "\n"
    with contextlib.suppress(BrokenPipeError):
        os.write(1, line.encode())


class SignalPipe:
    """Signals as bytes that `select` can wait for."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in _HANDLED:
            signal.signal(number, _note)

    def drain(self) -> set[int]:
        """Give the signals that arrived since the last call."""
        with contextlib.suppress(BlockingIOError):
            return set(os.read(self.read_end, 4096))
        return set()


def _note(_number: int, _frame: object) -> None:
    """Let the interpreter write the signal's number to the wake-up pipe, which it does for handled signals only."""


class LogFile:
    """A container log: each line carries the time it was read and whether it is full (F) or a part of one (P)."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Append output; an unfinished last line waits for its end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        now = stamp()
        records: list[bytes] = []
        for line in lines:
            start = 0
            while len(line) - start > LONGEST_LINE:
                records += (now, b" P ", line[start : start + LONGEST_LINE], b"\n")
                start += LONGEST_LINE
            records += (now, b" F ", line[start:], b"\n")
        while len(self._rest) > LONGEST_LINE:
            records += (now, b" P ", self._rest[:LONGEST_LINE], b"\n")
            self._rest = self._rest[LONGEST_LINE:]
        self._write(b"".join(records))

    def finish(self) -> None:
        """Write what is left of an unfinished line and close the file."""
        if self._rest:
            self._write(stamp() + b" P " + self._rest + b"\n")
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        # A full disk loses output, as it does on a real node; it must not stop the container.
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._file, data) :]


def stamp() -> bytes:
    """Give the time as RFC 3339 text of fixed width in UTC, so that text order is time order."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return b"%s.%09dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode(), nanoseconds)


def children() -> list[int]:
    """List the processes whose parent is this one (Linux)."""
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", encoding="ascii") as listing:  # noqa: PTH123 - pathlib would double the start-up time
            return [int(pid) for pid in listing.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _parent(entry) == own]  # noqa: PTH208 - as above


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123 - as above
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Warden:
    """Runs one container: starts its first process, copies its output to the log, and cleans up behind it."""

    def __init__(self, command: dict[str, Any], *, life: int, signals: SignalPipe) -> None:
        self.identity: str = command["id"]
        self._command = command
        self._life = life
        self._signals = signals
        self._main = 0
        self._status: int | None = None
        self._stopping = False
        self._output = -1

    def run(self) -> None:
        """Run the container to its end and report it."""
        log = LogFile(self._command["log"])
        error = self._start()
        if error:
            report(self.identity, "unstartable", error=error[:_ERROR_LIMIT])
            return
        report(self.identity, "started", pid=self._main)
        self._attend(log)
        self._drain(log)
        log.finish()
        code = os.waitstatus_to_exitcode(self._status or 0)
        report(self.identity, "exited", code=128 - code if code < 0 else code, signal=max(-code, 0))

    def _start(self) -> str:
        """Fork and exec; the text says why that failed. The error pipe closes by itself when exec succeeds."""
        self._output, output = os.pipe()
        failure, failed = os.pipe()
        self._main = os.fork()
        if self._main == 0:
            self._become_container(output=output, failed=failed)
        os.close(output)
        os.close(failed)
        error = b""
        while part := os.read(failure, 4096):
            error += part
        os.close(failure)
        if error:
            os.waitpid(self._main, 0)
        return error.decode(errors="replace")

    def _become_container(self, *, output: int, failed: int) -> NoReturn:
        command = self._command
        try:
            os.setsid()
            die_with_parent(signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (*_HANDLED, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.umask(0o022)
            os.chdir(command["cwd"])
            os.execvpe(command["argv"][0], command["argv"], command["env"])  # noqa: S606 - what all this is for
        except BaseException as error:
            os.write(failed, _explain(error, command).encode(errors="replace")[: 4 * _ERROR_LIMIT])
        finally:
            os._exit(127)

    def _attend(self, log: LogFile) -> None:
        """Copy output and obey signals until the container is gone."""
        sources = [self._output, self._signals.read_end, self._life]
        while self._status is None or (self._stopping and self._reap()):
            ready, _, _ = select.select(sources, (), ())
            if self._output in ready:
                data = os.read(self._output, 65536)
                if data:
                    log.feed(data)
                else:  # closed by the container; its end is still to come
                    sources.remove(self._output)
            received = self._signals.drain() if self._signals.read_end in ready else set()
            if _KILL in received or self._life in ready:
                break
            if signal.SIGTERM in received:
                # From now on, the rest of the tree may finish its work after the first process has ended.
                self._stopping = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._main, signal.SIGTERM)
            if signal.SIGCHLD in received:
                self._reap()
        self._kill_tree()

    def _reap(self) -> bool:
        """Collect ended processes; say whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = status

    def _kill_tree(self) -> None:
        """Kill until nothing is left: the children of a killed process become ours and die in the next round."""
        if self._status is None:  # while it is not reaped, its number cannot mean another process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._main, signal.SIGKILL)
        while self._reap():
            for pid in children() if _LINUX else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def _drain(self, log: LogFile) -> None:
        """Read what is still in the pipe; whoever holds its other end by now has escaped and is not waited for."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output, 65536):
                log.feed(data)


def _explain(error: BaseException, command: dict[str, Any]) -> str:
    program = command["argv"][0]
    if isinstance(error, FileNotFoundError) and error.filename == command["cwd"]:
        return f"working directory {command['cwd']!r} does not exist"
    if isinstance(error, FileNotFoundError):
        where = "" if "/" in program else f" in PATH={command['env'].get('PATH', '')}"
        return f"executable {program!r} not found{where}"
    if isinstance(error, PermissionError):
        return f"executable {program!r} or working directory {command['cwd']!r} is not accessible: permission denied"
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"arguments and environment of {program!r} are too large for this system"
    return f"cannot start {program!r}: {error}"


class Supervisor:
    """Forks wardens at the server's command and notices when one is lost."""

    def __init__(self) -> None:
        adopt_orphans()
        self._signals = SignalPipe()
        self._life, self._life_end = os.pipe()
        self._wardens: dict[int, str] = {}
        self._pids: dict[str, int] = {}
        self._operations: dict[str, Callable[[dict[str, Any]], None]] = {
            "start": self._start,
            "terminate": lambda command: self._signal(command, signal.SIGTERM),
            "kill": lambda command: self._signal(command, _KILL),
        }

    def run(self) -> None:
        """Serve the server until its end of the pipe closes or we are told to end, then kill everything."""
        rest = b""
        while True:
            ready, _, _ = select.select([0, self._signals.read_end], (), ())
            if self._signals.read_end in ready and signal.SIGTERM in self._signals.drain():
                break
            self._reap()
            if 0 in ready:
                data = os.read(0, 1 << 20)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    command = json.loads(line)
                    self._operations[command["op"]](command)
        self._end()

    def _start(self, command: dict[str, Any]) -> None:
        # Signals that arrive before the warden has its handlers must wait for them, not end it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_warden(command, parent=parent)
        self._wardens[pid] = command["id"]
        self._pids[command["id"]] = pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def _become_warden(self, command: dict[str, Any], *, parent: int) -> NoReturn:
        code = 70
        try:
            os.close(0)
            os.close(self._life_end)
            os.close(self._signals.read_end)
            adopt_orphans()
            die_with_parent(_KILL)
            signals = SignalPipe()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            if os.getppid() == parent:  # otherwise the supervisor ended before it could be watched
                Warden(command, life=self._life, signals=signals).run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _signal(self, command: dict[str, Any], number: int) -> None:
        if pid := self._pids.get(command["id"]):
            os.kill(pid, number)

    def _reap(self) -> bool:
        """Collect ended processes, report lost wardens and kill what those left; say whether any process is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            identity = self._wardens.pop(pid, None)
            if identity is not None:
                del self._pids[identity]
            if identity is None or status != 0:
                # A process of a lost warden. Its own children became ours when it ended, not when the warden did:
                # hence a look at every such end, not only at the warden's.
                self._kill_orphans()
            if identity is not None and status != 0:
                report(identity, "exited", code=137, signal=int(signal.SIGKILL))

    def _kill_orphans(self) -> None:
        """Kill what lost wardens left behind: every child that is not a warden."""
        for pid in children() if _LINUX else ():
            if pid not in self._wardens:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _end(self) -> None:
        """Let the wardens kill their containers; those that do not manage are killed with what they leave."""
        for pid in self._wardens:
            os.kill(pid, _KILL)
        patience = time.monotonic() + 5
        while self._reap():
            if time.monotonic() > patience:
                for pid in self._wardens:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Supervisor().run()
