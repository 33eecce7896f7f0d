"""An embedded cluster as users start it: a program of its own, in the background."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLUSTER = (sys.executable, "-m", "trainmaster.controller.cli", "cluster")


@contextmanager
def embedded(home: Path, *options: str, **environment: str) -> Iterator[Path]:
    """Start a cluster in a directory and yield it; its kubeconfig is `.trainmaster/kubeconfig`."""
    wanted = os.environ | environment
    subprocess.run([*_CLUSTER, "up", "--detach", *options], cwd=home, check=True, capture_output=True, env=wanted)
    try:
        yield home
    finally:
        subprocess.run([*_CLUSTER, "down"], cwd=home, check=True, capture_output=True)
