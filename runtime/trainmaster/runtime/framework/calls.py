"""Calls of plugins: by the arguments that each takes, counted, guarded, and whatever they raise caught.

Guarantees:
- A plugin that raises, whatever it is, or that returns what it may not, fails the call with `PluginFailed`, which names
  it. Nothing is awaited here, so no cancellation comes from elsewhere, and neither `sys.exit` in a plugin nor an
  interrupt that it raises is a reason to end the process of everybody.
- `Rejected` is an answer, no failure: guards are not told of it as one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from trainmaster.runtime.framework.interface import KindNotServed, NotReady, Plugin, Rejected
from trainmaster.runtime.framework.signatures import PHASES, implements, taken_arguments

_Result = TypeVar("_Result")

Observer = Callable[[str, str, float, BaseException | None], None]
"""Called after each plugin call with plugin name, phase, seconds taken and what it raised."""


class CallGuard(Protocol):
    """Stands around every call of a plugin: refuses those of one that is quarantined.

    Whatever it raises becomes the failure of the call: `CallRefused` and `CallEnded`, whose texts follow the name of
    the plugin.
    """

    def enter(self, plugin: str, phase: str, job: str) -> None:
        """Take note that a call begins in this thread; `job` is the UID of the TrainJob, or empty.

        Raises:
            Exception: The call must not be made.
        """

    def leave(self, plugin: str, phase: str, job: str, error: BaseException | None) -> None:
        """Take note that it has ended; `error` is why it failed. It follows each `enter` that raised nothing.

        Raises:
            Exception: Nobody waits for what it returned.
        """


class CallRefused(Exception):
    """Raised by a guard instead of a call: the plugin is quarantined."""


class CallEnded(Exception):
    """Raised by a guard in place of what a call returns: it took longer than it may."""


class PluginFailed(Exception):
    """A plugin failed for one TrainJob, or for one object that it maps to TrainJobs; the cause is what it raised."""

    def __init__(self, plugin: str, phase: str, cause: BaseException) -> None:
        self.plugin = plugin
        self.phase = phase
        self.rejected = isinstance(cause, Rejected)
        self.not_ready = isinstance(cause, NotReady)
        self.quarantined = isinstance(cause, CallRefused)
        self.kind_not_served = isinstance(cause, KindNotServed)
        text = text_of(cause)
        if isinstance(cause, CallRefused | CallEnded):
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
        observer: Is told of each call.
        guard: Stands around each call.
    """

    def __init__(self, *, observer: Observer | None = None, guard: CallGuard | None = None) -> None:
        self._observer = observer
        self._guard = guard
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
        return self._run(plugin.name, phase, getattr(plugin, phase), taken, check, job=job)

    def run(self, plugin: str, phase: str, function: Callable[[], _Result], *, job: str = "") -> _Result:
        """Do what is a plugin's.

        Raises:
            PluginFailed: It failed.
        """
        result: _Result = self._run(plugin, phase, function, {}, _unchecked, job=job)
        return result

    def _run(
        self,
        plugin: str,
        phase: str,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        check: Callable[[Any], _Result],
        *,
        job: str,
    ) -> _Result:
        guard = self._guard
        started = time.perf_counter()
        failure: BaseException | None = None
        entered = guard is None
        try:
            if guard is None:
                return check(function(**arguments))
            guard.enter(plugin, phase, job)
            entered = True
            try:
                return check(function(**arguments))
            except BaseException as error:
                failure = error
                raise
            finally:
                guard.leave(plugin, phase, job, None if isinstance(failure, Rejected) else failure)
        except BaseException as error:
            failure = error
            raise PluginFailed(plugin, phase, error) from error
        finally:
            if entered and self._observer is not None:
                self._observer(plugin, phase, time.perf_counter() - started, failure)


def _unchecked(result: Any) -> Any:
    return result
