"""Plugins that do wrong for one TrainJob, `bad`, and nothing for any other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trainmaster.runtime.framework.interface import Desired

HOOKS = ("applies_to", "enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "pre_build", "build", "status")
"""The hooks that are called for each reconcile."""

FOREVER = 60.0
"""Seconds that nobody waits for."""


class PassingTime:
    """Time that stands still until a call takes too long."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def take_too_long(self) -> None:
        """Exceed a limit of time."""
        self._now += 2


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
    """Wait."""
    TIME.take_too_long()
    _AWAKE.wait(FOREVER)


@contextmanager
def sleepers() -> Iterator[None]:
    """End at the end what whoever sleeps or computes is at."""
    _AWAKE.clear()
    yield
    _AWAKE.set()


def spin() -> Any:
    """Compute."""
    TIME.take_too_long()
    while not _AWAKE.is_set():
        pass


def named(name: str, **metadata: str) -> Callable[[], Any]:
    """Build a ConfigMap of that name."""
    return lambda: [Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}})]
