"""A program for tests: `trainmaster cluster ...` that sends itself a signal when it first calls a function.

Usage: `python interrupting.py MODULE:FUNCTION SIGNAL [ARGUMENT...]`
"""

import importlib
import os
import sys
from typing import Any


def main() -> int:
    """Run the command line; returns its exit code."""
    place, number, *arguments = sys.argv[1:]
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    original = getattr(owner, name)

    def interrupted(*args: Any, **options: Any) -> Any:
        setattr(owner, name, original)
        os.kill(os.getpid(), int(number))
        return original(*args, **options)

    setattr(owner, name, interrupted)
    code: int = importlib.import_module("trainmaster.devcluster.cli.command").main(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
