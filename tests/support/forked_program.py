"""`trainmaster` as a program for shell scripts of tests, which starts at once: it hands its arguments, environment,
directory and streams over to the test, which forks the command (`support.forks`)."""

from __future__ import annotations

import os
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.forks import Fork, forkable

NAME = "trainmaster"

_PROGRAM = """#!{python} -IS
import os, signal, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
socket.send_fds(connection, [b"-"], [0, 1, 2])
words = [os.getcwd(), str(len(sys.argv) - 1), *sys.argv[1:], *map("=".join, os.environ.items())]
connection.sendall(os.fsencode("\\0".join(words)))
connection.shutdown(socket.SHUT_WR)
code = connection.recv(16).decode()
if not code:
    os.execv({python!r}, [{python!r}, "-m", "trainmaster.controller.cli", *sys.argv[1:]])
if int(code) < 0:
    signal.signal(-int(code), signal.SIG_DFL)
    os.kill(os.getpid(), -int(code))
sys.exit(int(code))
"""


@contextmanager
def forked_program() -> Iterator[Path]:
    """Return a directory with the program, for the PATH of scripts that run while the block runs; what still runs at
    its end is killed."""
    with tempfile.TemporaryDirectory() as directory:
        address = f"{directory}/socket"
        program = Path(directory) / "bin" / NAME
        program.parent.mkdir()
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        with _Server(address, _Command) as server:
            serving = threading.Thread(target=server.serve_forever, args=(0.05,))
            serving.start()
            try:
                yield program.parent
            finally:
                server.shutdown()
                serving.join()
                for fork in server.forks:
                    fork.kill()


class _Server(socketserver.ThreadingUnixStreamServer):
    """Forks the commands of the programs that connect, each in a thread that waits for its end."""

    def __init__(self, address: str, handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(address, handler)
        self.forks: list[Fork] = []


class _Command(socketserver.BaseRequestHandler):
    """A program that waits for its command; it runs that itself if no fork is what a new process would be."""

    server: _Server

    def handle(self) -> None:
        _, streams, _, _ = socket.recv_fds(self.request, 1, 3)
        with self.request.makefile("rb") as sent:
            cwd, count, *words = sent.read().decode(errors="surrogateescape").split("\0")
        arguments, variables = words[: int(count)], words[int(count) :]
        environment = dict(variable.split("=", 1) for variable in variables)
        stdin, stdout, stderr = streams
        try:
            if not forkable(environment):
                return
            fork = Fork(tuple(arguments), cwd=Path(cwd), environment=environment, streams=(stdin, stdout, stderr))
        finally:
            for stream in streams:
                os.close(stream)
        self.server.forks.append(fork)
        self.request.sendall(str(fork.join()).encode())
