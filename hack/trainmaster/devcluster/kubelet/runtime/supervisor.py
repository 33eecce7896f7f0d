"""Owner of all container processes: a child of the server that imports the standard library only and outlives nobody.

    server -- pipe --> supervisor -- fork --> one shim per container -- fork, exec --> the container's processes

Guarantees:
- No process survives the server: when the pipe to it closes, whatever the reason (SIGKILL included), all are killed.
- No process survives its container: when the first process of a container ends, the rest of its tree is killed, also
  what left the session or was daemonised (Linux; elsewhere, the process group).
- No process survives the supervisor: shims hold a pipe that closes with it, and kill their containers.
- All output of a container is in its log file before its exit is reported.

The server writes one JSON object per line to standard input: `{"op": "start", "id", "argv", "env", "cwd", "log",
"log_limit", "memory_limit", "sandbox", "address"}`, where `memory_limit` is in bytes, `sandbox` is null or what
`sandbox.enter` takes, and `address` is null or what takes the place of all interfaces (`address_isolation`);
`{"op": "execute", "id", "target", "pid", "argv", "env", "cwd", "sandbox", "address", "streams"}` to run a program in
the container whose id is `target` and whose first process is `pid`, with `streams` as the paths of its standard input,
output and error, if it has some; `{"op": "terminate", "id"}` (SIGTERM to the process group) and
`{"op": "kill", "id"}`. Reports come back on standard output: `{"id", "event": "started", "pid", "at"}` (of containers
and of programs with streams), `{"id", "event": "exited", "code", "signal", "at"}` with `oom_killed` of a container that
exceeded its `memory_limit`, and with the beginning of the `output` of what was executed, and `{"id", "event":
"unstartable", "error", "at"}`. A report is one short write, so that all shims share the pipe.

It runs isolated from site-packages (`command_line`): it starts in a few milliseconds and forks cheaply.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from trainmaster.devcluster.kubelet.runtime.processes import (
    HANDLED,
    KILL,
    LINUX,
    SignalPipe,
    adopt_orphans,
    children,
    die_with_parent,
    reap,
    report,
)
from trainmaster.devcluster.kubelet.runtime.shim import Shim


class Supervisor:
    """Forks shims at the server's command and notices when one is lost."""

    def __init__(self) -> None:
        adopt_orphans()
        self._signals = SignalPipe()
        self._lifeline, self._lifeline_end = os.pipe()
        self._shims: dict[int, str] = {}
        self._pids: dict[str, int] = {}
        self._operations: dict[str, Callable[[dict[str, Any]], None]] = {
            "start": self._start,
            "execute": self._execute,
            "terminate": lambda command: self._signal(command, signal.SIGTERM),
            "kill": lambda command: self._signal(command, KILL),
        }

    def run(self) -> None:
        """Serve the server until its end of the pipe closes or SIGTERM arrives, then kill everything."""
        rest = b""
        while True:
            ready, _, _ = select.select([0, self._signals.read_end], (), ())
            if self._signals.read_end in ready and signal.SIGTERM in self._signals.drain():
                break
            reap(self._on_exit)
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
        # Signals that arrive before the shim has its handlers must wait for them, not end it.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_shim(command, parent=parent)
        self._shims[pid] = command["id"]
        self._pids[command["id"]] = pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)

    def _execute(self, command: dict[str, Any]) -> None:
        """Start a program in a running container."""
        shim = self._pids.get(command["target"])
        if shim is None:
            report(command["id"], "unstartable", error="the container has ended")
        else:
            self._start({**command, "shim": shim})

    def _become_shim(self, command: dict[str, Any], *, parent: int) -> NoReturn:
        code = 70
        try:
            os.close(0)
            os.close(self._lifeline_end)
            os.close(self._signals.read_end)
            adopt_orphans()
            die_with_parent(KILL)
            signals = SignalPipe()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            if os.getppid() == parent:  # otherwise the supervisor ended before it could be watched
                Shim(command, lifeline=self._lifeline, signals=signals).run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _signal(self, command: dict[str, Any], number: int) -> None:
        if pid := self._pids.get(command["id"]):
            os.kill(pid, number)

    def _on_exit(self, pid: int, status: int) -> None:
        """Report a lost shim and kill what it left."""
        identity = self._shims.pop(pid, None)
        if identity is not None:
            del self._pids[identity]
        if identity is None or status != 0:
            # A process of a lost shim. Its own children became ours when it ended, not when the shim did:
            # hence a look at every such end, not only at the shim's.
            self._kill_orphans()
        if identity is not None and status != 0:
            report(identity, "exited", code=137, signal=int(signal.SIGKILL))

    def _kill_orphans(self) -> None:
        """Kill what lost shims left behind: every child that is not a shim."""
        for pid in children() if LINUX else ():
            if pid not in self._shims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _end(self) -> None:
        """Let the shims kill their containers; those that do not manage are killed with what they leave."""
        for pid in self._shims:
            os.kill(pid, KILL)
        patience = time.monotonic() + 5
        while reap(self._on_exit):
            if time.monotonic() > patience:
                for pid in self._shims:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)


def command_line() -> list[str]:
    """Give the command that runs a supervisor."""
    return _isolated("supervisor", "main")


def probe_command_line(directory: str) -> list[str]:
    """Give the command that tries whether sandboxes work; it needs an empty directory."""
    return [*_isolated("sandbox", "main"), directory]


def _isolated(module: str, function: str) -> list[str]:
    """Run a function of a module of this package, without site-packages and whatever PYTHON* variables say."""
    package = __name__.rpartition(".")[0]
    root = __file__
    for _ in __name__.split("."):
        root = os.path.dirname(root)  # noqa: PTH120 - pathlib would double the start-up time
    # Appended: whatever lies beside us, the standard library comes first.
    start = f"import sys; sys.path.append({root!r}); from {package}.{module} import {function}; {function}()"
    return [sys.executable, "-I", "-S", "-c", start]


def main() -> None:
    """Be the supervisor of the process at the other end of standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Supervisor().run()
