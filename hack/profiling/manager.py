"""`python -m profiling.manager manager ...`: a manager that profiles itself, into a file in the directory `$PROFILES`.

Functions of C have no frames. Of those whose share is asked for, each gets one here: JSON.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any, Final

import orjson

from profiling.sampler import sampled

PROGRAM: Final = "trainmaster.controller.cli"

_loads, _dumps = orjson.loads, orjson.dumps


def loads(*arguments: Any) -> Any:
    """Decode, in a frame that a sample can show."""
    return _loads(*arguments)


def dumps(*arguments: Any, **options: Any) -> bytes:
    """Encode, in a frame that a sample can show."""
    return _dumps(*arguments, **options)


def main() -> None:
    """Run the manager."""
    orjson.loads, orjson.dumps = loads, dumps
    with sampled(Path(os.environ["PROFILES"]) / f"{os.getpid()}.json"):
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
