"""Plugins that do wrong for one TrainJob, `bad`, and nothing for any other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainmaster.runtime.framework.interface import Desired

HOOKS = ("applies_to", "enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "pre_build", "build", "status")
"""The hooks that are called for each reconcile."""

FOREVER = 60.0
"""Seconds that nobody waits for."""


class PassingTime:
    """Time that stands still until a call takes too long: then the next readings, the watchdog's, are seconds apart."""

    def __init__(self) -> None:
        self._now, self._readings = 0.0, 0

    def __call__(self) -> float:
        if self._readings:
            self._readings -= 1
            self._now += 2
        return self._now

    def take_too_long(self, *, readings: int = 1) -> None:
        """Exceed a limit of time, and with two readings the grace after it as well."""
        self._readings = readings


TIME = PassingTime()
"""For guards whose limits are not to depend on how busy the machine is."""


def faulty(hook: str, fault: Callable[[], Any], *, jobs: tuple[str, ...] = ("bad",), **attributes: Any) -> Any:
    """Make a plugin `acme` that does something in a hook for TrainJobs of these names."""

    def run(_self: Any, info: Any = None, job: Any = None, listers: Any = None, old: Any = None) -> Any:
        if job.metadata.name in jobs:
            return fault()
        return {"applies_to": True, "build": [], "validate": []}.get(hook)

    def with_arguments(*names: str) -> Callable[..., Any]:
        # The arguments of the interface are known by name.
        source = f"def {hook}(self, {', '.join(names)}): return run(self, {', '.join(f'{n}={n}' for n in names)})"
        made: dict[str, Any] = {"run": run}
        exec(source, made)
        found: Callable[..., Any] = made[hook]
        return found

    def build(self: Any, info: Any) -> list[Desired]:
        return []

    arguments = {"build": ("info", "job", "listers"), "status": ("job", "listers"), "validate": ("info", "job")}
    members: dict[str, Any] = {"name": "acme", hook: with_arguments(*arguments.get(hook, ("info", "job")))}
    if hook == "applies_to":
        members["build"] = build
    return type("Acme", (), {**members, **attributes})()


def raise_key_error() -> Any:
    labels: dict[str, str] = {}
    return labels["region"]


_AWAKE = threading.Event()


def sleep() -> Any:
    """Wait in C, where no exception reaches."""
    TIME.take_too_long(readings=2)
    _AWAKE.wait(FOREVER)


@contextmanager
def sleepers() -> Iterator[None]:
    """Wake at the end whoever sleeps."""
    _AWAKE.clear()
    yield
    _AWAKE.set()


def spin() -> Any:
    """Compute in Python."""
    TIME.take_too_long()
    end = time.monotonic() + FOREVER
    while time.monotonic() < end:
        pass


def hoard() -> Any:
    """Allocate without end."""
    kept = []
    while True:
        kept.append(b"x" * (1 << 20))
        time.sleep(0.001)


def named(name: str, **metadata: str) -> Callable[[], Any]:
    """Build a ConfigMap of that name."""
    return lambda: [Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}})]
