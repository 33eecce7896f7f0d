"""Plugins that do wrong for one TrainJob and nothing for any other, and one that breaks whatever it is given."""

import contextlib
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.framework.signatures import PHASES

EXTENSION_POINTS = [
    (phase, argument)
    for phase, point in PHASES.items()
    for argument in list(inspect.signature(getattr(point, phase)).parameters)[1:]
]
"""Every argument of every extension point."""


def vandal(phase: str, argument: str, reads: Iterable[tuple[str, str, str | None, str]] = ()) -> Any:
    """Make a plugin that breaks one argument of one extension point.

    Args:
        phase: The extension point.
        argument: The name of its argument.
        reads: What it gets from listers: API version, kind, namespace and name.
    """
    signature = inspect.signature(getattr(PHASES[phase], phase))

    def run(self: Any, **given: Any) -> Any:
        wreck(given[argument], list(reads))
        self.ran = True
        return {"status": None, "applies_to": True}.get(phase, ())

    run.__signature__ = signature  # type: ignore[attr-defined] # what `inspect.signature` looks for
    nothing = lambda self: ()  # noqa: E731 - what a plugin needs at least
    attributes = {"name": "vandal", "priority": 1000, "ran": False, "watch_extension": nothing, phase: run}
    return type("Vandal", (), attributes)()


def wreck(node: Any, reads: list[tuple[str, str, str | None, str]], seen: set[int] | None = None) -> None:
    """Change everything that can be reached from an object by public names, frozen or not."""
    seen = set() if seen is None else seen
    if node is None or isinstance(node, str | bytes | int | float | tuple) or id(node) in seen:
        return
    seen.add(id(node))
    for each in _below(node, reads):
        wreck(each, reads, seen)
    if isinstance(node, dict):
        for key in node:
            node[key] = "broken"
        node["vandal"] = "was here"
    elif isinstance(node, list):
        node[:] = ["vandal"]
    elif isinstance(node, set):
        node.clear()
    elif dataclasses.is_dataclass(node):
        for name in _public_fields(node):
            with contextlib.suppress(AttributeError):
                setattr(node, name, "broken")


def _below(node: Any, reads: list[tuple[str, str, str | None, str]]) -> list[Any]:
    match node:
        case dict():
            return list(node.values())
        case list() | set():
            return list(node)
        case ApiModel():
            return [node.__dict__, node.__pydantic_extra__, node.__pydantic_fields_set__]
    if dataclasses.is_dataclass(node):
        properties = [name for name, each in inspect.getmembers(type(node)) if isinstance(each, property)]
        below = []
        for name in (*_public_fields(node), *properties):
            with contextlib.suppress(AttributeError, KeyError, TypeError):  # what it rests on may be broken already
                below.append(getattr(node, name))
        return below
    found = [node.get(*each) for each in reads]
    return [*found, *(list(node.list(*each[:3])) for each in reads)]


def _public_fields(node: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(node) if not field.name.startswith("_")]


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
