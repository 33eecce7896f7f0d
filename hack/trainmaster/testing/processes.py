"""What a plugin makes of its TrainJobs in other processes, in which texts have other hashes, and sets other orders."""

import importlib
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.testing.subject import Problem, Subject, first_difference, outcome_of

_SEEDS: Final = ("1", "2")
"""For the hashes of texts; a set of two texts has the same order in both with a chance of one half."""

_LONGEST: Final = 60
"""Seconds that a process may take, which hangs otherwise."""


def is_deterministic_across_processes(subject: Subject, directory: Path) -> Iterator[Problem]:
    """Its TrainJobs become the same in every process.

    A plugin that another process cannot import, a class within a function for instance, is not looked at.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        given = directory / "subject.pickle"
        given.write_bytes(pickle.dumps(replace(subject, plugin=_name_of(subject.plugin))))
    except (AttributeError, TypeError, pickle.PicklingError):
        return
    outcomes = [_outcome(process) for process in [_start(given, seed) for seed in _SEEDS]]
    if any(outcome is None for outcome in outcomes):
        return
    difference = first_difference(*outcomes)
    if difference:
        yield Problem(
            f"another process makes something else of a TrainJob: {difference}",
            "what is built differs after each restart of the manager, and between its replicas, so it is written "
            "again, and pods might be restarted",
            "sort what comes from a set: the order of texts in one is another in each process",
        )


def _name_of(plugin: Any) -> Any:
    """Return how another process finds a plugin."""
    if isinstance(plugin, str):
        return plugin
    if not (isinstance(plugin, type) or inspect.isfunction(plugin)) or "<" in plugin.__qualname__:
        raise TypeError(f"{plugin!r} has no name by which another process could import it")
    return plugin.__module__, plugin.__qualname__


def _start(given: Path, seed: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__, str(given)]
    return subprocess.Popen(  # noqa: S603 - this interpreter, and this module
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def _outcome(process: subprocess.Popen[bytes]) -> Any:
    with process:
        try:
            output, _ = process.communicate(timeout=_LONGEST)
        finally:
            process.kill()
    return orjson.loads(output) if process.returncode == 0 else None


def _main(given: Path) -> None:
    """Resolve the TrainJobs of a subject, and print what becomes of them."""
    subject: Subject = pickle.loads(given.read_bytes())  # noqa: S301 - the process that started this one wrote it
    if not isinstance(subject.plugin, str):
        module, name = subject.plugin
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        subject = replace(subject, plugin=found)
    framework, on = subject.framework(), subject.whole_runtime()
    try:
        made = [outcome_of(framework, job, on, subject.listers()).settled() for job in subject.whole_jobs()]
    except PluginFailed as error:
        made = [{"failed": str(error)}]
    sys.stdout.buffer.write(orjson.dumps(made))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
