"""Parent death: runs a module as the main program, and not a moment longer than the process that started it.

Standard input is a pipe of which the starter holds the only other end. When that end closes, because the starter let go
or because it died of whatever cause, this process ends at once. A pipe needs no cooperation of anyone and works on
every operating system, unlike a parent death signal.

A program may take seconds to import, in which its starter has other things to do: with `--hold IMPORTED` that module is
imported at once, and the program runs when the first byte comes.

Usage: `python -P -m trainmaster.devcluster.manager.parent_death [--hold IMPORTED] MODULE [ARGUMENT...]`
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import signal
import sys
import threading

HOLD = "--hold"


def _await_parent_death(may_run: threading.Event) -> None:
    while os.read(0, 4096):
        may_run.set()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the module that the command line names."""
    may_run = threading.Event()
    threading.Thread(target=_await_parent_death, args=[may_run], name="parent-death", daemon=True).start()
    del sys.argv[0]
    if sys.argv[0] == HOLD:
        with contextlib.suppress(Exception):  # what is wrong with it, whoever runs it says
            importlib.import_module(sys.argv[1])
        del sys.argv[:2]
        may_run.wait()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
