"""Parent death: runs a module as the main program, and not a moment longer than the process that started it.

Standard input is a pipe of which the starter holds the only other end. When that end closes, because the starter let go
or because it died of whatever cause, this process ends at once. A pipe needs no cooperation of anyone and works on
every operating system, unlike a parent death signal.

Usage: `python -P -m trainmaster.devcluster.manager.parent_death MODULE [ARGUMENT...]`
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _await_parent_death() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the module that the command line names."""
    threading.Thread(target=_await_parent_death, name="parent-death", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
