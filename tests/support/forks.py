"""Commands that start without importing anything: forks of a process that has imported the command line already.

The imports of a command take ten times as long as most of them run. A fork has a command line of the server's, and
everything else of its own: process, working directory, environment, input and output.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from trainmaster.controller.cli.root import COMMANDS, COMMANDS_GROUP, main
from trainmaster.devcluster.apiserver.filters.recording import VARIABLE as RECORDING
from trainmaster.runtime.framework.interface import ENTRY_POINT_GROUP as PLUGINS
from trainmaster.runtime.jobs.interface import ENTRY_POINT_GROUP as KINDS

_ENVIRONMENT = dict(os.environ)
"""That in which the server imports modules, some of which read it then."""

_READ_LATE = frozenset({"HOME", "KUBECONFIG", "PATH", "PYTEST_CURRENT_TEST", "PWD", "OLDPWD", "SHLVL", "_", RECORDING})
"""What no module reads when it is imported, if anybody does. Where requests are recorded is known only after the
conftests of the directories that pytest was given, which import this."""

_COMPLETING = ("_ARGCOMPLETE", "COMP_")
"""How variables begin by which shells ask what completes a line: they are read late as well."""


class Fork:
    """A command that runs."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        script: str = "",
    ) -> None:
        sys.audit("trainmaster.fork")  # as of every other way to start a process, those that listen hear of it
        handed = [DupFd(stream) for stream in streams]
        self._process = _context.Process(target=_run, args=(arguments, str(cwd), dict(environment), handed, script))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """As a shell's, negative for a signal; None while it runs."""
        return self._process.exitcode

    async def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        if self.returncode is None:
            loop.add_reader(self._process.sentinel, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._process.sentinel)
        return self.join()

    def join(self) -> int:
        """Wait for its end in a thread that has no loop; returns the exit code."""
        self._process.join()
        code = self.returncode
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            assert self._process.pid is not None
            os.kill(self._process.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def forkable(environment: Mapping[str, str]) -> bool:
    """Tell whether a fork is what a new process would be, though its modules were imported before.

    Some read the environment then, and whether the output is a terminal.
    """
    wanted, known = (
        {key: value for key, value in each.items() if key not in _READ_LATE and not key.startswith(_COMPLETING)}
        for each in (environment, _ENVIRONMENT)
    )
    return wanted == known and not os.isatty(1)


def _run(arguments: tuple[str, ...], cwd: str, environment: dict[str, str], streams: list[Any], script: str) -> None:
    for number, stream in enumerate(streams):
        given = stream.detach()
        os.dup2(given, number)
        os.close(given)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    # Whoever runs the tests in the background ignores some of these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(each, signal.SIG_DFL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [script or "trainmaster", *arguments]
    if script:
        runpy.run_path(script, run_name="__main__")
    else:
        sys.exit(main())


def _modules() -> list[str]:
    """What the commands import, now or later."""
    points = [entry_points(group=group) for group in (COMMANDS_GROUP, PLUGINS, KINDS)]
    return [
        *(f"trainmaster.controller.cli.{module}" for module in COMMANDS.values()),
        *(point.module for found in points for point in found),
        *(f"trainmaster.controller.{module}" for module in ("manager.manager", "kube.auth.kubeconfig", "job_kinds")),
        *(f"trainmaster.devcluster.cli.{module}" for module in ("cluster_status", "detach", "down", "up")),
    ]


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_modules())
