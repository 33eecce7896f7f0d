"""Calls of plugins: by the arguments that each takes, counted, guarded, and whatever they raise caught.

Guarantees:
- A plugin that raises, whatever it is, or that returns what it may not, fails the call with `PluginFailed`, which names
  it. Nothing is awaited here, so no cancellation comes from elsewhere, and neither `sys.exit` in a plugin nor an
  interrupt that it raises is a reason to end the process of everybody.
- `Rejected` is an answer, no failure: guards are not told of it as one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

from trainmaster.runtime.framework.interface import KindNotServed, NotReady, Plugin, Rejected
from trainmaster.runtime.framework.signatures import PHASES, implements, taken_arguments

_Result = TypeVar("_Result")

Observer = Callable[[str, str, float, BaseException | None], None]
"""Called after each plugin call with plugin name, phase, seconds taken and what it raised."""


class CallGuard(Protocol):
    """Stands around every call of a plugin of others: refuses those of one that is quarantined."""

    def __call__(self, plugin: str, phase: str, job: str, make: Callable[[], _Result]) -> _Result:
        """Make a call in this thread by `make`; `job` is the UID of the TrainJob, or empty.

        Whatever it raises becomes the failure of the call.

        Raises:
            PluginQuarantined: The call must not be made.
            TimeLimitExceeded: Nobody waits for what it returned.
        """


class PluginQuarantined(Exception):
    """Raised by a guard instead of a call; the text follows the name of the plugin."""


class TimeLimitExceeded(Exception):
    """Raised by a guard in place of what a call returns: it took longer than it may. Likewise."""


class PluginFailed(Exception):
    """A plugin failed for one TrainJob, or for one object that it maps to TrainJobs; the cause is what it raised."""

    def __init__(self, plugin: str, phase: str, cause: BaseException) -> None:
        self.plugin = plugin
        self.phase = phase
        self.rejected = isinstance(cause, Rejected)
        self.not_ready = isinstance(cause, NotReady)
        self.quarantined = isinstance(cause, PluginQuarantined)
        self.kind_not_served = isinstance(cause, KindNotServed)
        text = text_of(cause)
        if isinstance(cause, PluginQuarantined | TimeLimitExceeded):
            text = f"plugin {plugin} {text}"
        elif not self.rejected:
            text = f"plugin {plugin} failed in {phase}: {type(cause).__name__}: {text}"
        super().__init__(text)


def text_of(error: BaseException) -> str:
    """Return the text of an error as it can be sent to the API server, whatever a plugin has put in it."""
    try:
        text = str(error)
    except BaseException:
        return "(and its text cannot be read)"
    return text.encode(errors="replace").decode()


class Calls:
    """Calls plugins.

    Args:
        own: The plugins that are Trainmaster's own, which are called without the guard.
    """

    def __init__(
        self, *, observer: Observer | None = None, guard: CallGuard | None = None, own: Collection[str] = ()
    ) -> None:
        self._observer = observer
        self._guard = guard
        self._own = own
        self._taken: dict[tuple[str, str], tuple[str, ...]] = {}

    def prepare(self, plugin: Plugin) -> None:
        """Learn which arguments the methods of a plugin take."""
        for phase in PHASES:
            if implements(plugin, phase):
                self._taken[plugin.name, phase] = taken_arguments(phase, getattr(plugin, phase))

    def call(
        self,
        plugin: Plugin,
        phase: str,
        check: Callable[[Any], _Result],
        arguments: Mapping[str, Any],
        *,
        job: str = "",
    ) -> _Result:
        """Call a method of a plugin with those of the arguments that it takes, and check what it returns.

        Raises:
            PluginFailed: It raised, or returned what it may not, or must not be called.
        """
        taken = {name: arguments[name] for name in self._taken[plugin.name, phase]}
        method = getattr(plugin, phase)
        return self.run(plugin.name, phase, lambda: check(method(**taken)), job=job)

    def run(self, plugin: str, phase: str, function: Callable[[], _Result], *, job: str = "") -> _Result:
        """Do what is a plugin's.

        Raises:
            PluginFailed: It failed.
        """
        guard = None if plugin in self._own else self._guard
        is_made, started = guard is None, time.perf_counter()
        failure: BaseException | None = None
        try:
            if guard is None:
                return function()

            def make() -> _Result:
                nonlocal is_made
                is_made = True
                return function()

            return guard(plugin, phase, job, make)
        except BaseException as error:
            failure = error
            raise PluginFailed(plugin, phase, error) from error
        finally:
            if is_made and self._observer is not None:
                self._observer(plugin, phase, time.perf_counter() - started, failure)
